package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import io.outboxkit.smt.avro.JsonAvroEncoder.UnknownFields;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Unions if unknown fields are ignored, so that several record branches accept an object. */
class LenientUnionsTest {
  private static final String SMALL =
      "{\"type\":\"record\",\"name\":\"Small\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}";
  private static final String LARGE =
      "{\"type\":\"record\",\"name\":\"Large\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"},"
          + "{\"name\":\"b\",\"type\":\"int\"}]}";
  private static final String BOTH = "[\"null\"," + SMALL + "," + LARGE + "]";

  private static Object roundTrip(String schema, String json) throws PayloadException {
    Schema parsed = Encoding.schema(schema);
    AvroOutput out = new AvroOutput();
    new JsonAvroEncoder(parsed, UnknownFields.IGNORE).encode(json, out);
    return Encoding.decode(parsed, out.toByteArray());
  }

  static Stream<Arguments> values() {
    return Stream.of(
        arguments(BOTH, "{\"a\": 1}", "{\"a\": 1}"),
        arguments(BOTH, "{\"a\": 1, \"b\": 2}", "{\"a\": 1, \"b\": 2}"),
        arguments(BOTH, "{\"b\": 2, \"a\": 1}", "{\"a\": 1, \"b\": 2}"),
        arguments(BOTH, "{\"a\": 1, \"x\": 2}", "{\"a\": 1}"),
        // A field that no branch has must not cause the loss of a field that one branch has.
        arguments(BOTH, "{\"a\": 1, \"b\": 2, \"x\": 3}", "{\"a\": 1, \"b\": 2}"),
        arguments(BOTH, "{\"x\": 3, \"y\": 4, \"b\": 2, \"a\": 1}", "{\"a\": 1, \"b\": 2}"),
        // Both skip one field: the first branch is used.
        arguments(
            "["
                + SMALL
                + ","
                + LARGE.replace("Large", "Other").replace("\"b\",", "\"c\",\"default\":0,")
                + "]",
            "{\"a\": 1, \"x\": 3}",
            "{\"a\": 1}"),
        // A union within a union.
        arguments(
            "[{\"type\":\"record\",\"name\":\"P\",\"fields\":[{\"name\":\"u\",\"type\":"
                + SMALL
                + "}]},{\"type\":\"record\",\"name\":\"Q\",\"fields\":[{\"name\":\"u\",\"type\":[\"Small\","
                + LARGE
                + "]}]}]",
            "{\"u\": {\"a\": 1, \"b\": 2, \"x\": 3}, \"y\": 4}",
            "{\"u\": {\"a\": 1, \"b\": 2}}"),
        arguments("[\"null\"," + SMALL + "]", "{\"x\": [], \"a\": 1}", "{\"a\": 1}"),
        arguments(
            "{\"type\":\"array\",\"items\":" + BOTH + "}",
            "[{\"a\": 1, \"b\": 2}, {\"a\": 3, \"x\": 4}, null]",
            "[{\"a\": 1, \"b\": 2}, {\"a\": 3}, null]"),
        arguments(
            "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"u\",\"type\":"
                + BOTH
                + "}]}",
            "{\"x\": 0, \"u\": {\"a\": 1, \"b\": 2}}",
            "{\"u\": {\"a\": 1, \"b\": 2}}"));
  }

  @ParameterizedTest
  @MethodSource("values")
  void branchThatSkipsTheFewestFieldsIsPreferred(String schema, String json, String decoded)
      throws Exception {
    assertEquals(decoded, roundTrip(schema, json).toString());
  }

  @Test
  void valueWithoutAMatchingBranchIsRejected() {
    assertEquals(
        "payload: expected null or record Small or record Large, found object",
        assertThrows(PayloadException.class, () -> roundTrip(BOTH, "{\"x\": 1}")).getMessage());
  }

  @Test
  void recursiveRecordsCompile() throws Exception {
    String tree =
        "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"v\",\"type\":\"int\"},"
            + "{\"name\":\"t\",\"type\":[\"null\",\"T\"],\"default\":null}]}";
    assertEquals(
        "{\"v\": 1, \"t\": {\"v\": 2, \"t\": null}}",
        roundTrip(tree, "{\"v\": 1, \"x\": 1, \"t\": {\"v\": 2, \"x\": 1}}").toString());
  }
}
