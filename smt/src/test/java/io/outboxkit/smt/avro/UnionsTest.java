package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import org.apache.avro.generic.GenericRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Unions: the first branch, in the order of the schema, that accepts the value. */
class UnionsTest {
  private static final String SHAPES =
      """
      ["null",
       {"type": "record", "name": "Circle", "fields": [{"name": "radius", "type": "double"}]},
       {"type": "record", "name": "Box", "fields": [
         {"name": "width", "type": "double"}, {"name": "height", "type": "double"}]},
       {"type": "map", "values": "string"},
       {"type": "array", "items": "int"}]
      """;

  static Stream<Arguments> accepted() {
    return Stream.of(
        arguments("[\"null\",\"int\"]", "null", "null"),
        arguments("[\"int\",\"null\"]", "7", "7"),
        arguments("[\"int\",\"long\"]", "5000000000", "5000000000"),
        arguments("[\"null\",\"int\",\"double\"]", "1.5", "1.5"),
        arguments("[\"double\",\"long\"]", "5", "5.0"),
        // The parser must not cache the number of a branch that rejected it.
        arguments("[\"float\",\"double\"]", "3.5e38", "3.5E38"),
        arguments("[\"float\",\"double\"]", "1e39", "1.0E39"),
        arguments("[\"int\",\"float\",\"double\"]", "0.5", "0.5"),
        arguments(SHAPES, "{\"height\": -0.0, \"width\": 1}", "{\"width\": 1.0, \"height\": -0.0}"),
        arguments("[\"int\",\"string\",\"boolean\"]", "true", "true"),
        arguments(
            "[{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\"]},\"string\"]", "\"B\"", "B"),
        arguments(
            "[{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"},\"string\"]",
            "\"1970-01-01T00:00:01Z\"",
            "1000"),
        arguments(
            "[{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"},\"string\"]",
            "\"soon\"",
            "soon"),
        arguments(SHAPES, "null", "null"),
        arguments(SHAPES, "{\"radius\": 1}", "{\"radius\": 1.0}"),
        arguments(SHAPES, "{\"height\": 2, \"width\": 1}", "{\"width\": 1.0, \"height\": 2.0}"),
        arguments(SHAPES, "{\"radius\": \"large\"}", "{radius=large}"),
        arguments(SHAPES, "[1, 2]", "[1, 2]"));
  }

  @ParameterizedTest
  @MethodSource("accepted")
  void firstBranchThatAcceptsTheValueIsWritten(String schema, String json, String decoded)
      throws Exception {
    assertEquals(decoded, String.valueOf(Encoding.roundTrip(schema, json)));
  }

  static Stream<Arguments> rejected() {
    return Stream.of(
        arguments("[\"null\",\"int\"]", "\"x\"", "payload: expected null or int, found string"),
        arguments(
            "[\"null\",\"int\"]",
            "2147483648",
            "payload: expected int, found a number out of range"),
        arguments(
            "[\"int\",\"long\"]",
            "9223372036854775808",
            "payload: expected int or long, found number"),
        arguments(
            "[\"float\",{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":4}]",
            "1e39",
            "payload: expected float or decimal(4,0), found number"),
        arguments(
            SHAPES,
            "{\"radius\": 1, \"width\": 1}",
            "payload: expected null or record Circle or record Box or map or array, found object"),
        arguments(SHAPES, "[\"a\"]", "[0]: expected int, found string"));
  }

  @ParameterizedTest
  @MethodSource("rejected")
  void otherValuesAreRejected(String schema, String json, String message) {
    assertEquals(message, Encoding.rejection(schema, json));
  }

  /** Buffered tokens must not be converted to double. */
  @Test
  void bufferedNumbersKeepEveryDigit() throws Exception {
    String schema =
        """
        [{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]},
         {"type": "record", "name": "B", "fields": [{"name": "b", "type":
           {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 20}}]}]
        """;
    GenericRecord b =
        (GenericRecord) Encoding.roundTrip(schema, "{\"b\": 1234567890.12345678901234567890}");
    assertEquals(
        "123456789012345678901234567890",
        new java.math.BigInteger(((ByteBuffer) b.get("b")).array()).toString());
  }

  /** A rejected branch must not overwrite the field positions of the enclosing record. */
  @Test
  void recordsWithAUnionKeepTheirFields() throws Exception {
    String schema =
        """
        {"type": "record", "name": "Outer", "fields": [
          {"name": "a", "type": "int"},
          {"name": "u", "type": [
            {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]},
            {"type": "record", "name": "B", "fields": [
              {"name": "x", "type": "string"}, {"name": "y", "type": "int"}]}]},
          {"name": "c", "type": "int"}]}
        """;
    assertEquals(
        "{\"a\": 1, \"u\": {\"x\": \"s\", \"y\": 2}, \"c\": 3}",
        Encoding.roundTrip(schema, "{\"c\": 3, \"u\": {\"y\": 2, \"x\": \"s\"}, \"a\": 1}")
            .toString());
  }

  /** A always fails after its last field, so that each level doubles the work. */
  private static final String RECURSIVE =
      """
      {"type": "record", "name": "A", "fields": [
        {"name": "pad", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "x", "type": ["int", "A", {"type": "record", "name": "B", "fields": [
          {"name": "pad", "type": {"type": "array", "items": "int"}, "default": []},
          {"name": "x", "type": ["int", "A", "B"]}]}]}]}
      """;

  static Stream<Arguments> hostile() {
    String pad = "[" + "1,".repeat(100_000) + "1]";
    return Stream.of(arguments(40, "[]"), arguments(16, pad), arguments(190, pad));
  }

  @ParameterizedTest
  @MethodSource("hostile")
  void workOfRecursiveUnionsIsLimited(int levels, String pad) {
    String json =
        "{\"x\":".repeat(levels) + "{\"pad\":" + pad + ",\"x\":true}" + "}".repeat(levels);
    assertEquals(
        "payload: too many combinations of union branches",
        assertTimeoutPreemptively(
            Duration.ofMinutes(2), () -> Encoding.rejection(RECURSIVE, json)));
  }

  /** Attempts that fail at the first field cost little, so that deep unions are accepted. */
  @Test
  void deepUnionsAreAccepted() throws Exception {
    String schema =
        """
        {"type": "record", "name": "Sum", "fields": [
          {"name": "sum", "type": {"type": "array", "items": ["long", "Sum",
            {"type": "record", "name": "Product", "fields": [
              {"name": "product", "type":
                {"type": "array", "items": ["long", "Sum", "Product"]}}]}]}}]}
        """;
    String json = "{\"product\":[1,".repeat(90) + "1" + "]}".repeat(90);
    assertTrue(Encoding.roundTrip(schema, "{\"sum\":[" + json + "]}").toString().length() > 900);
  }

  @Test
  void largeArraysOfUnionsAreAccepted() throws Exception {
    String json = "[" + "1,".repeat(200_000) + "1]";
    String schema = "{\"type\": \"array\", \"items\": [\"int\", \"long\"]}";
    assertEquals(200_001, ((List<?>) Encoding.roundTrip(schema, json)).size());
  }
}
