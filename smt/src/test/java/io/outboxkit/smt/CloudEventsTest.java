package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.concat;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** cloudevents.source: the binary content mode of CloudEvents' Kafka binding, 1.0.2. */
class CloudEventsTest {
  private static final String SOURCE = "https://example.org/library";

  private static OutboxRouter<SourceRecord> events(String... more) {
    return router(concat(more, "cloudevents.source", SOURCE));
  }

  @Test
  void headersAreAddedToThoseOfTheContract() {
    SourceRecord in = OutboxEvents.insert().with("headers", "{\"a\": \"b\"}").record();
    Map<String, String> expected = new LinkedHashMap<>(headers(router().apply(in)));
    expected.putAll(
        Map.of(
            "ce_specversion", "1.0",
            "ce_id", OutboxEvents.ID,
            "ce_source", SOURCE,
            "ce_type", "NoteWritten",
            "ce_time", OutboxEvents.CREATED_AT,
            "ce_subject", "note-1",
            "content-type", "application/avro"));
    SourceRecord out = events().apply(in);
    assertEquals(expected, headers(out));
    assertEquals(router().apply(in).key(), out.key());
  }

  @Test
  void tombstonesHaveNoContentType() {
    SourceRecord out = events().apply(OutboxEvents.insert().payload(null).record());
    assertNull(out.value());
    assertEquals("NoteWritten", headers(out).get("ce_type"));
    assertFalse(headers(out).containsKey("content-type"));
  }

  static Stream<Arguments> contentTypes() {
    byte[] bytes = {0, 0, 0, 0, 12, 2, 'a'};
    return Stream.of(
        arguments("text", OutboxEvents.json(), "{}", "application/json"),
        arguments("text", Schema.STRING_SCHEMA, "{}", "text/plain; charset=utf-8"),
        arguments("avro", Schema.BYTES_SCHEMA, new byte[] {2, 'a'}, "application/avro"),
        arguments("confluent-avro", Schema.BYTES_SCHEMA, bytes, "application/avro"));
  }

  @ParameterizedTest
  @MethodSource("contentTypes")
  void contentTypeIsThatOfTheValue(
      String format, Schema column, Object payload, String contentType) {
    boolean text = format.equals("text");
    SourceRecord out =
        events(
                "aggregate.note.payload.format", format,
                "aggregate.note.schema.versions", text ? null : "1",
                "aggregate.note.schema.1", text ? null : Routers.NOTE_V1,
                "aggregate.note.schema.1.id", text ? null : "12")
            .apply(OutboxEvents.insert().column("payload", column, payload).record());
    assertEquals("library.note", out.topic());
    assertEquals(contentType, headers(out).get("content-type"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"ce_id", "ce_type", "content-type"})
  void rowCannotSetCloudEventsHeaders(String name) {
    SourceRecord in = OutboxEvents.insert().with("headers", "{\"" + name + "\": \"x\"}").record();
    assertEquals("x", headers(router().apply(in)).get(name), "allowed without the option");
    assertEquals(
        "headers: \"" + name + "\" is a CloudEvents header",
        headers(events().apply(in)).get("dead_letter_message"));
  }

  /** A CloudEvents library must not read the row in a dead letter as the data of the event. */
  @Test
  void deadLettersHaveNoCloudEventsHeaders() {
    SourceRecord out = events().apply(OutboxEvents.insert().payload("1").record());
    assertEquals("payload-invalid", headers(out).get("dead_letter_reason"));
    assertFalse(headers(out).containsKey("ce_id"));
  }

  @Test
  void headersCountForTheRecordSize() {
    SourceRecord in = OutboxEvents.insert().record();
    assertEquals("library.note", router("max.record.bytes", "300").apply(in).topic());
    assertEquals("library.dead-letter", events("max.record.bytes", "300").apply(in).topic());
  }
}
