package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static io.outboxkit.smt.Routers.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.outboxkit.smt.util.Bytes;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Rows that violate the contract: reasons, messages without values, and dead letters. */
class InvalidRowsTest {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final String SECRET = "alice@example.org";

  static Stream<Arguments> invalidPayloads() {
    return Stream.of(
        row(
            OutboxEvents.insert().payload("{\"text\": {\"a\": \"" + SECRET + "\"}}"),
            "payload-invalid",
            "the payload fits no schema version of aggregate type note (1); the error with version"
                + " 1 is: text: expected string, found object"),
        row(
            OutboxEvents.insert().payload("{\"text\": \"a\", \"" + SECRET + "\": 1}"),
            "payload-invalid",
            "the payload fits no schema version of aggregate type note (1); the error with version"
                + " 1 is: payload: unknown field (a name of 17 characters) of record Note"),
        row(
            OutboxEvents.insert().payload("{\"text\": " + SECRET + "}"),
            "payload-invalid",
            "the payload fits no schema version of aggregate type note (1); the error with version"
                + " 1 is: payload: not valid JSON at line 1, column 10"),
        row(
            OutboxEvents.insert().payload("\u2003null"),
            "payload-invalid",
            "the payload fits no schema version of aggregate type note (1); the error with version"
                + " 1 is: payload: not valid JSON at line 1, column 1"),
        row(
            OutboxEvents.insert().payload(""),
            "payload-invalid",
            "the payload fits no schema version of aggregate type note (1); the error with version"
                + " 1 is: payload: expected record Note, found no value"));
  }

  static Stream<Arguments> invalidColumns() {
    return Stream.of(
        row(
            OutboxEvents.insert().with("aggregate_type", "author"),
            "unknown-aggregate-type",
            "aggregate type \"author\" is not in the option aggregates"),
        row(
            OutboxEvents.insert().with("aggregate_type", SECRET),
            "unknown-aggregate-type",
            "aggregate type (a name of 17 characters) is not in the option aggregates"),
        row(
            OutboxEvents.insert().with("aggregate_type", null),
            "unknown-aggregate-type",
            "aggregate type null is not in the option aggregates"),
        row(
            OutboxEvents.insert().with("aggregate_id", null),
            "empty-key",
            "the aggregate id is null or empty"),
        row(
            OutboxEvents.insert().with("aggregate_id", ""),
            "empty-key",
            "the aggregate id is null or empty"),
        row(
            OutboxEvents.insert().with("id", null),
            "empty-event-id",
            "the event id is null or empty"),
        row(
            OutboxEvents.insert().with("event_type", ""),
            "empty-event-type",
            "the event type is null or empty"),
        row(
            OutboxEvents.insert().with("created_at", "infinity"),
            "event-time-invalid",
            "the event time is null or not a timestamp of the years 0 to 9999"));
  }

  static Stream<Arguments> invalidHeaders() {
    return Stream.of(
        row(
            OutboxEvents.insert().with("headers", "[\"" + SECRET + "\"]"),
            "headers-invalid",
            "headers: expected a JSON object of header names and values"),
        row(
            OutboxEvents.insert().with("headers", "{" + SECRET),
            "headers-invalid",
            "headers: not valid JSON"),
        row(
            OutboxEvents.insert().with("headers", "{} " + "{}"),
            "headers-invalid",
            "headers: there is text after the end of the JSON value"),
        row(
            OutboxEvents.insert().with("headers", "{\"a\": 1, \"a\": 2}"),
            "headers-invalid",
            "headers: duplicate header \"a\""),
        row(
            OutboxEvents.insert().with("headers", "{\"\": 1}"),
            "headers-invalid",
            "headers: empty header name"),
        row(
            OutboxEvents.insert().with("headers", "{\"event_time\": \"now\"}"),
            "headers-invalid",
            "headers: \"event_time\" is a reserved header of outbox-kit (docs/contract.md)"));
  }

  private static Arguments row(OutboxEvents event, String reason, String message) {
    return arguments(event, reason, message);
  }

  @ParameterizedTest
  @MethodSource({"invalidPayloads", "invalidColumns", "invalidHeaders"})
  void invalidRowsBecomeDeadLetters(OutboxEvents event, String reason, String message) {
    SourceRecord out = router().apply(event.record());
    assertEquals("library.dead-letter", out.topic());
    assertNull(out.kafkaPartition());
    assertEquals(Schema.Type.STRING, out.keySchema().type());
    assertSame(Schema.BYTES_SCHEMA, out.valueSchema());
    assertEquals(OutboxEvents.COMMIT_MILLIS, out.timestamp());
    assertEquals(reason, headers(out).get("dead_letter_reason"));
    assertEquals(message, headers(out).get("dead_letter_message"));
    assertEquals(OutboxEvents.SEQUENCE, headers(out).get("source_sequence"));
  }

