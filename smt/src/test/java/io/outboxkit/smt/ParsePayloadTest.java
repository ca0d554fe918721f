package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Errors.assertRejected;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** ParsePayload: schema versions, errors and options. ConverterAgreesTest compares the values. */
class ParsePayloadTest {
  private static Map<String, String> props(String... more) {
    Map<String, String> props =
        Map.of(
            "aggregates",
            "note",
            "aggregate.note.schema.versions",
            "2,1",
            "aggregate.note.schema.2",
            Routers.NOTE_V2,
            "aggregate.note.schema.1",
            Routers.NOTE_V1);
    return Routers.with(new HashMap<>(props), more);
  }

  private static ParsePayload<SourceRecord> parse(String... more) {
    ParsePayload<SourceRecord> transform = new ParsePayload<>();
    transform.configure(props(more));
    return transform;
  }

  @Test
  void latestVersionThatAcceptsThePayloadIsUsed() {
    ParsePayload<SourceRecord> parse = parse();
    Struct newer =
        (Struct)
            parse.apply(Rows.row().payload("{\"stars\": 3, \"text\": \"a\"}").record()).value();
    Struct older = (Struct) parse.apply(Rows.row().payload("{\"text\": \"b\"}").record()).value();
    assertEquals(2, newer.schema().version());
    assertEquals("Struct{text=a,stars=3}", newer.toString());
    assertEquals(1, older.schema().version());
    assertEquals("Struct{text=b}", older.toString());
  }

  /** Converters cache by schema: a new object for each record would miss the cache. */
  @Test
  void schemaIsTheSameObjectForEveryRecord() {
    ParsePayload<SourceRecord> parse = parse();
    assertSame(
        parse.apply(Rows.row().record()).valueSchema(),
        parse.apply(Rows.row().record()).valueSchema());
  }

  @Test
  void onlyTheValueChanges() {
    SourceRecord record = Rows.row().record();
    SourceRecord parsed = parse().apply(record);
    assertEquals(record.topic(), parsed.topic());
    assertSame(record.key(), parsed.key());
    assertSame(record.keySchema(), parsed.keySchema());
    assertEquals(record.timestamp(), parsed.timestamp());
    assertEquals(record.headers(), parsed.headers());
    assertSame(parsed.valueSchema(), ((Struct) parsed.value()).schema());
    assertEquals("library.public.outbox_event.Value", record.valueSchema().name());
  }

  @Test
  void tombstonesPass() {
    SourceRecord tombstone = Rows.row().tombstone();
    assertSame(tombstone, parse().apply(tombstone));
  }

  @Test
  void fieldsCanBeConfigured() {
    SourceRecord record =
        Rows.row()
            .withoutHeaders()
            .column("kind", Schema.STRING_SCHEMA, "note")
            .header("json", "{\"text\": \"x\"}")
            .record();
    SourceRecord parsed = parse("field", "header.json", "type.field", "value.kind").apply(record);
    assertEquals("Struct{text=x}", parsed.value().toString());
  }

  static Stream<Arguments> failures() {
    return Stream.of(
        arguments(Rows.row().payload("{\"text\": 1}"), "text: expected string, found number"),
        arguments(
            Rows.row().payload("{\"text\": \"secret\", \"more\": 1}"), "unknown field \"more\""),
        arguments(Rows.row().payload("secret"), "not valid JSON at line 1, column 1"),
        arguments(Rows.row().payload("null"), "expected record Note, found null"),
        arguments(Rows.row().payload(null), "Field value.payload on topic library.note is null"),
        arguments(Rows.row().column("payload", Schema.BYTES_SCHEMA, new byte[1]), "type byte[]"),
        arguments(Rows.row().withoutHeaders(), "Field header.aggregate_type"),
        arguments(Rows.row().header("aggregate_type", "book"), "\"book\""));
  }

  @ParameterizedTest
  @MethodSource("failures")
  void invalidRowsFailWithoutTheirValues(Rows row, String detail) {
    String message = assertFails(parse(), row.record());
    assertTrue(message.contains(detail) && message.contains("topic library.note"), message);
    assertFalse(message.contains("secret"));
  }

  @Test
  void failureNamesTheVersions() {
    SourceRecord record = Rows.row().payload("{}").record();
    assertFails(parse(), record, "schema versions [2, 1] of its aggregate type", "with version 2");
  }

  static Stream<Arguments> invalidOptions() {
    return Stream.of(
        arguments("aggregates", null, "aggregates", null),
        arguments("aggregates", "note,note", "aggregates", "[note, note]"),
        arguments("field", "payload", "field", "payload"),
        arguments("aggregate.note.schema.versions", null, "aggregate.note.schema.versions", null),
        arguments(
            "aggregate.note.schema.versions",
            "1,1",
            "aggregate.note.schema.1",
            Routers.NOTE_V1.substring(0, 60) + "..."),
        arguments(
            "aggregate.note.schema.versions", "new", "aggregate.note.schema.versions", "[new]"),
        arguments("aggregate.note.schema.1", null, "aggregate.note.schema.1", null),
        arguments("aggregate.note.schema.1", "\"string\"", "aggregate.note.schema.1", "\"string\""),
        arguments("aggregate.note.schema.1.id", "7", "aggregate.note.schema.1.id", "7"));
  }

  @ParameterizedTest
  @MethodSource("invalidOptions")
  void invalidOptionsAreRejected(String name, String value, String option, String reported) {
    assertRejected(option, reported, () -> parse(name, value));
  }
}
