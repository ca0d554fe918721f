package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import io.debezium.transforms.outbox.EventRouter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The transforms for chains, applied after Debezium's EventRouter. */
class AfterEventRouterTest {
  private static final String[] PARTITION_COUNTS = {
    "topic.partitions", "library.note:7", "partitions", "3"
  };

  private static SourceRecord routed(OutboxEvents event, String... more) {
    Map<String, String> props = new HashMap<>();
    props.put("table.field.event.key", "aggregate_id");
    props.put("route.by.field", "aggregate_type");
    props.put("route.topic.replacement", "library.${routedByValue}");
    props.put(
        "table.fields.additional.placement",
        "event_type:header,aggregate_type:header,region:header");
    return with(new EventRouter<>(), props, more).apply(event.record());
  }

  private static OutboxEvents event() {
    return OutboxEvents.insert().column("region", Schema.STRING_SCHEMA, "eu");
  }

  private static SetPartition<SourceRecord> setPartition(String field) {
    return with(new SetPartition<>(), new HashMap<>(Map.of("field", field)), PARTITION_COUNTS);
  }

  private static SetTombstone<SourceRecord> setTombstone(String... props) {
    return with(new SetTombstone<>(), new HashMap<>(), props);
  }

  private static <T extends Transformation<SourceRecord>> T with(
      T transform, Map<String, String> props, String... more) {
    transform.configure(Routers.with(props, more));
    return transform;
  }

  private static int kafkaPartition(String key) {
    return BuiltInPartitioner.partitionForKey(key.getBytes(StandardCharsets.UTF_8), 7);
  }

  static Stream<Arguments> paths() {
    return Stream.of(arguments("key", "note-1"), arguments("header.region", "eu"));
  }

  /** Records with a value, tombstones of EventRouter, and of SetTombstone before or after. */
  @ParameterizedTest
  @MethodSource("paths")
  void setPartitionIsTheSameForValuesAndTombstones(String path, String text) {
    SetPartition<SourceRecord> setPartition = setPartition(path);
    SetTombstone<SourceRecord> setTombstone = setTombstone("payload.field", "value");
    SourceRecord withValue = routed(event());
    SourceRecord tombstone =
        routed(event().payload(null), "route.tombstone.on.empty.payload", "true");
    SourceRecord jsonNull = routed(event().payload("null"));
    for (SourceRecord partitioned :
        List.of(
            setPartition.apply(withValue),
            setPartition.apply(tombstone),
            setPartition.apply(setTombstone.apply(jsonNull)),
            setTombstone.apply(setPartition.apply(jsonNull)))) {
      assertEquals(kafkaPartition(text), partitioned.kafkaPartition());
    }
  }

  @Test
  void setPartitionReadsExpandedPayloads() {
    SourceRecord record =
        routed(
            event().payload("{\"shelf\": {\"id\": \"a7\"}}"), "table.expand.json.payload", "true");
    assertEquals(
        kafkaPartition("a7"), setPartition("value.shelf.id").apply(record).kafkaPartition());
  }

  @Test
  void setPartitionFailsOnTheValueOfATombstone() {
    SourceRecord tombstone =
        routed(event().payload(null), "route.tombstone.on.empty.payload", "true");
    assertFails(setPartition("value.shelf.id"), tombstone, "value.shelf.id", "tombstone");
  }

  static Stream<Arguments> tombstones() {
    return Stream.of(
        arguments(routed(event().payload(null)), new String[] {"payload.field", "value"}),
        arguments(routed(event().payload("null")), new String[] {"payload.field", "value"}),
        arguments(
            routed(event().with("event_type", "NoteDeleted")),
            new String[] {"type.field", "header.event_type", "types", "NoteDeleted"}));
  }

  /** EventRouter keeps the schema of the first, and the text null as value of the second. */
  @ParameterizedTest
  @MethodSource("tombstones")
  void setTombstoneRemovesValueAndSchema(SourceRecord record, String... props) {
    SourceRecord tombstone = setTombstone(props).apply(record);
    assertNull(tombstone.value());
    assertNull(tombstone.valueSchema());
    assertEquals("note-1", tombstone.key());
    assertEquals(OutboxEvents.ID, tombstone.headers().lastWithName("id").value());
  }

  @Test
  void parsePayloadParsesTextOfEventRouter() {
    ParsePayload<SourceRecord> parse =
        with(
            new ParsePayload<>(),
            new HashMap<>(),
            "field",
            "value",
            "aggregates",
            "note",
            "aggregate.note.schema.versions",
            "1",
            "aggregate.note.schema.1",
            Routers.NOTE_V1);
    SourceRecord parsed = parse.apply(routed(event()));
    assertEquals("hello", ((Struct) parsed.value()).getString("text"));
    assertEquals("Note", parsed.valueSchema().name());
  }
}
