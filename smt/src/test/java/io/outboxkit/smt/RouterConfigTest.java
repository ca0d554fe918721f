package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertRejected;
import static io.outboxkit.smt.Routers.NOTE_V1;
import static io.outboxkit.smt.Routers.NOTE_V2;
import static io.outboxkit.smt.Routers.configured;
import static io.outboxkit.smt.Routers.props;
import static io.outboxkit.smt.Routers.twoVersions;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Options of OutboxRouter that are rejected, individually or in combination. */
class RouterConfigTest {
  private static final String FORMAT = "aggregate.note.payload.format";
  private static final String PLACEMENT = "table.fields.additional.placement";

  @ParameterizedTest
  @ValueSource(
      strings = {
        "table",
        "aggregates",
        "dead.letter.topic",
        "aggregate.note.topic",
        "aggregate.note.partitions",
        "aggregate.note.schema.versions",
        "aggregate.note.schema.1",
        "aggregate.note.schema.1.id"
      })
  void missingOptionIsRejected(String option) {
    Map<String, String> props = props();
    props.remove(option);
    assertRejected(option, null, () -> configured(props));
  }

  @ParameterizedTest
  @CsvSource({
    "message.prefix, ''",
    "table, outbox_event",
    "table, .outbox_event",
    "source.epoch, -1",
    "source.epoch, 65536",
    "source.epoch, one",
    "max.record.bytes, 0",
    "invalid.rows, skip",
    "snapshot.rows, skip",
    "dead.letter.topic, dead letter",
    "dead.letter.topic, ..",
    "table.field.event.key, ''",
    "table.field.event.schema.version, ''",
    "table.op.invalid.behavior, skip",
    "deleted.rows, warn",
    "table.field.additional.missing, warn",
    "cloudevents.source, ''",
    "cloudevents.source, the library",
    "cloudevents.source, http://[",
    "aggregate.note.topic, library/note",
    "aggregate.note.topic, .",
    "aggregate.note.partitions, 0",
    "aggregate.note.partitions, many",
    "aggregate.note.schema.1.id, -1",
    "aggregate.note.schema.1.id, (known after apply)",
    "aggregate.note.payload.format, protobuf",
    "aggregate.note.unknown.fields, drop",
    "aggregate.note.partition, region",
    "aggregate.author.topic, library.author",
    "invalid.row, fail"
  })
  void invalidValueIsRejected(String option, String value) {
    assertRejected(option, value, () -> configured(props(option, value)));
  }

