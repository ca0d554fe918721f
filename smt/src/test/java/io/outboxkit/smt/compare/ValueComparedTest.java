package io.outboxkit.smt.compare;

import static io.outboxkit.smt.compare.Outcomes.assertDeadLetter;
import static io.outboxkit.smt.compare.Outcomes.assertStops;
import static io.outboxkit.smt.compare.Outcomes.assertTombstone;
import static io.outboxkit.smt.compare.Outcomes.avro;
import static io.outboxkit.smt.compare.Outcomes.converter;
import static io.outboxkit.smt.compare.Outcomes.header;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.outboxkit.smt.OutboxEvents;
import io.outboxkit.smt.Routers;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.UnaryOperator;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;

/** Values and tombstones. */
class ValueComparedTest {
  private static final String[] TOMBSTONES = {"route.tombstone.on.empty.payload", "true"};
  private static final String[] ENVELOPE = {
    "table.fields.additional.placement", "event_type:envelope"
  };

  private static final String[] BYTES = {
    "aggregate.note.payload.format", "bytes",
    "aggregate.note.schema.versions", null,
    "aggregate.note.schema.1", null,
    "aggregate.note.schema.1.id", null
  };

  private static SourceRecord row(String payload) {
    return OutboxEvents.insert().payload(payload).record();
  }

  @Compared("payload")
  void payloads(Sides sides) throws Exception {
    SourceRecord row = row("{\"text\": \"hello\"}");
    assertEquals("{\"text\": \"hello\"}", sides.eventRouter().apply(row).value());
    SourceRecord byOutboxRouter = sides.outboxRouter().apply(row);
    assertEquals("{\"text\": \"hello\"}", avro(Routers.NOTE_V1, byOutboxRouter));
  }

  @Compared("payload-bytea")
  void payloadsOfBytes(Sides sides) {
    byte[] payload = {0, (byte) 0xFF};
    SourceRecord row =
        OutboxEvents.insert().column("payload", Schema.OPTIONAL_BYTES_SCHEMA, payload).record();
    assertSame(payload, sides.eventRouter().apply(row).value());
    assertStops(DataException.class, "type BYTES", sides.outboxRouter(), row);
    assertSame(payload, sides.outboxRouter(BYTES).apply(row).value());
  }

  @Compared("tombstone-default")
  void nullPayloadsByDefault(Sides sides) {
    SourceRecord routed = sides.eventRouter().apply(row(null));
    assertNull(routed.value());
    assertNotNull(routed.valueSchema());
    assertNotNull(converter(true).fromConnectData("t", routed.valueSchema(), routed.value()));
    assertTombstone(sides.outboxRouter().apply(row(null)));
  }

  @Compared("tombstone-sql-null")
  void nullPayloads(Sides sides) {
    assertTombstone(sides.eventRouter(TOMBSTONES).apply(row(null)));
    assertTombstone(sides.outboxRouter().apply(row(null)));
  }

  @Compared("tombstone-json-null")
  void jsonNull(Sides sides) {
    assertEquals("null", sides.eventRouter(TOMBSTONES).apply(row("null")).value());
    assertTombstone(sides.outboxRouter().apply(row("null")));
  }

  @Compared("tombstone-blank")
  void blankText(Sides sides) {
    assertTombstone(sides.eventRouter(TOMBSTONES).apply(row(" ")));
    assertDeadLetter("payload-invalid", sides.outboxRouter().apply(row(" ")));
  }

  @Compared("tombstone-empty-bytea")
  void emptyBytea(Sides sides) {
    ByteBuffer empty = ByteBuffer.allocate(0);
    SourceRecord row =
        OutboxEvents.insert().column("payload", Schema.OPTIONAL_BYTES_SCHEMA, empty).record();
    assertSame(empty, sides.eventRouter(TOMBSTONES).apply(row).value());
    assertStops(DataException.class, "type BYTES", sides.outboxRouter(), row);
    assertDeadLetter(
        "payload-invalid", sides.outboxRouter("aggregate.note.payload.format", "avro").apply(row));
    assertArrayEquals(new byte[0], (byte[]) sides.outboxRouter(BYTES).apply(row).value());
  }

  @Compared("tombstone-column-default")
  void nullPayloadsOfColumnsWithADefault(Sides sides) {
    Schema column = SchemaBuilder.string().optional().defaultValue("{\"text\": \"x\"}").build();
    SourceRecord row = OutboxEvents.insert().column("payload", column, null).record();
    assertEquals("{\"text\": \"x\"}", sides.eventRouter(TOMBSTONES).apply(row).value());
    assertTombstone(sides.outboxRouter().apply(row));
  }

