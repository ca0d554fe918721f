package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.configured;
import static io.outboxkit.smt.Routers.props;
import static io.outboxkit.smt.Routers.refusal;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Options that are right by themselves and not together. A null value stands for one left out. */
class RouterConflictsTest {
  static Stream<Arguments> combinations() {
    String format = "aggregate.note.payload.format";
    return Stream.of(
        arguments(
            new String[] {format, "text", "aggregate.note.schema.1", null},
            "Invalid value 16909060 for configuration aggregate.note.schema.1.id:"
                + " payload.format=text has no schema; leave it out, or set payload.format=json"),
        arguments(
            Routers.twoVersions(format, "avro"),
            "Invalid value 2,1 for configuration aggregate.note.schema.versions: an Avro body does"
                + " not say which version it is of; with payload.format=avro list one version, or"
                + " set table.field.event.schema.version"),
        arguments(
            new String[] {format, "avro", "aggregate.note.unknown.fields", "ignore"},
            "Invalid value ignore for configuration aggregate.note.unknown.fields: only"
                + " payload.format=json has fields to look for; leave it out"),
        arguments(
            new String[] {format, "avro", "message.prefix", "outbox"},
            "Invalid value avro for configuration aggregate.note.payload.format: messages hold"
                + " JSON; use json or text, or no messages"),
        arguments(
            new String[] {
              "aggregates", "note,page",
              "aggregate.page.topic", "p",
              "aggregate.page.partitions", "1",
              "aggregate.page.payload.format", "confluent-avro",
              "aggregate.page.schema.versions", "1",
              "aggregate.page.schema.1", "\"string\"",
              "aggregate.page.schema.1.id", "1"
            },
            "Invalid value confluent-avro for configuration aggregate.page.payload.format: the"
                + " payload column cannot be bytea for one aggregate and text for another; use"
                + " json and text, or avro and confluent-avro"),
        arguments(
            new String[] {format, "avro", "aggregate.note.schema.1.id", null},
            "Invalid value null for configuration aggregate.note.schema.1.id: required; set the"
                + " registry's id of this schema, an integer of 0 or more"),
        arguments(
            new String[] {
              "cloudevents.source", "/x", "table.fields.additional.placement", "s:header:ce_source"
            },
            "Invalid value [s:header:ce_source] for configuration"
                + " table.fields.additional.placement: ce_source is a header of CloudEvents; choose"
                + " another name"));
  }

  static Stream<Arguments> conflicts() {
    return Stream.of(
        arguments(
            new String[] {"dead.letter.topic", "library.note"},
            "Invalid value library.note for configuration dead.letter.topic: is also"
                + " aggregate.note.topic; name a topic of its own for dead letters"),
        arguments(
            Routers.twoVersions("aggregate.note.schema.1.id", "12"),
            "Invalid value 12 for configuration aggregate.note.schema.1.id: is also"
                + " aggregate.note.schema.2.id, of another schema; set each schema's own"),
        arguments(
            page("library.page", "12", Routers.NOTE_V2),
            "Invalid value 16909060 for configuration aggregate.page.schema.7.id: is also"
                + " aggregate.note.schema.1.id, of another schema; set each schema's own"),
        arguments(
            page("library.note", "6", Routers.NOTE_V1),
            "Invalid value 6 for configuration aggregate.page.partitions:"
                + " aggregate.note.partitions is 12 for the same topic; set both to its partition"
                + " count"));
  }

  /** A second aggregate whose schema has the id of the first one's. */
  private static String[] page(String topic, String partitions, String schema) {
    return new String[] {
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
  }

  /** Aggregates may share a topic, and equal schemas have one id in a registry. */
  @Test
  void whatIsEqualMayBeShared() {
    configured(props(page("library.note", "12", " " + Routers.NOTE_V1))).close();
    configured(props("invalid.rows", "fail", "dead.letter.topic", "library.note")).close();
  }

  @ParameterizedTest
  @MethodSource({"combinations", "conflicts"})
  void whatDoesNotGoTogetherIsRefused(String[] more, String message) {
    assertEquals(message, refusal(props(more)));
  }
}