  /** Lists appear with brackets in the message. */
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "aggregates | ''",
        "aggregates | note, note",
        "aggregates | note, , page",
        "pass.through | everything",
        "pass.through | table:author",
        "pass.through | table:public.outbox_event",
        "table.fields.additional.placement | a:header:x, b:header:x",
        "aggregate.note.schema.versions | 1.0",
        "aggregate.note.schema.versions | versions",
        "aggregate.note.tombstone.event.types | Gone, Gone",
        "aggregate.note.tombstone.event.types | Gone, , Away"
      })
  void invalidListIsRejected(String option, String value) {
    assertRejected(option, "[" + value + "]", () -> configured(props(option, value)));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "type",
        "type:",
        ":header",
        "type:header:",
        "type:header:a:b",
        "type:haeder",
        "type:Header",
        "type:envelope",
        "region:partition",
        "type:header:event_type",
        "source_sequence:header",
        "reason:header:dead_letter_reason"
      })
  void invalidPlacementIsRejected(String entry) {
    assertRejected(PLACEMENT, entry, () -> configured(props(PLACEMENT, entry)));
  }

  @Test
  void emptyPlacementIsRejected() {
    assertRejected(PLACEMENT, "[]", () -> configured(props(PLACEMENT, "")));
  }

  @Test
  void duplicateVersionIsRejected() {
    assertRejected(
        "aggregate.note.schema.1",
        NOTE_V1.substring(0, 60) + "...",
        () -> configured(props("aggregate.note.schema.versions", "1,1")));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "not json",
        "{\"type\":\"record\"}",
        "{\"type\":\"bytes\",\"logicalType\":\"decimal\"}",
        "{\"type\":\"string\",\"logicalType\":\"date\"}",
        "\"unknown.Name\""
      })
  void invalidSchemaIsRejected(String schema) {
    String option = "aggregate.note.schema.1";
    assertRejected(option, schema, () -> configured(props(option, schema)));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\","
            + "\"default\":\"x\"}]}",
        "{\"type\":\"fixed\",\"name\":\"F\",\"size\":2,\"logicalType\":\"decimal\","
            + "\"precision\":9,\"scale\":2}"
      })
  void longInvalidSchemaIsAbbreviated(String schema) {
    String option = "aggregate.note.schema.1";
    assertRejected(
        option, schema.substring(0, 60) + "...", () -> configured(props(option, schema)));
  }

  static Stream<Arguments> conflicts() {
    return Stream.of(
        conflict("aggregate.note.schema.1", NOTE_V1.substring(0, 60) + "...", FORMAT, "text"),
        conflict("aggregate.note.schema.versions", "2, 1", twoVersions(FORMAT, "avro")),
        conflict(
            "aggregate.note.unknown.fields",
            "refuse",
            FORMAT,
            "avro",
            "aggregate.note.unknown.fields",
            "refuse"),
        conflict(FORMAT, "avro", FORMAT, "avro", "message.prefix", "outbox"),
        conflict("aggregate.note.schema.1", NOTE_V1.substring(0, 60) + "...", FORMAT, "bytes"),
        conflict(
            "aggregate.page.payload.format",
            "confluent-avro",
            page("p", "1", NOTE_V1, "aggregate.page.payload.format", "confluent-avro")),
        conflict(
            PLACEMENT,
            "[s:header:ce_source]",
            "cloudevents.source",
            "/x",
            PLACEMENT,
            "s:header:ce_source"),
        conflict("dead.letter.topic", "library.note", "dead.letter.topic", "library.note"),
        conflict(
            "aggregate.note.schema.1.id", "12", twoVersions("aggregate.note.schema.1.id", "12")),
        conflict(
            "aggregate.page.schema.7.id",
            Integer.toString(Routers.NOTE_V1_ID),
            page("library.page", "12", NOTE_V2)),
        conflict("aggregate.page.partitions", "6", page("library.note", "6", NOTE_V1)));
  }

  private static Arguments conflict(String option, String value, String... props) {
    return arguments(option, value, props);
  }

  /** A second aggregate whose schema id is that of {@code note}. */
  private static String[] page(String topic, String partitions, String schema, String... more) {
    String[] page = {
      "aggregates",
      "note,page",
      "aggregate.page.topic",
      topic,
      "aggregate.page.partitions",
      partitions,
      "aggregate.page.schema.versions",
      "7",
      "aggregate.page.schema.7",
      schema,
      "aggregate.page.schema.7.id",
      Integer.toString(Routers.NOTE_V1_ID)
    };
    return Routers.concat(page, more);
  }

  @ParameterizedTest
  @MethodSource("conflicts")
  void conflictingOptionsAreRejected(String option, String value, String[] props) {
    assertRejected(option, value, () -> configured(props(props)));
  }

  /** Aggregates can share a topic, and equal schemas have the same id in a registry. */
  @Test
  void aggregatesCanShareTopicAndSchema() {
    configured(props(page("library.note", "12", " " + NOTE_V1))).close();
    configured(props("invalid.rows", "fail", "dead.letter.topic", "library.note")).close();
  }

  /** Type {@code a} with version {@code topic} and type {@code a.schema} have a common key. */
  @Test
  void keyOfTwoAggregatesIsRejected() {
    Map<String, String> props =
        props(
            "aggregates", "a.schema,a",
            "aggregate.a.schema.topic", "t",
            "aggregate.a.schema.partitions", "1",
            "aggregate.a.schema.schema.versions", "1",
            "aggregate.a.schema.schema.1", "\"string\"",
            "aggregate.a.schema.schema.1.id", "1",
            "aggregate.a.topic", "t",
            "aggregate.a.partitions", "1",
            "aggregate.a.schema.versions", "topic");
    assertRejected("aggregate.a.schema.topic", "t", () -> configured(props));
  }

  /** Keys of Connect, and options of EventRouter with the same meaning. */
  @Test
  void supportedOptionsAreAccepted() {
    configured(
            props(
                "type",
                "x",
                "predicate",
                "p",
                "negate",
                "false",
                "plugin.version",
                "[0.1.0]",
                PLACEMENT,
                " region : header , seq:header: ce_id ",
                "table.field.additional.missing",
                "ignore",
                "table.op.invalid.behavior",
                "error"))
        .close();
  }

  @Test
  void deadLetterTopicIsOptionalWithFail() {
    configured(props("invalid.rows", "fail", "dead.letter.topic", null)).close();
  }

  @Test
  void numbersAreAccepted() {
    Map<String, Object> props = new HashMap<>(props("type", OutboxRouter.class.getName()));
    props.put("aggregate.note.partitions", 12);
    props.put("source.epoch", 7);
    new OutboxRouter<>().configure(props);
  }
}
