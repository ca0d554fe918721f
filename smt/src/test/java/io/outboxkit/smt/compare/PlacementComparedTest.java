package io.outboxkit.smt.compare;

import static io.outboxkit.smt.compare.Outcomes.assertDeadLetter;
import static io.outboxkit.smt.compare.Outcomes.assertStops;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.outboxkit.smt.OutboxEvents;
import java.nio.charset.StandardCharsets;
import java.util.function.UnaryOperator;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;

/** Topic, key and partition. */
class PlacementComparedTest {
  private static final int PARTITIONS = 12;
  private static final int KEYS = 2000;
  private static final String[] BY_COLUMN = {"table.fields.additional.placement", "part:partition"};
  private static final String[] BY_FIELD = {"aggregate.note.partition.field", "part"};

  private static SourceRecord row(Schema schema, Object part) {
    return OutboxEvents.insert().column("part", schema, part).record();
  }

  private static SourceRecord row(String key) {
    return OutboxEvents.insert().with("aggregate_id", key).record();
  }

  private static int kafkaPartition(String key) {
    return BuiltInPartitioner.partitionForKey(key.getBytes(StandardCharsets.UTF_8), PARTITIONS);
  }

  @Compared("route-null")
  void rowsWithoutAType(Sides sides) {
    SourceRecord row = OutboxEvents.insert().with("aggregate_type", null).record();
    assertThrows(NullPointerException.class, () -> sides.eventRouter().apply(row));
    assertDeadLetter("unknown-aggregate-type", sides.outboxRouter().apply(row));
  }

  @Compared("route-unknown")
  void unlistedTypes(Sides sides) {
    SourceRecord row = OutboxEvents.insert().with("aggregate_type", "notes").record();
    assertEquals("library.notes", sides.eventRouter().apply(row).topic());
    assertDeadLetter("unknown-aggregate-type", sides.outboxRouter().apply(row));
  }

  @Compared("key-null")
  void rowsWithoutAKey(Sides sides) {
    SourceRecord routed = sides.eventRouter().apply(row((String) null));
    assertEquals("library.note", routed.topic());
    assertNull(routed.key());
    assertDeadLetter("empty-key", sides.outboxRouter().apply(row((String) null)));
  }

  @Compared("key-empty")
  void rowsWithAnEmptyKey(Sides sides) {
    assertEquals("", sides.eventRouter().apply(row("")).key());
    assertDeadLetter("empty-key", sides.outboxRouter().apply(row("")));
  }

  @Compared("key-number")
  void keysThatAreNumbers(Sides sides) {
    SourceRecord row =
        OutboxEvents.insert().column("aggregate_id", Schema.INT64_SCHEMA, 7L).record();
    assertEquals(7L, sides.eventRouter().apply(row).key());
    assertEquals("7", sides.outboxRouter().apply(row).key());
  }

  @Compared("key-bytea")
  void keysThatAreBytes(Sides sides) {
    byte[] key = {1, 2};
    SourceRecord row =
        OutboxEvents.insert().column("aggregate_id", Schema.BYTES_SCHEMA, key).record();
    assertSame(key, sides.eventRouter().apply(row).key());
    assertStops(DataException.class, "aggregate_id has type BYTES", sides.outboxRouter(), row);
  }

  @Compared("key-column-missing")
  void tablesWithoutTheKeyColumn(Sides sides) {
    SourceRecord row = OutboxEvents.insert().without("aggregate_id").record();
    assertStops(
        DataException.class, "aggregate_id is not a valid field name", sides.eventRouter(), row);
    assertStops(DataException.class, "table.field.event.key", sides.outboxRouter(), row);
  }

  @Compared("partition-int4")
  void partitionColumns(Sides sides) {
    SourceRecord row = row(Schema.INT32_SCHEMA, 7);
    assertEquals(7, sides.eventRouter(BY_COLUMN).apply(row).kafkaPartition());
    assertEquals(kafkaPartition("7"), sides.outboxRouter(BY_FIELD).apply(row).kafkaPartition());
  }

  @Compared("partition-int2")
  void partitionColumnsOfInt2(Sides sides) {
    partitionColumnOfAnotherType(sides, row(Schema.INT16_SCHEMA, (short) 7));
  }

  @Compared("partition-int8")
  void partitionColumnsOfInt8(Sides sides) {
    partitionColumnOfAnotherType(sides, row(Schema.INT64_SCHEMA, 7L));
  }

  @Compared("partition-text")
  void partitionColumnsOfText(Sides sides) {
    partitionColumnOfAnotherType(sides, row(Schema.STRING_SCHEMA, "7"));
  }

  private static void partitionColumnOfAnotherType(Sides sides, SourceRecord row) {
    assertStops(DataException.class, "not of type INT32", sides.eventRouter(BY_COLUMN), row);
    assertEquals(kafkaPartition("7"), sides.outboxRouter(BY_FIELD).apply(row).kafkaPartition());
  }

