package io.outboxkit.smt.compare;

import static io.outboxkit.smt.compare.Outcomes.assertStops;
import static io.outboxkit.smt.compare.Outcomes.warned;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.outboxkit.smt.OutboxEvents;
import io.outboxkit.smt.Records;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;

/** Records that the transforms route, pass on, drop or reject. */
class RowsComparedTest {

  @Compared("insert")
  void inserts(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    for (SourceRecord routed :
        new SourceRecord[] {sides.eventRouter().apply(row), sides.outboxRouter().apply(row)}) {
      assertEquals("library.note", routed.topic());
      assertEquals("note-1", routed.key());
      assertNull(routed.kafkaPartition());
    }
  }

  @Compared("other-connector")
  void rowsOfOtherConnectors(Sides sides) {
    SourceRecord row = OutboxEvents.insert().connector("sqlserver").sequence(null, null).record();
    assertEquals("library.note", sides.eventRouter().apply(row).topic());
    assertStops(DataException.class, "source.connector", sides.outboxRouter(), row);
  }

  @Compared("snapshot-row")
  void snapshotRows(Sides sides) {
    SourceRecord row = OutboxEvents.insert().operation("r").record();
    assertEquals("library.note", sides.eventRouter().apply(row).topic());
    assertStops(DataException.class, "snapshot.rows=route", sides.outboxRouter(), row);
    assertEquals("library.note", sides.outboxRouter("snapshot.rows", "route").apply(row).topic());
  }

  @Compared("update")
  void updates(Sides sides) {
    SourceRecord row = OutboxEvents.insert().operation("u").record();
    assertNull(warned(sides.eventRouter(), row));
    assertStops(
        IllegalStateException.class,
        "Unexpected update message",
        sides.eventRouter("table.op.invalid.behavior", "fatal"),
        row);
    assertStops(DataException.class, "op=u", sides.outboxRouter(), row);
    assertNull(sides.outboxRouter("table.op.invalid.behavior", "warn").apply(row));
  }

  @Compared("delete")
  void deletes(Sides sides) {
    SourceRecord row = OutboxEvents.insert().operation("d").record();
    assertNull(sides.eventRouter("table.op.invalid.behavior", "fatal").apply(row));
    assertStops(DataException.class, "op=d", sides.outboxRouter(), row);
    assertNull(sides.outboxRouter("deleted.rows", "ignore").apply(row));
  }

  @Compared("truncate")
  void truncates(Sides sides) {
    SourceRecord row = OutboxEvents.insert().operation("t").record();
    assertStops(DataException.class, "Only Struct objects supported", sides.eventRouter(), row);
    assertStops(DataException.class, "op=t", sides.outboxRouter(), row);
  }

  @Compared("record-without-value")
  void recordsWithoutValue(Sides sides) {
    SourceRecord tombstone =
        Records.tombstone("library.public.author", "library.public.author.Key");
    assertNull(sides.eventRouter().apply(tombstone));
    assertStops(DataException.class, "tombstones.on.delete=false", sides.outboxRouter(), tombstone);
    assertSame(
        tombstone, sides.outboxRouter("pass.through", "table:public.author").apply(tombstone));
  }

  @Compared("heartbeat")
  void heartbeats(Sides sides) {
    SourceRecord heartbeat = Records.heartbeat();
    assertSame(heartbeat, sides.eventRouter().apply(heartbeat));
    assertSame(heartbeat, sides.outboxRouter().apply(heartbeat));
  }

  @Compared("metadata")
  void transactionMetadataAndSchemaChanges(Sides sides) {
    for (String name : new String[] {Records.TRANSACTION, Records.SCHEMA_CHANGE}) {
      SourceRecord record = Records.named("library.transaction", name);
      assertSame(record, sides.eventRouter().apply(record));
      assertStops(DataException.class, " to pass.through", sides.outboxRouter(), record);
      assertSame(
          record, sides.outboxRouter("pass.through", "transactions,schema-changes").apply(record));
    }
  }

  @Compared("message")
  void logicalDecodingMessages(Sides sides) {
    byte[] content =
        ("{\"id\": \"1\", \"aggregate_type\": \"note\", \"aggregate_id\": \"note-1\","
                + " \"event_type\": \"NoteWritten\", \"payload\": {\"text\": \"a\"},"
                + " \"created_at\": \"2026-11-20T18:31:38Z\"}")
            .getBytes(StandardCharsets.UTF_8);
    SourceRecord message = OutboxEvents.message("outbox", content, true);
    assertSame(message, sides.eventRouter().apply(message));
    assertStops(DataException.class, "add messages to pass.through", sides.outboxRouter(), message);
    assertEquals(
        "library.note", sides.outboxRouter("message.prefix", "outbox").apply(message).topic());
  }

  @Compared("other-table")
  void rowsOfOtherTables(Sides sides) {
    SourceRecord row = OutboxEvents.insert().table("public", "author").without("payload").record();
    assertStops(ConnectException.class, "Unable to find payload field", sides.eventRouter(), row);
    assertStops(
        DataException.class, "add table:public.author to pass.through", sides.outboxRouter(), row);
    assertSame(row, sides.outboxRouter("pass.through", "table:public.author").apply(row));
  }

  @Compared("other-table-alike")
  void rowsOfOtherTablesWithTheSameColumns(Sides sides) {
    SourceRecord row = OutboxEvents.insert().table("archive", "outbox_event").record();
    assertEquals("library.note", sides.eventRouter().apply(row).topic());
    assertStops(
        DataException.class, "a row of table archive.outbox_event", sides.outboxRouter(), row);
  }
}
