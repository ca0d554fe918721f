package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.configured;
import static io.outboxkit.smt.Routers.props;
import static io.outboxkit.smt.Routers.refusal;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** What configure refuses, in its exact words. A null value stands for an option left out. */
class RouterConfigTest {
  private static final String PASS_THROUGH =
      "must be a list of transactions, schema-changes, messages, table:<schema.table>";

  private static final String AGGREGATE_KEYS =
      "aggregate.T.topic, .partitions, .partition.field, .payload.format, .unknown.fields,"
          + " .tombstone.event.types, .schema.versions, .schema.V and .schema.V.id with V one of"
          + " their versions";

  static Stream<Arguments> options() {
    return Stream.of(
        missing(
            "table",
            "Invalid value null for configuration table: required without message.prefix; name the"
                + " outbox table as schema.table"),
        invalid("message.prefix", "", "must not be empty; leave it out to route rows only"),
        invalid("table", "outbox_event", "must be schema.table, such as public.outbox_event"),
        missing(
            "aggregates",
            "Missing required configuration \"aggregates\" which has no default value."),
        arguments(
            "aggregates",
            "",
            "Invalid value [] for configuration aggregates: must list one or more aggregate types"),
        arguments(
            "aggregates",
            "note,note",
            "Invalid value [note, note] for configuration aggregates: must list each aggregate type"
                + " once"),
        invalid("source.epoch", "-1", "Value must be at least 0"),
        invalid("source.epoch", "65536", "Value must be no more than 65535"),
        invalid("source.epoch", "one", "Not a number of type INT"),
        invalid("max.record.bytes", "0", "Value must be at least 1"),
        invalid("invalid.rows", "skip", "String must be one of: dead-letter, fail"),
        invalid("snapshot.rows", "skip", "String must be one of: fail, route"),
        missing(
            "dead.letter.topic",
            "Invalid value null for configuration dead.letter.topic: required with"
                + " invalid.rows=dead-letter; name a topic or set invalid.rows=fail"),
        invalid(
            "dead.letter.topic",
            "dead letter",
            "must be a topic name: 1 to 249 letters, digits, '.', '_' and '-'"),
        invalid("pass.through", "everything", PASS_THROUGH),
        invalid("pass.through", "table:author", PASS_THROUGH),
        arguments(
            "pass.through",
            "table:public.outbox_event",
            "Invalid value [table:public.outbox_event] for configuration pass.through:"
                + " table:public.outbox_event is the outbox table itself; name other tables only"),
        invalid("table.field.event.key", "", "String must be non-empty"));
  }

  static Stream<Arguments> furtherOptions() {
    String placement = "table.fields.additional.placement";
    String syntax = "must be column:header or column:header:name of the header";
    return Stream.of(
        invalid("table.field.event.schema.version", "", "String must be non-empty"),
        invalid("table.op.invalid.behavior", "skip", "String must be one of: fatal, error, warn"),
        invalid("deleted.rows", "warn", "String must be one of: fail, ignore"),
        invalid("table.field.additional.missing", "warn", "String must be one of: error, ignore"),
        invalid(placement, "type", syntax),
        invalid(placement, "type:", syntax),
        invalid(placement, ":header", syntax),
        invalid(placement, "type:header:", syntax),
        invalid(placement, "type:header:a:b", syntax),
        invalid(placement, "type:haeder", "the placement must be header"),
        invalid(placement, "type:Header", "the placement must be header"),
        invalid(
            placement,
            "type:envelope",
            "the value is the payload alone; put the column into the payload, or use header"),
        invalid(
            placement,
            "region:partition",
            "set aggregate.T.partition.field to the column instead, whose hash picks the"
                + " partition"),
        invalid(placement, "type:header:event_type", ofTheContract("event_type")),
        invalid(placement, "source_sequence:header", ofTheContract("source_sequence")),
        invalid(placement, "why:header:dead_letter_reason", ofTheContract("dead_letter_reason")),
        arguments(
            placement,
            "a:header:x,b:header:x",
            "Invalid value [a:header:x, b:header:x] for configuration"
                + " table.fields.additional.placement: must name each header once; x is there"
                + " twice"),
        invalid("cloudevents.source", "", URI),
        invalid("cloudevents.source", "the library", URI),
        invalid("cloudevents.source", "http://[", URI));
  }

