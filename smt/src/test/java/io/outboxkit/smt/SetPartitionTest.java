package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Errors.assertRejected;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Fields, partition counts and errors. PartitionPropertyTest compares the partitions. */
class SetPartitionTest {
  private static SetPartition<SourceRecord> setPartition(String... props) {
    SetPartition<SourceRecord> transform = new SetPartition<>();
    transform.configure(Routers.with(new HashMap<>(), props));
    return transform;
  }

  @Test
  void onlyThePartitionChanges() {
    SourceRecord record = Rows.row().record();
    SourceRecord partitioned = setPartition("partitions", "12").apply(record);
    assertNull(record.kafkaPartition());
    assertEquals(record.topic(), partitioned.topic());
    assertSame(record.key(), partitioned.key());
    assertSame(record.keySchema(), partitioned.keySchema());
    assertSame(record.value(), partitioned.value());
    assertSame(record.valueSchema(), partitioned.valueSchema());
    assertEquals(record.timestamp(), partitioned.timestamp());
    assertEquals(record.headers(), partitioned.headers());
  }

  /** Paths into key and headers give the same partition before and after SetTombstone. */
  @ParameterizedTest
  @MethodSource("pathsOutsideTheValue")
  void tombstonesHaveThePartitionOfTheirKey(String path, Rows row) {
    SetPartition<SourceRecord> setPartition = setPartition("field", path, "partitions", "97");
    SetTombstone<SourceRecord> setTombstone = new SetTombstone<>();
    setTombstone.configure(Map.of("payload.field", "value.payload"));
    Integer expected = setPartition.apply(row.record()).kafkaPartition();
    SourceRecord nullPayload = row.payload(null).record();
    SourceRecord partitionFirst = setTombstone.apply(setPartition.apply(nullPayload));
    SourceRecord tombstoneFirst = setPartition.apply(setTombstone.apply(nullPayload));
    assertEquals(expected, partitionFirst.kafkaPartition());
    assertEquals(expected, tombstoneFirst.kafkaPartition());
    assertNull(partitionFirst.value());
    assertNull(tombstoneFirst.value());
  }

  static Stream<Arguments> pathsOutsideTheValue() {
    Schema schema = SchemaBuilder.struct().field("id", Schema.INT64_SCHEMA).build();
    Struct struct = new Struct(schema).put("id", 7L);
    return Stream.of(
        arguments("key", Rows.row()),
        arguments("header.aggregate_type", Rows.row()),
        arguments("key.id", Rows.row().key(schema, struct)),
        arguments("key.id", Rows.row().key(null, Map.of("id", 7L))),
        arguments("header.h", Rows.row().header("h", ByteBuffer.wrap(new byte[] {1, 2}))));
  }

  @Test
  void topicsCanHaveDifferentPartitionCounts() {
    String counts = "library.note:7,library.book:11";
    SourceRecord record = Rows.row().record();
    assertEquals(
        KafkaPartition.of("note-1", 7),
        setPartition("topic.partitions", counts, "partitions", "3").apply(record).kafkaPartition());
    assertEquals(
        KafkaPartition.of("note-1", 3),
        setPartition("topic.partitions", "library.book:11", "partitions", "3")
            .apply(record)
            .kafkaPartition());
  }

  static Stream<Arguments> failures() {
    return Stream.of(
        arguments(Rows.row().tombstone(), "value.payload", "tombstone"),
        arguments(Rows.row().payload(null).record(), "value.payload", "null"),
        arguments(Rows.row().key(null, null).record(), "key", "null"),
        arguments(Rows.row().header("h", new BigDecimal("1.5")).record(), "header.h", "BigDecimal"),
        arguments(Rows.row().record(), "value", "Struct library.public.outbox_event.Value"));
  }

  @ParameterizedTest
  @MethodSource("failures")
  void recordsWithoutAPartitionFail(SourceRecord record, String field, String detail) {
    assertFails(
        setPartition("field", field, "partitions", "3"),
        record,
        "Field " + field + " on topic library.note",
        detail);
  }

  @Test
  void topicWithoutAPartitionCountFails() {
    assertFails(
        setPartition("topic.partitions", "library.book:3"),
        Rows.row().record(),
        "library.note",
        "topic.partitions");
  }

  @Test
  void schemalessValuesAreRead() {
    SourceRecord record =
        Rows.row().column("region", Schema.STRING_SCHEMA, "eu").schemaless().record();
    assertEquals(
        KafkaPartition.of("eu", 5),
        setPartition("field", "value.region", "partitions", "5").apply(record).kafkaPartition());
  }

  @ParameterizedTest
  @CsvSource({
    "partitions, 0, 0",
    "partitions, many, many",
    "field, payload, payload",
    "topic.partitions, a, [a]",
    "topic.partitions, a:0, 0",
    "topic.partitions, a:b, b",
    "topic.partitions, 'a:1,a:2', '[a:1, a:2]'"
  })
  void invalidOptionsAreRejected(String option, String value, String reported) {
    assertRejected(option, reported, () -> setPartition("partitions", "1", option, value));
  }

  @Test
  void partitionCountIsRequired() {
    assertRejected("partitions", null, () -> setPartition());
  }

  /** Kafka's partitioner for a text key. */
  private static final class KafkaPartition {
    static int of(String key, int partitions) {
      byte[] bytes = new StringSerializer().serialize("t", key);
      return BuiltInPartitioner.partitionForKey(bytes, partitions);
    }
  }
}
