package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.NOTE_V1;
import static io.outboxkit.smt.Routers.NOTE_V1_ID;
import static io.outboxkit.smt.Routers.NOTE_V2;
import static io.outboxkit.smt.Routers.NOTE_V2_ID;
import static io.outboxkit.smt.Routers.body;
import static io.outboxkit.smt.Routers.concat;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static io.outboxkit.smt.Routers.twoVersions;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.outboxkit.smt.util.Bytes;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** aggregate.T.payload.format: payloads that the service has encoded as Avro or text. */
class PayloadFormatsTest {
  private static final String FORMAT = "aggregate.note.payload.format";
  private static final byte[] V1 = avro(NOTE_V1, "{\"text\": \"hello\"}");
  private static final byte[] V2 = avro(NOTE_V2, "{\"text\": \"hello\", \"stars\": 5}");

  private static byte[] avro(String schema, String json) {
    try {
      return body(schema, json);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private static byte[] framed(int id, byte[] body) {
    return ByteBuffer.allocate(5 + body.length).put((byte) 0).putInt(id).put(body).array();
  }

  private static OutboxEvents row(Object payload) {
    return OutboxEvents.insert().column("payload", Schema.OPTIONAL_BYTES_SCHEMA, payload);
  }

  /** Return a router for avro with one schema version or for confluent-avro with two. */
  private static OutboxRouter<SourceRecord> binary(String format, String... more) {
    String[] all = concat(more, FORMAT, format);
    return router(format.equals("avro") ? all : twoVersions(all));
  }

  /** Return a router with two schema versions and a version column. */
  private static OutboxRouter<SourceRecord> withVersionColumn(String format) {
    return router(twoVersions(FORMAT, format, "table.field.event.schema.version", "version"));
  }

  private static OutboxRouter<SourceRecord> text(String... more) {
    return withoutSchema("text", more);
  }

  private static OutboxRouter<SourceRecord> withoutSchema(String format, String... more) {
    String[] options = {
      FORMAT,
      format,
      "aggregate.note.schema.versions",
      null,
      "aggregate.note.schema.1",
      null,
      "aggregate.note.schema.1.id",
      null
    };
    return router(concat(options, more));
  }

  @Test
  void bytesAreUnchanged() {
    byte[] opaque = {0, (byte) 0xFF, 'a'};
    SourceRecord out =
        withoutSchema("bytes", "cloudevents.source", "/library").apply(row(opaque).record());
    assertEquals("library.note", out.topic());
    assertSame(Schema.BYTES_SCHEMA, out.valueSchema());
    assertArrayEquals(opaque, (byte[]) out.value());
    assertEquals("application/octet-stream", headers(out).get("content-type"));
    assertArrayEquals(
        new byte[0],
        (byte[]) withoutSchema("bytes").apply(row(ByteBuffer.allocate(0)).record()).value());
    assertNull(withoutSchema("bytes").apply(row(null).record()).value());
    assertFails(withoutSchema("bytes"), OutboxEvents.insert().record(), "payload", "bytea");
  }

  static Stream<Arguments> avroBodies() {
    return Stream.of(arguments(V1, NOTE_V1_ID), arguments(V2, NOTE_V2_ID));
  }

  @Test
  void avroIsFramedWithTheIdOfTheOnlyVersion() {
    SourceRecord out = binary("avro").apply(row(V1).record());
    assertSame(Schema.BYTES_SCHEMA, out.valueSchema());
    assertArrayEquals(framed(NOTE_V1_ID, V1), (byte[]) out.value());
  }

  @Test
  void nullSelectsTheOnlyVersion() {
    SourceRecord out =
        binary("avro", "table.field.event.schema.version", "version")
            .apply(row(V1).column("version", Schema.OPTIONAL_STRING_SCHEMA, null).record());
    assertArrayEquals(framed(NOTE_V1_ID, V1), (byte[]) out.value());
  }

  /** Both versions can decode the body, with exchanged field names. */
  @ParameterizedTest
  @ValueSource(strings = {"avro", "confluent-avro"})
  void avroIsCheckedWithTheVersionOfTheRow(String format) {
    String v1 = pair("first", "last");
    byte[] body = avro(v1, "{\"first\": \"a\", \"last\": \"b\"}");
    OutboxRouter<SourceRecord> router =
        router(
            twoVersions(
                FORMAT,
                format,
                "aggregate.note.schema.1",
                v1,
                "aggregate.note.schema.2",
                pair("last", "first"),
                "table.field.event.schema.version",
                "version"));
    byte[] payload = format.equals("avro") ? body : framed(NOTE_V1_ID, body);
    SourceRecord older =
        router.apply(row(payload).column("version", Schema.STRING_SCHEMA, "1").record());
    assertArrayEquals(framed(NOTE_V1_ID, body), (byte[]) older.value());
  }

  private static String pair(String first, String second) {
    return "{\"type\":\"record\",\"name\":\"Note\",\"fields\":[{\"name\":\""
        + first
        + "\",\"type\":\"string\"},{\"name\":\""
        + second
        + "\",\"type\":\"string\"}]}";
  }

  @Test
  void avroWithoutAVersionBecomesADeadLetter() {
    SourceRecord out =
        withVersionColumn("avro")
            .apply(row(V1).column("version", Schema.OPTIONAL_STRING_SCHEMA, null).record());
    assertEquals("schema-version-unknown", headers(out).get("dead_letter_reason"));
    assertEquals(
        "the row names no schema version, but aggregate type note has several versions (2, 1)",
        headers(out).get("dead_letter_message"));
  }

  @ParameterizedTest
  @MethodSource("avroBodies")
  void confluentAvroIsUnchanged(byte[] body, int id) {
    SourceRecord out = binary("confluent-avro").apply(row(framed(id, body)).record());
    assertSame(Schema.BYTES_SCHEMA, out.valueSchema());
    assertArrayEquals(framed(id, body), (byte[]) out.value());
  }

  /** Debezium represents bytea as a buffer, which can be a slice of a larger one. */
  @ParameterizedTest
  @ValueSource(strings = {"avro", "confluent-avro"})
  void buffersAreReadFromTheirPosition(String format) {
    byte[] payload = format.equals("avro") ? V1 : framed(NOTE_V1_ID, V1);
    byte[] larger = ("<<" + "x".repeat(payload.length) + ">>").getBytes(StandardCharsets.UTF_8);
    System.arraycopy(payload, 0, larger, 2, payload.length);
    ByteBuffer buffer = ByteBuffer.wrap(larger, 2, payload.length).slice();
    SourceRecord out = binary(format).apply(row(buffer).record());
    assertArrayEquals(framed(NOTE_V1_ID, V1), (byte[]) out.value());
  }

  @ParameterizedTest
  @ValueSource(strings = {"avro", "confluent-avro"})
  void sqlNullIsATombstone(String format) {
    SourceRecord out = binary(format).apply(row(null).record());
    assertNull(out.value());
    assertNull(out.valueSchema());
    assertEquals("note-1", out.key());
  }

  static Stream<Arguments> invalidPayloads() {
    String avro =
        "the payload fits no schema version of aggregate type note (1); the error with version 1"
            + " is: ";
    return Stream.of(
        arguments("avro", new byte[0], avro + "text: the bytes end before the end of the value"),
        arguments(
            "avro", new byte[] {4, 'a'}, avro + "text: the bytes end before the end of the value"),
        arguments(
            "avro",
            new byte[] {2, (byte) 0xFF},
            avro + "text: expected string, found bytes that are not UTF-8"),
        arguments(
            "avro",
            new byte[] {2, 'a', 9},
            avro + "payload: 1 bytes after the end of the Avro value"),
        arguments(
            "confluent-avro",
            new byte[0],
            "the payload is not in Confluent wire format (byte 0x00, schema id, Avro body)"),
        arguments(
            "confluent-avro",
            V1,
            "the payload is not in Confluent wire format (byte 0x00, schema id, Avro body)"),
        arguments(
            "confluent-avro",
            framed(77, V1),
            "the payload does not have the schema id of a configured version, expected 12 (version"
                + " 2) or 16909060 (version 1)"),
        arguments(
            "confluent-avro",
            framed(NOTE_V2_ID, V1),
            "the payload has the schema id of version 2 but does not fit the schema of this"
                + " version: stars: the bytes end before the end of the value"));
  }

  @ParameterizedTest
  @MethodSource("invalidPayloads")
  void invalidAvroBecomesADeadLetter(String format, byte[] payload, String message)
      throws Exception {
    SourceRecord out = binary(format).apply(row(payload).record());
    assertEquals("library.dead-letter", out.topic());
    assertEquals("payload-invalid", headers(out).get("dead_letter_reason"));
    assertEquals(message, headers(out).get("dead_letter_message"));
    assertArrayEquals(
        payload, new ObjectMapper().readTree((byte[]) out.value()).get("payload").binaryValue());
  }

  @Test
  void coordinatesOfALargeRowHaveTheHashOfThePayloadBytes() throws Exception {
    byte[] payload = avro(NOTE_V1, "{\"text\": \"" + "x".repeat(2000) + "\"}");
    SourceRecord out =
        binary("avro", "max.record.bytes", "1000").apply(row(ByteBuffer.wrap(payload)).record());
    assertEquals("record-too-large", headers(out).get("dead_letter_reason"));
    var letter = new ObjectMapper().readTree((byte[]) out.value());
    assertEquals(Bytes.sha256(payload), letter.get("payload_sha256").asText());
    assertEquals(payload.length, letter.get("payload_bytes").asInt());
  }

  static Stream<Arguments> namedVersions() {
    byte[] validForBoth = avro(NOTE_V1, "{\"text\": \"\"}");
    return Stream.of(
        arguments(
            "avro",
            "1",
            validForBoth,
            HexFormat.of().formatHex(framed(NOTE_V1_ID, validForBoth)),
            null),
        arguments(
            "avro",
            "2",
            V1,
            null,
            "the payload does not fit the row's schema version of aggregate type note; the error"
                + " with version 2 is: stars: the bytes end before the end of the value"),
        arguments(
            "confluent-avro",
            "1",
            framed(NOTE_V1_ID, V1),
            HexFormat.of().formatHex(framed(NOTE_V1_ID, V1)),
            null),
        arguments(
            "confluent-avro",
            "2",
            framed(NOTE_V1_ID, V1),
            null,
            "the payload does not have the schema id of the row's schema version, expected 12"
                + " (version 2)"));
  }

  @ParameterizedTest
  @MethodSource("namedVersions")
  void onlyTheVersionOfTheRowIsUsed(
      String format, String version, byte[] payload, String value, String message) {
    SourceRecord out =
        withVersionColumn(format)
            .apply(row(payload).column("version", Schema.STRING_SCHEMA, version).record());
    assertEquals(message, headers(out).get("dead_letter_message"));
    if (value != null) {
      assertEquals(value, HexFormat.of().formatHex((byte[]) out.value()));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"avro", "confluent-avro"})
  void columnMustBeBytea(String format) {
    assertFails(
        binary(format),
        OutboxEvents.insert().record(),
        "payload",
        "STRING (io.debezium.data.Json)",
        "binary.handling.mode=bytes");
  }

  @ParameterizedTest
  @ValueSource(strings = {"{\"text\": 1, \"text\": 2}", "<note/>", "", " ", "null", "ü€😀"})
  void textIsUnchanged(String payload) {
    SourceRecord out =
        text()
            .apply(
                OutboxEvents.insert()
                    .column("payload", Schema.OPTIONAL_STRING_SCHEMA, payload)
                    .record());
    assertSame(Schema.BYTES_SCHEMA, out.valueSchema());
    assertEquals(payload, Routers.text(out));
  }

  @Test
  void sqlNullIsATombstoneOfText() {
    SourceRecord out = text().apply(OutboxEvents.insert().payload(null).record());
    assertNull(out.value());
    assertNull(out.valueSchema());
  }

  @Test
  void textWithAnUnpairedSurrogateIsInvalid() {
    SourceRecord out = text().apply(OutboxEvents.insert().payload("a\ud83d").record());
    assertEquals("payload-invalid", headers(out).get("dead_letter_reason"));
    assertEquals("the payload has an unpaired surrogate", headers(out).get("dead_letter_message"));
  }

  @Test
  void textOfBytesIsRejected() {
    assertFails(text(), row(V1).record(), "payload", "BYTES");
  }

  @ParameterizedTest
  @ValueSource(strings = {"{\"a\" : 1.50}", "\"text\"", "7"})
  void textOfAMessageIsItsJson(String payload) {
    SourceRecord out = text("message.prefix", "outbox").apply(OutboxEvents.message(payload, ""));
    assertEquals(payload, Routers.text(out));
  }

  @Test
  void jsonNullInAMessageIsATombstoneOfText() {
    SourceRecord out = text("message.prefix", "outbox").apply(OutboxEvents.message("null", ""));
    assertNull(out.value());
    assertNull(out.valueSchema());
  }

  /** One aggregate is encoded as Avro, the other as JSON text. */
  @Test
  void aggregatesCanHaveDifferentFormats() {
    OutboxRouter<SourceRecord> router =
        router(
            "aggregates", "note,page",
            "aggregate.page.topic", "library.page",
            "aggregate.page.partitions", "1",
            "aggregate.page.payload.format", "text");
    SourceRecord page = router.apply(OutboxEvents.insert().with("aggregate_type", "page").record());
    assertEquals("{\"text\": \"hello\"}", Routers.text(page));
    assertEquals(0, ((byte[]) router.apply(OutboxEvents.insert().record()).value())[0]);
  }
}