  @ParameterizedTest
  @MethodSource({"invalidPayloads", "invalidColumns", "invalidHeaders"})
  void invalidRowsStopTheTaskWithTheSameMessage(OutboxEvents event, String reason, String message) {
    assertFails(
        router("invalid.rows", "fail"), event.record(), OutboxEvents.SEQUENCE, reason, message);
  }

  @ParameterizedTest
  @MethodSource({"invalidPayloads", "invalidColumns", "invalidHeaders"})
  void messagesNeverContainValues(OutboxEvents event, String reason, String message) {
    try (CapturedLog log = new CapturedLog()) {
      SourceRecord out = router().apply(event.record());
      assertFalse(headers(out).get("dead_letter_message").contains(SECRET));
      DataException e =
          assertThrows(
              DataException.class, () -> router("invalid.rows", "fail").apply(event.record()));
      assertNull(e.getCause(), "the message of a Jackson exception would quote the text");
      assertFalse(e.getMessage().contains(SECRET));
      assertTrue(log.text().contains(message));
      assertFalse(log.text().contains(SECRET));
    }
  }

  @Test
  void invalidRowsAreLoggedAsWarningOncePerReason() {
    try (CapturedLog log = new CapturedLog()) {
      OutboxRouter<SourceRecord> router = router();
      router.apply(OutboxEvents.insert().payload("1").record());
      router.apply(OutboxEvents.insert().payload("2").record());
      router.apply(OutboxEvents.insert().with("aggregate_id", "").record());
      assertEquals(2, log.warnings());
    }
  }