  /** Connect creates the ProducerRecord where errors.tolerance does not apply. */
  @Compared("partition-negative")
  void partitionMinusOne(Sides sides) {
    SourceRecord row = row(Schema.INT32_SCHEMA, -1);
    Integer partition = sides.eventRouter(BY_COLUMN).apply(row).kafkaPartition();
    assertEquals(-1, partition);
    assertThrows(
        IllegalArgumentException.class,
        () -> new ProducerRecord<>("library.note", partition, null, null));
    assertEquals(kafkaPartition("-1"), sides.outboxRouter(BY_FIELD).apply(row).kafkaPartition());
  }

  @Compared("partition-above-count")
  void nonexistentPartitions(Sides sides) {
    SourceRecord row = row(Schema.INT32_SCHEMA, PARTITIONS);
    assertEquals(PARTITIONS, sides.eventRouter(BY_COLUMN).apply(row).kafkaPartition());
    assertTrue(sides.outboxRouter(BY_FIELD).apply(row).kafkaPartition() < PARTITIONS);
  }

  @Compared("partition-null")
  void partitionColumnsThatAreNull(Sides sides) {
    SourceRecord row = row(Schema.OPTIONAL_INT32_SCHEMA, null);
    assertNull(sides.eventRouter(BY_COLUMN).apply(row).kafkaPartition());
    assertDeadLetter("empty-partition-field", sides.outboxRouter(BY_FIELD).apply(row));
  }

  @Compared("partition-routing-before")
  void partitionSetBeforeTheRouter(Sides sides) {
    SourceRecord partitioned = sides.partitionRouting().apply(OutboxEvents.insert().record());
    assertNotNull(partitioned.kafkaPartition());
    assertNull(sides.eventRouter().apply(partitioned).kafkaPartition());
    assertNull(sides.outboxRouter().apply(partitioned).kafkaPartition());
  }

  @Compared("partition-routing-after")
  void partitionSetAfterTheRouter(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    SourceRecord byEventRouter = sides.eventRouter().apply(row);
    assertSame(byEventRouter, sides.partitionRouting().apply(byEventRouter));
    SourceRecord byOutboxRouter = sides.outboxRouter().apply(row);
    assertSame(byOutboxRouter, sides.partitionRouting().apply(byOutboxRouter));
    for (SourceRecord routed : new SourceRecord[] {byEventRouter, byOutboxRouter}) {
      assertEquals(kafkaPartition("note-1"), sides.setPartition().apply(routed).kafkaPartition());
    }
  }

  @Compared("partition-routing-hash")
  void hashOfPartitionRouting(Sides sides) {
    UnaryOperator<SourceRecord> murmur =
        sides.partitionRouting("partition.hash.function", "murmur");
    UnaryOperator<SourceRecord> java = sides.partitionRouting();
    UnaryOperator<SourceRecord> byOutboxRouter =
        sides.outboxRouter("aggregate.note.partition.field", "aggregate_id");
    int murmurAgrees = 0;
    int javaAgrees = 0;
    for (int i = 0; i < KEYS; i++) {
      String key = "note-" + i;
      SourceRecord row = row(key);
      murmurAgrees += murmur.apply(row).kafkaPartition() == kafkaPartition(key) ? 1 : 0;
      javaAgrees += java.apply(row).kafkaPartition() == kafkaPartition(key) ? 1 : 0;
      assertEquals(kafkaPartition(key), byOutboxRouter.apply(row).kafkaPartition());
    }
    // By chance, one in twelve partitions is equal.
    assertTrue(murmurAgrees < KEYS / 8, murmurAgrees + " of " + KEYS);
    assertTrue(javaAgrees < KEYS / 8, javaAgrees + " of " + KEYS);
  }

  @Compared("partition-routing-hash-typo")
  void unknownHashFunctions(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    assertEquals(
        sides.partitionRouting().apply(row).kafkaPartition(),
        sides.partitionRouting("partition.hash.function", "murmur2").apply(row).kafkaPartition());
    assertEquals(
        kafkaPartition("note-1"),
        sides
            .outboxRouter("aggregate.note.partition.field", "aggregate_id")
            .apply(row)
            .kafkaPartition());
  }

  @Compared("partition-tombstone")
  void partitionOfTombstones(Sides sides) {
    SourceRecord nullPayload = OutboxEvents.insert().payload(null).record();
    SourceRecord tombstone = sides.outboxRouter().apply(nullPayload);
    assertNull(tombstone.value());
    assertSame(tombstone, sides.partitionRouting().apply(tombstone));
    assertEquals(kafkaPartition("note-1"), sides.setPartition().apply(tombstone).kafkaPartition());
    assertEquals(
        kafkaPartition("note-1"),
        sides
            .outboxRouter("aggregate.note.partition.field", "aggregate_id")
            .apply(nullPayload)
            .kafkaPartition());
  }
}
