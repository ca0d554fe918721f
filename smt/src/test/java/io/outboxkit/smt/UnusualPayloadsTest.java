package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.NOTE_V1;
import static io.outboxkit.smt.Routers.NOTE_V1_ID;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.outboxkit.smt.util.Bytes;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.stream.Stream;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Unusual and slightly invalid JSON payloads: each becomes a record or a dead letter. */
class UnusualPayloadsTest {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final int TEN_MEGABYTES = 10_000_000;

  /** Return the schema of a record with one field, f. */
  private static String schema(String type) {
    return "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"f\",\"type\":"
        + type
        + "}]}";
  }

  private static SourceRecord route(String type, String json) {
    return router("aggregate.note.schema.1", schema(type))
        .apply(OutboxEvents.insert().payload("{\"f\": " + json + "}").record());
  }

  private static Object decoded(String type, String json) throws Exception {
    SourceRecord out = route(type, json);
    assertEquals(null, headers(out).get("dead_letter_message"));
    return ((GenericRecord) Routers.decode(out, schema(type), NOTE_V1_ID)).get("f");
  }

  private static void assertInvalid(String message, SourceRecord out) {
    assertEquals("library.dead-letter", out.topic());
    assertEquals("payload-invalid", headers(out).get("dead_letter_reason"));
    assertEquals(
        "the payload fits no schema version of aggregate type note (1); the error with version 1"
            + " is: "
            + message,
        headers(out).get("dead_letter_message"));
  }

  /** Parsed as text, because Jackson rejects an escaped surrogate in a name if it reads bytes. */
  private static JsonNode deadLetterOf(SourceRecord out) throws Exception {
    return MAPPER.readTree(Routers.text(out));
  }

  static Stream<Arguments> repeatedKeys() {
    String inner =
        "{\"type\":\"record\",\"name\":\"I\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}";
    String other =
        "{\"type\":\"record\",\"name\":\"O\",\"fields\":[{\"name\":\"b\",\"type\":\"int\"}]}";
    return Stream.of(
        arguments(inner, "{\"a\": 1, \"a\": 1}", "f: duplicate field \"a\""),
        arguments(inner, "{\"a\": 1, \"\\u0061\": 2}", "f: duplicate field \"a\""),
        arguments(
            "{\"type\":\"map\",\"values\":\"int\"}",
            "{\"k\": 1, \"k\": 1}",
            "f: duplicate key in a map"),
        arguments("[\"null\"," + inner + "]", "{\"a\": 1, \"a\": 1}", "f: duplicate field \"a\""),
        arguments(
            "[" + inner + "," + other + "]",
            "{\"b\": 1, \"b\": 1}",
            "f: expected record I or record O, found object"),
        arguments("\"int\"", "1, \"f\": 2", "payload: duplicate field \"f\""));
  }

  /** The json type keeps duplicate keys, jsonb only the last: the intended value is unknown. */
  @ParameterizedTest
  @MethodSource("repeatedKeys")
  void repeatedKeysAreInvalid(String type, String json, String message) {
    assertInvalid(message, route(type, json));
  }

  static Stream<Arguments> unpairedSurrogates() {
    String found = "f: expected string, found a string with an unpaired surrogate";
    String map = "{\"type\":\"map\",\"values\":\"string\"}";
    String key = "f: a key of a map has an unpaired surrogate";
    return Stream.of(
        arguments("\"string\"", "\"\\ud83d\"", found),
        arguments("\"string\"", "\"\\ude00\"", found),
        arguments("\"string\"", "\"\\ude00\\ud83d\"", found),
        arguments("\"string\"", "\"a\ud83d\"", found),
        arguments("\"string\"", "\"\ude00a\"", found),
        arguments(
            "[\"string\",{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\"]}]",
            "\"\ud83d\"",
            "f: expected string or enum E [A], found string"),
        arguments(map, "{\"\\ud83d\": \"a\"}", key),
        arguments(map, "{\"\ud83d\": \"a\"}", key),
        arguments(map, "{\"a\": \"\ud83d\"}", found.replace("f:", "f{}:")),
        arguments(
            "\"string\"",
            "\"a\", \"\ud83d\": 1",
            "payload: unknown field (a name of 1 characters) of record R"));
  }

  /** UTF-8 has no bytes for it: Java would write a question mark in its place. */
  @ParameterizedTest
  @MethodSource("unpairedSurrogates")
  void unpairedSurrogatesAreInvalid(String type, String json, String message) throws Exception {
    SourceRecord out = route(type, json);
    assertInvalid(message, out);
    // The dead letter is valid JSON for any content of the row.
    assertNotNull(deadLetterOf(out).get("payload"));
  }

  @Test
  void surrogatePairsAreEncoded() throws Exception {
    assertEquals("😀😀", decoded("\"string\"", "\"\\ud83d\\ude00😀\"").toString());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{\"a\": \"\\ud83d\"}",
        "{\"a\": \"\ud83d\"}",
        "{\"\\ud83d\": \"a\"}",
        "{\"\ud83d\": \"a\"}",
        "{\"a\": [\"\ud83d\"]}"
      })
  void headersWithAnUnpairedSurrogateAreInvalid(String text) throws Exception {
    SourceRecord out = router().apply(OutboxEvents.insert().with("headers", text).record());
    assertEquals("headers-invalid", headers(out).get("dead_letter_reason"));
    assertEquals(
        "headers: a name or a value has an unpaired surrogate",
        headers(out).get("dead_letter_message"));
    assertNotNull(deadLetterOf(out).get("headers"));
  }

