package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** JSON text to Structs of declared schemas. The values themselves: ConverterAgreesTest. */
class ParsePayloadTest {
  private static Map<String, String> props(String... more) {
    Map<String, String> props = new HashMap<>();
    props.put("aggregates", "note");
    props.put("aggregate.note.schema.versions", "2,1");
    props.put("aggregate.note.schema.2", Routers.NOTE_V2);
    props.put("aggregate.note.schema.1", Routers.NOTE_V1);
    for (int i = 0; i < more.length; i += 2) {
      props.put(more[i], more[i + 1]);
    }
    return props;
  }

  private static ParsePayload<SourceRecord> parse(String... more) {
    ParsePayload<SourceRecord> transform = new ParsePayload<>();
    transform.configure(props(more));
    return transform;
  }

  @Test
  void newestVersionThatAcceptsThePayloadParsesIt() {
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

  /** Converters cache by schema: a new object for each record would fill or miss the cache. */
  @Test
  void schemaIsTheSameObjectEveryTime() {
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
  void fieldsAreFoundWhereTheOptionsSay() {
    SourceRecord record =
        Rows.row()
            .withoutHeaders()
            .column("kind", Schema.STRING_SCHEMA, "note")
            .header("json", "{\"text\": \"x\"}")
            .record();
    SourceRecord parsed = parse("field", "header.json", "type.field", "value.kind").apply(record);
    assertEquals("Struct{text=x}", parsed.value().toString());
  }

  static Stream<Arguments> refusedRecords() {
    String fits =
        "Field value.payload on topic library.note fits no schema version of its aggregate type [2,"
            + " 1]; by version 2, ";
    return Stream.of(
        arguments(
            Rows.row().payload("{\"text\": 1}"), fits + "text: expected string, found number"),
        arguments(
            Rows.row().payload("{\"text\": \"secret\", \"more\": 1}"),
            fits + "payload: unknown field \"more\", record Note has none of that name"),
        arguments(
            Rows.row().payload("secret"),
            fits + "payload: not readable as JSON at line 1, column 1"),
        arguments(Rows.row().payload("null"), fits + "payload: expected record Note, found null"),
        arguments(
            Rows.row().payload(null),
            "Field value.payload on topic library.note is null; make tombstones before, with"
                + " SetTombstone."),
        arguments(
            Rows.row().column("payload", Schema.BYTES_SCHEMA, new byte[1]),
            "Field value.payload on topic library.note is of type byte[], not JSON text."),
        arguments(
            Rows.row().withoutHeaders(),
            "Field header.aggregate_type on topic library.note is null, which is not in"
                + " aggregates."),
        arguments(
            Rows.row().header("aggregate_type", "book"),
            "Field header.aggregate_type on topic library.note is \"book\", which is not in"
                + " aggregates."));
  }

  @ParameterizedTest
  @MethodSource("refusedRecords")
  void rowsThatFitNothingAreRefusedWithoutBeingPrinted(Rows row, String message) {
    SourceRecord record = row.record();
    String words = assertThrows(DataException.class, () -> parse().apply(record)).getMessage();
    assertEquals(message, words);
    assertFalse(words.contains("secret"));
  }

  static Stream<Arguments> misconfigurations() {
    return Stream.of(
        arguments(
            "aggregates",
            null,
            "Missing required configuration \"aggregates\" which has no default value."),
        arguments(
            "aggregates",
            "note,note",
            "Invalid value [note, note] for configuration aggregates: must list each aggregate type"
                + " once"),
        arguments(
            "field",
            "payload",
            "Invalid value payload for configuration field: must be key, key.field, value,"
                + " value.field, or header.name"),
        arguments(
            "aggregate.note.schema.versions",
            null,
            "Invalid value null for configuration aggregate.note.schema.versions: required; list"
                + " the schema versions, newest first, such as 2,1"),
        arguments(
            "aggregate.note.schema.versions",
            "1,1",
            "Invalid value"
                + " {\"type\":\"record\",\"name\":\"Note\",\"fields\":[{\"name\":\"text\",\"typ..."
                + " for configuration aggregate.note.schema.1: named twice; each version and key"
                + " once"),
        arguments(
            "aggregate.note.schema.versions",
            "new",
            "Invalid value new for configuration aggregate.note.schema.versions: a version must be"
                + " an integer above 0"),
        arguments(
            "aggregate.note.schema.1",
            null,
            "Invalid value null for configuration aggregate.note.schema.1: required; set the Avro"
                + " schema of this version as JSON text"),
        arguments(
            "aggregate.note.schema.1",
            "\"string\"",
            "Invalid value \"string\" for configuration aggregate.note.schema.1: must be the Avro"
                + " schema of a record as JSON text: a payload has to be a record"),
        arguments(
            "aggregate.note.schema.1.id",
            "7",
            "Invalid value 7 for configuration aggregate.note.schema.1.id: not an option of any of"
                + " the aggregates [note]; theirs are aggregate.T.schema.versions and .schema.V"
                + " with V one of their versions"));
  }

  @ParameterizedTest
  @MethodSource("misconfigurations")
  void misconfigurationIsRefused(String name, String value, String message) {
    Map<String, String> props = props();
    props.put(name, value);
    props.values().removeIf(text -> text == null);
    ParsePayload<SourceRecord> transform = new ParsePayload<>();
    assertEquals(
        message,
        assertThrows(ConfigException.class, () -> transform.configure(props)).getMessage());
  }
}