  @Test
  void deadLetterHasAllColumns() throws Exception {
    SourceRecord out =
        router()
            .apply(
                OutboxEvents.insert()
                    .payload("{\"txt\": 123456789.1234567890123456789}")
                    .with("headers", "{\"traceparent\": \"00-ab\"}")
                    .column("note", Schema.OPTIONAL_STRING_SCHEMA, "{not json")
                    .column("broken", OutboxEvents.json(), "{not json")
                    .column("raw", Schema.BYTES_SCHEMA, ByteBuffer.wrap(new byte[] {1, 2}))
                    .column("ratio", Schema.FLOAT64_SCHEMA, 0.5)
                    .column("open", Schema.BOOLEAN_SCHEMA, true)
                    .column("price", Decimal.schema(2), new BigDecimal("1.10"))
                    .column(
                        "labels", SchemaBuilder.array(Schema.STRING_SCHEMA).build(), List.of("a"))
                    .column(
                        "extra",
                        SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.INT32_SCHEMA).build(),
                        Map.of("k", 1))
                    .record());
    assertEquals("note-1", out.key());
    assertEquals(
        "{\"id\":\"6f1c1f0e-3c1b-4d8e-9a53-0d6a2f9b7c11\",\"seq\":7,\"aggregate_type\":\"note\","
            + "\"aggregate_id\":\"note-1\",\"event_type\":\"NoteWritten\","
            + "\"payload\":{\"txt\": 123456789.1234567890123456789},"
            + "\"headers\":{\"traceparent\": \"00-ab\"},"
            + "\"created_at\":\"2026-11-20T18:31:38.123456Z\",\"note\":\"{not json\","
            + "\"broken\":\"{not json\",\"raw\":\"AQI=\",\"ratio\":0.5,\"open\":true,"
            + "\"price\":1.10,\"labels\":[\"a\"],\"extra\":{\"k\":1},"
            + "\"source_sequence\":\"0001_0000000002ba5d10-0000000002ba5d48\"}",
        text(out));
    MAPPER.readTree((byte[]) out.value());
    assertEquals(
        List.of(
            "event_id",
            "event_type",
            "aggregate_type",
            "event_time",
            "source_sequence",
            "traceparent",
            "dead_letter_reason",
            "dead_letter_message"),
        List.copyOf(headers(out).keySet()));
  }

  /** A message that is larger than a record would stop the task. */
  @Test
  void messageOfADeadLetterIsLimited() {
    String symbols =
        IntStream.range(0, 5000).mapToObj(i -> "\"S" + i + "\"").collect(Collectors.joining(","));
    SourceRecord out =
        router(
                "aggregate.note.schema.1",
                "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[" + symbols + "]}")
            .apply(OutboxEvents.insert().payload("1").record());
    assertEquals("payload-invalid", headers(out).get("dead_letter_reason"));
    assertTrue(headers(out).get("dead_letter_message").length() < 1100);
  }

  @Test
  void deadLetterOfARowWithoutKeyHasNoKey() {
    SourceRecord out = router().apply(OutboxEvents.insert().with("aggregate_id", null).record());
    assertNull(out.key());
    assertTrue(out.keySchema().isOptional());
  }

  /** A row that is inserted again from a dead letter can have the headers of the dead letter. */
  @Test
  void reasonHeadersOfTheRowAreReplaced() {
    SourceRecord out =
        router()
            .apply(
                OutboxEvents.insert()
                    .payload("1")
                    .with("headers", "{\"dead_letter_reason\": \"earlier\"}")
                    .record());
    assertEquals("payload-invalid", headers(out).get("dead_letter_reason"));
  }

  @Test
  void largeRowsBecomeCoordinates() throws Exception {
    String payload = "{\"text\": \"" + SECRET.repeat(100) + "\"}";
    SourceRecord in = OutboxEvents.insert().payload(payload).record();
    SourceRecord out = router("max.record.bytes", "1000").apply(in);
    JsonNode value = MAPPER.readTree((byte[]) out.value());
    assertEquals(
        List.of(
            "id",
            "aggregate_type",
            "aggregate_id",
            "event_type",
            "source_sequence",
            "lsn",
            "payload_sha256",
            "payload_bytes"),
        StreamSupport.stream(((Iterable<String>) value::fieldNames).spliterator(), false).toList());
    byte[] utf8 = payload.getBytes(StandardCharsets.UTF_8);
    assertEquals(Bytes.sha256(utf8), value.get("payload_sha256").asText());
    assertEquals(utf8.length, value.get("payload_bytes").asInt());
    assertEquals(45_768_008L, value.get("lsn").asLong());
    assertEquals("record-too-large", headers(out).get("dead_letter_reason"));
    assertEquals(
        "key, value and headers take 1936 bytes; max.record.bytes is 1000",
        headers(out).get("dead_letter_message"));
    assertFalse(text(out).contains(SECRET));
  }

  @Test
  void sizeLimitIsExact() {
    SourceRecord in = OutboxEvents.insert().record();
    long size = sizeOf(router().apply(in));
    assertEquals("library.note", router("max.record.bytes", Long.toString(size)).apply(in).topic());
    assertEquals(
        "library.dead-letter",
        router("max.record.bytes", Long.toString(size - 1)).apply(in).topic());
  }

  /** Each header counts 10 bytes for Kafka's two length fields. */
  private static long sizeOf(SourceRecord record) {
    long size = utf8(record.key()) + ((byte[]) record.value()).length;
    for (Map.Entry<String, String> header : headers(record).entrySet()) {
      size += 10 + utf8(header.getKey()) + utf8(header.getValue());
    }
    return size;
  }

  private static long utf8(Object text) {
    return ((String) text).getBytes(StandardCharsets.UTF_8).length;
  }

  /** Headers with a name of one char and an empty value are mostly length fields. */
  @Test
  void lengthFieldsOfHeadersCount() {
    String headers =
        IntStream.range(0, 200)
            .mapToObj(i -> "\"" + (char) ('\u4e00' + i) + "\": \"\"")
            .collect(Collectors.joining(",", "{", "}"));
    SourceRecord in = OutboxEvents.insert().with("headers", headers).record();
    assertEquals("library.note", router("max.record.bytes", "4000").apply(in).topic());
    SourceRecord out = router("max.record.bytes", "2000").apply(in);
    assertEquals("record-too-large", headers(out).get("dead_letter_reason"));
  }

  /** The dead letter of a large row with a different error must not exceed the limit either. */
  @Test
  void largeRowsWithAnotherErrorHaveThatReason() throws Exception {
    SourceRecord out =
        router("max.record.bytes", "1000")
            .apply(OutboxEvents.insert().payload("{\"x\": \"" + "y".repeat(2000) + "\"}").record());
    assertEquals("payload-invalid", headers(out).get("dead_letter_reason"));
    assertEquals(2009, MAPPER.readTree((byte[]) out.value()).get("payload_bytes").asInt());
  }

  @Test
  void largeKeysBecomeHashes() throws Exception {
    String key = "k".repeat(5000);
    SourceRecord out =
        router("max.record.bytes", "1000")
            .apply(OutboxEvents.insert().with("aggregate_id", key).payload(null).record());
    String hash = "sha256:" + Bytes.sha256(key.getBytes(StandardCharsets.UTF_8));
    assertEquals(hash, out.key());
    JsonNode value = MAPPER.readTree((byte[]) out.value());
    assertEquals(hash, value.get("aggregate_id").asText());
    assertTrue(value.get("payload_sha256").isNull());
    assertEquals(0, value.get("payload_bytes").asInt());
  }

  @Test
  void emptyPartitionFieldIsInvalid() {
    SourceRecord out =
        router("aggregate.note.partition.field", "region")
            .apply(
                OutboxEvents.insert()
                    .column("region", Schema.OPTIONAL_STRING_SCHEMA, null)
                    .record());
    assertEquals("empty-partition-field", headers(out).get("dead_letter_reason"));
    assertEquals("column region is null or empty", headers(out).get("dead_letter_message"));
  }

  @Test
  void messageHasTheErrorOfTheLatestVersion() {
    SourceRecord out =
        router(
                "aggregate.note.schema.versions", "2,1",
                "aggregate.note.schema.2", Routers.NOTE_V2,
                "aggregate.note.schema.2.id", "12")
            .apply(OutboxEvents.insert().payload("{\"text\": \"a\", \"stars\": \"5\"}").record());
    assertEquals(
        "the payload fits no schema version of aggregate type note (2, 1); the error with version 2"
            + " is: stars: expected int, found string",
        headers(out).get("dead_letter_message"));
  }
}