  @Compared("tombstone-headers")
  void headersOfTombstones(Sides sides) {
    assertEquals(OutboxEvents.ID, header(sides.eventRouter(TOMBSTONES).apply(row(null)), "id"));
    assertEquals(OutboxEvents.ID, header(sides.outboxRouter().apply(row(null)), "event_id"));
  }

  @Compared("envelope-schema-name")
  void schemasOfSeveralTypesWithAnEnvelope(Sides sides) {
    UnaryOperator<SourceRecord> eventRouter = sides.eventRouter(ENVELOPE);
    SourceRecord book = OutboxEvents.insert().with("aggregate_type", "book").record();
    assertEquals(
        eventRouter.apply(row("{}")).valueSchema().name(),
        eventRouter.apply(book).valueSchema().name());
    SourceRecord row = row("{\"text\": \"a\"}");
    UnaryOperator<SourceRecord> byOutboxRouter =
        sides.outboxRouter(
            "aggregates", "note,book",
            "aggregate.book.topic", "library.book",
            "aggregate.book.partitions", "1",
            "aggregate.book.schema.versions", "1",
            "aggregate.book.schema.1", "\"string\"",
            "aggregate.book.schema.1.id", "99");
    SourceRecord text =
        OutboxEvents.insert().with("aggregate_type", "book").payload("\"b\"").record();
    assertArrayEquals(
        new byte[] {0, 1, 2, 3, 4}, Arrays.copyOf((byte[]) byOutboxRouter.apply(row).value(), 5));
    assertArrayEquals(
        new byte[] {0, 0, 0, 0, 99}, Arrays.copyOf((byte[]) byOutboxRouter.apply(text).value(), 5));
  }

  @Compared("schema-version-envelope")
  void payloadsOfSeveralShapesWithAVersion(Sides sides) throws Exception {
    UnaryOperator<SourceRecord> eventRouter =
        sides.eventRouter(
            "table.fields.additional.placement", "event_type:envelope",
            "table.field.event.schema.version", "version",
            "table.expand.json.payload", "true");
    assertEquals(3, eventRouter.apply(versioned("{\"text\": \"a\"}")).valueSchema().version());
    assertStops(
        DataException.class,
        "Struct schemas do not match",
        eventRouter,
        versioned("{\"text\": \"a\", \"pages\": 1}"));
    String schema =
        "{\"type\":\"record\",\"name\":\"N\",\"fields\":["
            + "{\"name\":\"text\",\"type\":\"string\"},"
            + "{\"name\":\"pages\",\"type\":\"int\",\"default\":0}]}";
    UnaryOperator<SourceRecord> byOutboxRouter = sides.outboxRouterBy(schema);
    assertEquals(
        "{\"text\": \"a\", \"pages\": 0}",
        avro(schema, byOutboxRouter.apply(versioned("{\"text\": \"a\"}"))));
    assertEquals(
        "{\"text\": \"a\", \"pages\": 1}",
        avro(schema, byOutboxRouter.apply(versioned("{\"text\": \"a\", \"pages\": 1}"))));
  }

  @Compared("schema-version-header-only")
  void versionWithoutAnEnvelope(Sides sides) {
    SourceRecord row = versioned("{\"text\": \"a\", \"stars\": 1}");
    assertEquals(
        // The version of the column's schema, io.debezium.data.Json.
        1,
        sides
            .eventRouter("table.field.event.schema.version", "version")
            .apply(row)
            .valueSchema()
            .version());
    SourceRecord byOutboxRouter =
        sides
            .outboxRouter(
                "aggregate.note.schema.versions", "3,1",
                "aggregate.note.schema.3", Routers.NOTE_V2,
                "aggregate.note.schema.3.id", "33",
                "table.field.event.schema.version", "version")
            .apply(row);
    assertArrayEquals(
        new byte[] {0, 0, 0, 0, 33}, Arrays.copyOf((byte[]) byOutboxRouter.value(), 5));
  }

  private static SourceRecord versioned(String payload) {
    return OutboxEvents.insert()
        .column("version", Schema.INT32_SCHEMA, 3)
        .payload(payload)
        .record();
  }

  @Compared("record-size")
  void largeRows(Sides sides) {
    String payload = "{\"text\": \"" + "x".repeat(2_000_000) + "\"}";
    assertEquals(payload, sides.eventRouter().apply(row(payload)).value());
    assertDeadLetter("record-too-large", sides.outboxRouter().apply(row(payload)));
  }
}
