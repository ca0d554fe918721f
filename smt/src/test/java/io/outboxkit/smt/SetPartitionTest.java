package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Which field places a record, among how many partitions, and in which words it does not. That the
 * partition is that of Kafka's producer: PartitionPropertyTest.
 */
class SetPartitionTest {
  private static SetPartition<SourceRecord> setPartition(String... props) {
    Map<String, String> all = new HashMap<>();
    for (int i = 0; i < props.length; i += 2) {
      all.put(props[i], props[i + 1]);
    }
    SetPartition<SourceRecord> transform = new SetPartition<>();
    transform.configure(all);
    return transform;
  }

  @Test
  void onlyThePartitionChanges() {
    SourceRecord record = Rows.row().record();
    SourceRecord placed = setPartition("partitions", "12").apply(record);
    assertNull(record.kafkaPartition());
    assertEquals(record.topic(), placed.topic());
    assertSame(record.key(), placed.key());
    assertSame(record.keySchema(), placed.keySchema());
    assertSame(record.value(), placed.value());
    assertSame(record.valueSchema(), placed.valueSchema());
    assertEquals(record.timestamp(), placed.timestamp());
    assertEquals(record.headers(), placed.headers());
  }

  /** Key and header paths work before and after SetTombstone, and place both alike. */
  @ParameterizedTest
  @MethodSource("pathsOutsideTheValue")
  void tombstonesGoWhereTheirKeyWent(String path, Rows row) {
    SetPartition<SourceRecord> place = setPartition("field", path, "partitions", "97");
    SetTombstone<SourceRecord> bury = new SetTombstone<>();
    bury.configure(Map.of("payload.field", "value.payload"));
    Integer alive = place.apply(row.record()).kafkaPartition();
    SourceRecord gone = row.payload(null).record();
    SourceRecord placedFirst = bury.apply(place.apply(gone));
    SourceRecord buriedFirst = place.apply(bury.apply(gone));
    assertEquals(alive, placedFirst.kafkaPartition());
    assertEquals(alive, buriedFirst.kafkaPartition());
    assertNull(placedFirst.value());
    assertNull(buriedFirst.value());
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
  void topicsHaveCountsOfTheirOwn() {
    String counts = "library.note:7,library.book:11";
    SourceRecord record = Rows.row().record();
    assertEquals(
        OutboxPartition.of("note-1", 7),
        setPartition("topic.partitions", counts, "partitions", "3").apply(record).kafkaPartition());
    assertEquals(
        OutboxPartition.of("note-1", 3),
        setPartition("topic.partitions", "library.book:11", "partitions", "3")
            .apply(record)
            .kafkaPartition());
  }

  static Stream<Arguments> refusedRecords() {
    return Stream.of(
        arguments(
            Rows.row().tombstone(),
            "value.payload",
            "Field value.payload cannot be read: a record on topic library.note has no value, it is"
                + " a tombstone. Name a field of the key or a header instead, or put this transform"
                + " before the one that makes tombstones."),
        arguments(
            Rows.row().payload(null).record(),
            "value.payload",
            "Field value.payload on topic library.note is null: it cannot pick a partition."),
        arguments(
            Rows.row().key(null, null).record(),
            "key",
            "Field key on topic library.note is null: it cannot pick a partition."),
        arguments(
            Rows.row().header("h", new BigDecimal("1.5")).record(),
            "header.h",
            "Field header.h on topic library.note is of type BigDecimal; a string, uuid, boolean,"
                + " bytes, int16, int32, int64, float32 or float64 can pick a partition, for those"
                + " Kafka's producer has a serializer."),
        arguments(
            Rows.row().record(),
            "value",
            "Field value on topic library.note is of type Struct library.public.outbox_event.Value;"
                + " a string, uuid, boolean, bytes, int16, int32, int64, float32 or float64 can"
                + " pick a partition, for those Kafka's producer has a serializer."));
  }

  @ParameterizedTest
  @MethodSource("refusedRecords")
  void recordsThatCannotBePlacedAreRefused(SourceRecord record, String field, String message) {
    SetPartition<SourceRecord> transform = setPartition("field", field, "partitions", "3");
    assertEquals(
        message, assertThrows(DataException.class, () -> transform.apply(record)).getMessage());
  }

  @Test
  void topicWithoutACountIsRefused() {
    SetPartition<SourceRecord> transform = setPartition("topic.partitions", "library.book:3");
    assertEquals(
        "Topic library.note has no partition count; add it to topic.partitions, or set partitions.",
        assertThrows(DataException.class, () -> transform.apply(Rows.row().record())).getMessage());
  }

  @Test
  void schemalessValuesAreReadToo() {
    SourceRecord record =
        Rows.row().column("region", Schema.STRING_SCHEMA, "eu").schemaless().record();
    assertEquals(
        OutboxPartition.of("eu", 5),
        setPartition("field", "value.region", "partitions", "5").apply(record).kafkaPartition());
  }

  static Stream<Arguments> misconfigurations() {
    return Stream.of(
        arguments(
            List.of(),
            "Invalid value null for configuration partitions: required without topic.partitions;"
                + " set the partition count of the topics"),
        arguments(
            List.of("partitions", "0"),
            "Invalid value 0 for configuration partitions: Value must be at least 1"),
        arguments(
            List.of("partitions", "many"),
            "Invalid value many for configuration partitions: Not a number of type INT"),
        arguments(
            List.of("partitions", "1", "field", "payload"),
            "Invalid value payload for configuration field: must be key, key.field, value,"
                + " value.field, or header.name"),
        arguments(
            List.of("topic.partitions", "a"),
            "Invalid value [a] for configuration topic.partitions: must be a list of name:value"),
        arguments(
            List.of("topic.partitions", "a:0"),
            "Invalid value [a:0] for configuration topic.partitions: a count must be an integer"
                + " above 0"),
        arguments(
            List.of("topic.partitions", "a:1,a:2"),
            "Invalid value [a:1, a:2] for configuration topic.partitions: must name a once"));
  }

  @ParameterizedTest
  @MethodSource("misconfigurations")
  void misconfigurationIsRefused(List<String> props, String message) {
    assertEquals(
        message,
        assertThrows(ConfigException.class, () -> setPartition(props.toArray(new String[0])))
            .getMessage());
  }

  /** Kafka's own answer for a text key. */
  private static final class OutboxPartition {
    static int of(String key, int partitions) {
      byte[] bytes = new StringSerializer().serialize("t", key);
      return BuiltInPartitioner.partitionForKey(bytes, partitions);
    }
  }
}