  /** Coordinates must be valid JSON even if one of their texts is not valid. */
  @Test
  void coordinatesCanHaveAnUnpairedSurrogate() throws Exception {
    SourceRecord out =
        router("max.record.bytes", "600")
            .apply(
                OutboxEvents.insert()
                    .with("event_type", "E\ud83d")
                    .payload("{\"text\": \"" + "x".repeat(1000) + "\"}")
                    .record());
    assertEquals("record-too-large", headers(out).get("dead_letter_reason"));
    assertEquals("E?", MAPPER.readTree((byte[]) out.value()).get("event_type").asText());
  }

  static Stream<Arguments> nested() {
    String self = "{\"type\":\"array\",\"items\":[\"null\",\"R\"]}";
    return Stream.of(
        arguments(self, "[{\"f\":", "}]"),
        // The encoder buffers the tokens to try several branches.
        arguments(
            "[\"null\",\"R\",{\"type\":\"map\",\"values\":[\"null\",\"R\"]}]", "{\"f\":", "}"));
  }

  @ParameterizedTest
  @MethodSource("nested")
  void deepNestingBecomesADeadLetter(String type, String open, String close) {
    String deep = open.repeat(100_000) + "null" + close.repeat(100_000);
    assertEquals("payload-invalid", headers(route(type, deep)).get("dead_letter_reason"));
    String truncated = open.repeat(100_000);
    assertEquals("payload-invalid", headers(route(type, truncated)).get("dead_letter_reason"));
  }

  @Test
  void deeplyNestedIgnoredFieldsBecomeADeadLetter() {
    SourceRecord out =
        router("aggregate.note.unknown.fields", "ignore")
            .apply(
                OutboxEvents.insert()
                    .payload("{\"x\": " + "[".repeat(100_000) + "]".repeat(100_000) + "}")
                    .record());
    assertInvalid(
        "payload: nested over 200 levels deep, or a number, name or string too long", out);
  }

  @Test
  void deeplyNestedHeadersAreInvalid() {
    String deep = "{\"a\": " + "[".repeat(100_000) + "]".repeat(100_000) + "}";
    SourceRecord out = router().apply(OutboxEvents.insert().with("headers", deep).record());
    assertEquals("headers-invalid", headers(out).get("dead_letter_reason"));
  }

  @Test
  void tenMegabytesAreEncodedBelowTheLimit() throws Exception {
    String text = "é".repeat(TEN_MEGABYTES / 2);
    SourceRecord out =
        router("max.record.bytes", "10500000")
            .apply(OutboxEvents.insert().payload("{\"text\": \"" + text + "\"}").record());
    assertEquals("library.note", out.topic());
    GenericRecord note = (GenericRecord) Routers.decode(out, NOTE_V1, NOTE_V1_ID);
    assertEquals(text, note.get("text").toString());
  }

  @Test
  void tenMegabytesBecomeCoordinatesAboveTheLimit() throws Exception {
    OutboxRouter<SourceRecord> router = router();
    String payload = "{\"text\": \"" + "x".repeat(TEN_MEGABYTES) + "\"}";
    SourceRecord out = router.apply(OutboxEvents.insert().payload(payload).record());
    assertEquals("record-too-large", headers(out).get("dead_letter_reason"));
    JsonNode letter = MAPPER.readTree((byte[]) out.value());
    assertEquals(payload.length(), letter.get("payload_bytes").asInt());
    assertEquals(
        Bytes.sha256(payload.getBytes(StandardCharsets.UTF_8)),
        letter.get("payload_sha256").asText());
    assertEquals("library.note", router.apply(OutboxEvents.insert().record()).topic(), "next row");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "9007199254740993",
        "-9007199254740993",
        "9223372036854775807",
        "1e18",
        "9007199254740993.0"
      })
  void numbersBeyondTwoToThe53AreExact(String json) throws Exception {
    BigInteger expected = new BigDecimal(json).toBigIntegerExact();
    assertEquals(expected.longValueExact(), decoded("\"long\"", json));
    // The encoder buffers the tokens to try several branches.
    String union =
        "[{\"type\":\"record\",\"name\":\"A\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]},"
            + "{\"type\":\"record\",\"name\":\"B\",\"fields\":[{\"name\":\"b\",\"type\":\"long\"}]}]";
    GenericRecord b = (GenericRecord) decoded(union, "{\"b\": " + json + "}");
    assertEquals(expected.longValueExact(), b.get("b"));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "0.1",
        "9007199254740993.01",
        "123456789012345678901234567890.12345678",
        "-99999999999999999999999999999.99999999"
      })
  void decimalsKeepEveryDigit(String json) throws Exception {
    String decimal =
        "{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":38,\"scale\":8}";
    for (String written : new String[] {json, "\"" + json + "\""}) {
      ByteBuffer bytes = (ByteBuffer) decoded(decimal, written);
      BigDecimal value = new BigDecimal(new BigInteger(bytes.duplicate().array()), 8);
      assertEquals(0, new BigDecimal(json).compareTo(value), value::toString);
    }
  }

  /** Numbers in headers are copied as text, without conversion to double. */
  @Test
  void numbersInHeadersKeepEveryDigit() {
    String json = "{\"n\": 123456789012345678901234567890.10, \"l\": [9007199254740993.0]}";
    var headers = headers(router().apply(OutboxEvents.insert().with("headers", json).record()));
    assertEquals("123456789012345678901234567890.10", headers.get("n"));
    assertEquals("[9007199254740993.0]", headers.get("l"));
  }
}
