package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Records, arrays and maps, also nested. */
class StructuresTest {
  private static final String ORDER =
      """
      {"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": null},
        {"name": "state", "type": "string", "default": "new"},
        {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": [
          {"name": "name", "type": "string"},
          {"name": "age", "type": "int", "default": -1}]}},
        {"name": "lines", "type": {"type": "array", "items":
          {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"},
            {"name": "count", "type": "int", "default": 1}]}}, "default": []},
        {"name": "labels", "type": {"type": "map", "values": "int"}, "default": {}}]}
      """;

  private static final String FULL =
      "{\"id\": 1, \"note\": \"n\", \"state\": \"s\", \"customer\": {\"name\": \"c\", \"age\": 5},"
          + " \"lines\": [{\"sku\": \"a\", \"count\": 2}], \"labels\": {\"x\": 1}}";

  static Stream<Arguments> accepted() {
    return Stream.of(
        arguments(FULL, FULL),
        arguments(
            "{\"customer\": {\"name\": \"c\"}, \"id\": 1}",
            "{\"id\": 1, \"note\": null, \"state\": \"new\", \"customer\": {\"name\": \"c\","
                + " \"age\": -1}, \"lines\": [], \"labels\": {}}"),
        arguments(
            "{\"lines\": [{\"count\": 3, \"sku\": \"b\"}, {\"sku\": \"c\"}], \"id\": 2, \"note\":"
                + " null, \"customer\": {\"age\": 1, \"name\": \"\"}}",
            "{\"id\": 2, \"note\": null, \"state\": \"new\", \"customer\": {\"name\": \"\","
                + " \"age\": 1}, \"lines\": [{\"sku\": \"b\", \"count\": 3}, {\"sku\": \"c\","
                + " \"count\": 1}], \"labels\": {}}"));
  }

  @ParameterizedTest
  @MethodSource("accepted")
  void fieldsCanHaveAnyOrderAndDefaultsAreAdded(String json, String decoded) throws Exception {
    assertEquals(decoded, Encoding.roundTrip(ORDER, json).toString());
  }

  static Stream<Arguments> rejected() {
    return Stream.of(
        arguments("[]", "payload: expected record Order, found array"),
        arguments(
            "{\"customer\": {\"name\": \"c\"}}",
            "id: expected long, found neither the field nor a default"),
        arguments(
            "{\"id\": 1, \"customer\": {}}",
            "customer.name: expected string, found neither the field nor a default"),
        arguments("{\"id\": 1, \"ID\": 2}", "payload: unknown field \"ID\" of record Order"),
        arguments(
            "{\"customer\": {\"mail@example.org\": 1}}",
            "customer: unknown field (a name of 16 characters) of record Customer"),
        arguments("{\"id\": 1, \"id\": 1}", "payload: duplicate field \"id\""),
        arguments("{\"note\": 5}", "note: expected null or string, found number"),
        arguments("{\"state\": null}", "state: expected string, found null"),
        arguments(
            "{\"lines\": [{\"sku\": \"a\"}, {\"sku\": 7}]}",
            "lines[1].sku: expected string, found number"),
        arguments("{\"lines\": {}}", "lines: expected array, found object"),
        arguments("{\"labels\": []}", "labels: expected map, found array"),
        arguments("{\"labels\": {\"secret\": \"x\"}}", "labels{}: expected int, found string"),
        arguments("{\"labels\": {\"secret\": 1, \"secret\": 2}}", "labels: duplicate key in a map"),
        arguments(
            "{\"labels\": {\"\\ud83d\": 1}}", "labels: a key of a map has an unpaired surrogate"),
        arguments("{\"id\": 1,", "payload: not valid JSON at line 1, column 10"));
  }

  @ParameterizedTest
  @MethodSource("rejected")
  void errorsContainThePath(String json, String message) {
    assertEquals(message, Encoding.rejection(ORDER, json));
  }

  /** Avro's writer also writes one block. The item counts have encodings of one to three bytes. */
  @ParameterizedTest
  @ValueSource(ints = {0, 1, 63, 64, 8191, 8192, 20_000})
  void arraysHaveTheBytesOfAvro(int items) throws Exception {
    Schema schema = Encoding.schema("{\"type\":\"array\",\"items\":\"int\"}");
    List<Integer> values = IntStream.range(0, items).boxed().toList();
    assertArrayEquals(Encoding.byAvro(schema, values), Encoding.encode(schema, values.toString()));
  }

  @Test
  void recordsHaveTheBytesOfAvroInEveryOrderOfFields() throws Exception {
    String fields =
        IntStream.range(0, 40)
            .mapToObj(i -> "{\"name\":\"f" + i + "\",\"type\":\"string\"}")
            .collect(Collectors.joining(","));
    Schema schema =
        Encoding.schema("{\"type\":\"record\",\"name\":\"R\",\"fields\":[" + fields + "]}");
    List<String> members = new ArrayList<>();
    for (int i = 0; i < 40; i++) {
      members.add("\"f" + i + "\":\"" + "v".repeat(i * 7) + "\"");
    }
    byte[] expected = Encoding.encode(schema, "{" + String.join(",", members) + "}");
    assertArrayEquals(Encoding.byAvro(schema, Encoding.decode(schema, expected)), expected);
    Random random = new Random(7);
    for (int round = 0; round < 50; round++) {
      Collections.shuffle(members, random);
      assertArrayEquals(expected, Encoding.encode(schema, "{" + String.join(",", members) + "}"));
    }
  }

  @Test
  void recordsCanBeRecursive() throws Exception {
    String tree =
        "{\"type\":\"record\",\"name\":\"Tree\",\"fields\":[{\"name\":\"value\",\"type\":\"int\"},"
            + "{\"name\":\"children\",\"type\":{\"type\":\"array\",\"items\":\"Tree\"},"
            + "\"default\":[]}]}";
    assertEquals(
        "{\"value\": 1, \"children\": [{\"value\": 2, \"children\": [{\"value\": 3, \"children\":"
            + " []}]}, {\"value\": 4, \"children\": []}]}",
        Encoding.roundTrip(
                tree,
                "{\"children\": [{\"children\": [{\"value\": 3}], \"value\": 2}, {\"value\": 4}],"
                    + " \"value\": 1}")
            .toString());
  }

  /** A stack overflow would fail the task after each restart. */
  @Test
  void deepNestingIsRejected() throws Exception {
    String list =
        "{\"type\":\"record\",\"name\":\"L\",\"fields\":[{\"name\":\"next\","
            + "\"type\":[\"null\",\"L\"],\"default\":null}]}";
    Encoding.roundTrip(list, "{\"next\":".repeat(200) + "null" + "}".repeat(200));
    assertEquals(
        "payload: nested over 200 levels deep, or a number, name or string too long",
        Encoding.rejection(list, "{\"next\":".repeat(100_000) + "null" + "}".repeat(100_000)));
  }

  /** A rejected value must not affect the next one. */
  @Test
  void encoderCanBeReusedAfterAnError() throws Exception {
    Schema schema = Encoding.schema(ORDER);
    JsonAvroEncoder encoder = new JsonAvroEncoder(schema);
    AvroOutput out = new AvroOutput();
    for (int i = 0; i < 3; i++) {
      out.startWireFormat(9);
      try {
        encoder.encode(
            "{\"lines\": [{\"sku\": \"" + "x".repeat(2_000_000) + "\", \"?\": 1}]}", out);
      } catch (PayloadException e) {
        out.reset();
      }
      encoder.encode(FULL, out);
      assertArrayEquals(Encoding.encode(schema, FULL), out.toByteArray());
    }
  }
}