  private static final String URI =
      "must be a URI reference, such as /library or https://example.org/library";

  private static String ofTheContract(String header) {
    return header + " is a header of the contract; leave the column out, or choose another name";
  }

  /** Names that are no option: mistyped, or EventRouter's. */
  static Stream<Arguments> otherNames() {
    String topics = "not an option of OutboxRouter; set aggregate.T.topic for each aggregate type";
    return Stream.of(
        invalid(
            "invalid.row",
            "fail",
            "not an option of OutboxRouter; the options are " + OutboxRouter.CONFIG_DEF.names()),
        invalid("route.topic.replacement", "x.${routedByValue}", topics + " instead"),
        invalid("route.topic.regex", "(.*)", topics + " instead"),
        invalid(
            "table.expand.json.payload",
            "true",
            "not an option of OutboxRouter; set aggregate.T.schema.* instead: values are Avro by"
                + " declared schemas"),
        invalid(
            "route.tombstone.on.empty.payload",
            "true",
            "not an option of OutboxRouter; leave it out: SQL NULL and JSON null are always"
                + " tombstones, blank text never"),
        invalid(
            "tracing.span.context.field",
            "tracingspancontext",
            "not an option of OutboxRouter; write traceparent into the headers column, or place a"
                + " column of it with table.fields.additional.placement=traceparent:header"));
  }

  static Stream<Arguments> payloadKeys() {
    return Stream.of(
        invalid(
            "aggregate.note.payload.format",
            "protobuf",
            "must be one of: json, avro, confluent-avro, text"),
        invalid("aggregate.note.unknown.fields", "drop", "must be one of: refuse, ignore"),
        invalid(
            "aggregate.note.tombstone.event.types",
            "Gone,Gone",
            "must be a list of event types, each once"),
        invalid(
            "aggregate.note.tombstone.event.types",
            "Gone,,Away",
            "must be a list of event types, each once"));
  }

  /** Connect's own keys of a transform, and EventRouter's options that mean the same here. */
  @Test
  void theseAreOptions() {
    configured(
            props(
                "type", "x",
                "predicate", "p",
                "negate", "false",
                "plugin.version", "[0.1.0]",
                "table.fields.additional.placement", "region:header,seq:header:ce_id",
                "table.field.additional.missing", "ignore",
                "table.op.invalid.behavior", "error"))
        .close();
  }

  static Stream<Arguments> aggregateKeys() {
    return Stream.of(
        missing(
            "aggregate.note.topic",
            "Invalid value null for configuration aggregate.note.topic: required; name the topic of"
                + " this aggregate type"),
        invalid(
            "aggregate.note.topic",
            "library/note",
            "must be a topic name: 1 to 249 letters, digits, '.', '_' and '-'"),
        missing(
            "aggregate.note.partitions",
            "Invalid value null for configuration aggregate.note.partitions: required; set the"
                + " partition count of the topic, an integer above 0"),
        invalid(
            "aggregate.note.partitions",
            "0",
            "must be the partition count of the topic, an integer above 0"),
        invalid(
            "aggregate.note.partitions",
            "many",
            "must be the partition count of the topic, an integer above 0"));
  }

  static Stream<Arguments> schemaKeys() {
    return Stream.of(
        missing(
            "aggregate.note.schema.versions",
            "Invalid value null for configuration aggregate.note.schema.versions: required; list"
                + " the schema versions, newest first, such as 2,1"),
        invalid("aggregate.note.schema.versions", "1,1", "must list each version once"),
        invalid(
            "aggregate.note.schema.versions",
            "1.0",
            "a label may have letters, digits, _ and - only, and not be versions"),
        arguments(
            "aggregate.note.schema.versions",
            "2,1",
            "Invalid value null for configuration aggregate.note.schema.2: required; set the Avro"
                + " schema of this version as JSON text"),
        missing(
            "aggregate.note.schema.1.id",
            "Invalid value null for configuration aggregate.note.schema.1.id: required; set the"
                + " registry's id of this schema, an integer of 0 or more"),
        invalid(
            "aggregate.note.schema.1.id",
            "(known after apply)",
            "must be the registry's id of this schema, an integer of 0 or more"),
        arguments(
            "aggregate.note.schema.1",
            "{\"type\":\"fixed\",\"name\":\"F\",\"size\":2,"
                + "\"logicalType\":\"decimal\",\"precision\":9,\"scale\":2}",
            "Invalid value"
                + " {\"type\":\"fixed\",\"name\":\"F\",\"size\":2,\"logicalType\":\"decimal\",..."
                + " for configuration aggregate.note.schema.1: must be an Avro schema as JSON text:"
                + " logical type decimal is not valid on fixed: fixed(2) cannot store 9 digits (max"
                + " 4)"),
        invalid(
            "aggregate.note.partition",
            "region",
            "not an option of any of the aggregates [note]; theirs are " + AGGREGATE_KEYS),
        invalid(
            "aggregate.author.topic",
            "library.author",
            "not an option of any of the aggregates [note]; theirs are " + AGGREGATE_KEYS));
  }

  private static Arguments missing(String name, String message) {
    return arguments(name, null, message);
  }

  private static Arguments invalid(String name, String value, String why) {
    return arguments(
        name, value, "Invalid value " + value + " for configuration " + name + ": " + why);
  }

  @ParameterizedTest
  @MethodSource({
    "options",
    "furtherOptions",
    "otherNames",
    "payloadKeys",
    "aggregateKeys",
    "schemaKeys"
  })
  void misconfigurationIsRefused(String name, String value, String message) {
    Map<String, String> props = props();
    if (value == null) {
      props.remove(name);
    } else {
      props.put(name, value);
    }
    assertEquals(message, refusal(props));
  }

  static Stream<String> brokenSchemas() {
    return Stream.of(
        "not json",
        "{\"type\":\"record\"}",
        "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\","
            + "\"default\":\"x\"}]}",
        "{\"type\":\"bytes\",\"logicalType\":\"decimal\"}",
        "{\"type\":\"string\",\"logicalType\":\"date\"}",
        "\"unknown.Name\"");
  }

  @ParameterizedTest
  @MethodSource("brokenSchemas")
  void schemasThatDoNotParseAreRefused(String schema) {
    String message = refusal(props("aggregate.note.schema.1", schema));
    assertTrue(
        message.contains("aggregate.note.schema.1: must be an Avro schema as JSON text: "),
        message);
  }

  /** {@code a} with version {@code topic} and {@code a.schema} would share a key. */
  @Test
  void keysThatTwoAggregatesShareAreRefused() {
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
    assertEquals(
        "Invalid value t for configuration aggregate.a.schema.topic: belongs to two of the"
            + " aggregates; rename one of them",
        refusal(props));
  }

  @Test
  void deadLetterTopicIsNotNeededToFail() {
    Map<String, String> props = props("invalid.rows", "fail");
    props.remove("dead.letter.topic");
    configured(props).close();
  }

  /** Connect hands over the key {@code type} of the transform, and values of any class in tests. */
  @Test
  void otherKeysAndNumbersAreTaken() {
    Map<String, Object> props = new HashMap<>(props("type", OutboxRouter.class.getName()));
    props.put("aggregate.note.partitions", 12);
    props.put("source.epoch", 7);
    new OutboxRouter<>().configure(props);
  }

  @Test
  void configIsTheConstant() {
    assertSame(OutboxRouter.CONFIG_DEF, new OutboxRouter<>().config());
  }
}
