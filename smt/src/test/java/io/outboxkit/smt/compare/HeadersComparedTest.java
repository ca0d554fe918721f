package io.outboxkit.smt.compare;

import static io.outboxkit.smt.compare.Outcomes.assertDeadLetter;
import static io.outboxkit.smt.compare.Outcomes.assertStops;
import static io.outboxkit.smt.compare.Outcomes.header;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.outboxkit.smt.OutboxEvents;
import io.outboxkit.smt.Routers;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;

/** Headers, timestamps and invalid options. */
class HeadersComparedTest {
  private static final String[] BY_COLUMN = {"table.field.event.timestamp", "created_at"};
  private static final Schema MICROS =
      SchemaBuilder.int64().name("io.debezium.time.MicroTimestamp").version(1).optional().build();

  private static SourceRecord createdAt(Schema schema, Object value) {
    return OutboxEvents.insert().column("created_at", schema, value).record();
  }

  private static Set<String> headers(SourceRecord record) {
    Set<String> names = new TreeSet<>();
    for (Header header : record.headers()) {
      names.add(header.key());
    }
    return names;
  }

  @Compared("headers")
  void headersByDefault(Sides sides) {
    SourceRecord row =
        OutboxEvents.insert().with("headers", "{\"traceparent\": \"00-1\"}").record();
    assertEquals(
        Set.of(
            "event_id",
            "event_type",
            "aggregate_type",
            "event_time",
            "source_sequence",
            "traceparent"),
        headers(sides.outboxRouter().apply(row)));
    assertEquals(Set.of("id"), headers(sides.eventRouter().apply(row)));
  }

  @Compared("header-placement")
  void columnsThatBecomeHeaders(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    String[] placement = {"table.fields.additional.placement", "seq:header:number"};
    assertEquals("7", header(sides.outboxRouter(placement).apply(row), "number"));
    assertEquals(7L, header(sides.eventRouter(placement).apply(row), "number"));
  }

  @Compared("header-placement-taken")
  void headersPlacedTwice(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    SourceRecord routed =
        sides.eventRouter("table.fields.additional.placement", "seq:header:id").apply(row);
    assertEquals(2, routed.headers().size());
    assertEquals(7L, header(routed, "id"));
    assertThrows(
        ConfigException.class,
        () -> sides.outboxRouter("table.fields.additional.placement", "seq:header:event_id"));
  }

  @Compared("header-placement-empty")
  void emptyPlacements(Sides sides) {
    String[] empty = {"table.fields.additional.placement", ""};
    assertThrows(ConfigException.class, () -> sides.eventRouter(empty));
    assertThrows(ConfigException.class, () -> sides.outboxRouter(empty));
  }

  @Compared("input-headers")
  void headersOfTheInputRecord(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    row.headers().addString("earlier", "1");
    assertNull(header(sides.outboxRouter().apply(row), "earlier"));
    assertEquals("1", header(sides.eventRouter().apply(row), "earlier"));
  }

  @Compared("event-type")
  void typesOfEvents(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    SourceRecord routed = sides.eventRouter("table.field.event.type", "no_such_column").apply(row);
    assertEquals(Set.of("id"), headers(routed));
    assertStops(
        DataException.class,
        "no column no_such_column",
        sides.outboxRouter("table.field.event.type", "no_such_column"),
        row);
    assertEquals("NoteWritten", header(sides.outboxRouter().apply(row), "event_type"));
  }

  @Compared("event-type-bytea")
  void typesThatAreBytes(Sides sides) {
    byte[] type = {1, 2};
    SourceRecord row =
        OutboxEvents.insert().column("event_type", Schema.BYTES_SCHEMA, type).record();
    String[] placement = {"table.fields.additional.placement", "event_type:header"};
    assertSame(type, header(sides.eventRouter(placement).apply(row), "event_type"));
    assertStops(DataException.class, "event_type has type BYTES", sides.outboxRouter(), row);
  }

  @Compared("event-id-null")
  void rowsWithoutAnId(Sides sides) {
    SourceRecord row = OutboxEvents.insert().with("id", null).record();
    SourceRecord routed = sides.eventRouter().apply(row);
    assertEquals(Set.of("id"), headers(routed));
    assertNull(header(routed, "id"));
    assertDeadLetter("empty-event-id", sides.outboxRouter().apply(row));
  }

  @Compared("event-type-null")
  void rowsWithoutAnEventType(Sides sides) {
    SourceRecord row = OutboxEvents.insert().with("event_type", null).record();
    SourceRecord routed =
        sides.eventRouter("table.fields.additional.placement", "event_type:header").apply(row);
    assertNull(header(routed, "event_type"));
    assertEquals("library.note", routed.topic());
    assertDeadLetter("empty-event-type", sides.outboxRouter().apply(row));
  }

  @Compared("input-changed")
  void changesOfTheInputRecord(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    sides.outboxRouter().apply(row);
    assertEquals(0, row.headers().size());
    sides.eventRouter().apply(row);
    assertEquals(1, row.headers().size());
    sides.eventRouter().apply(row);
    assertEquals(2, row.headers().size());
  }

  @Compared("source-position")
  void positionInTheWal(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    assertNull(header(sides.eventRouter().apply(row), "source_sequence"));
    assertEquals(OutboxEvents.SEQUENCE, header(sides.outboxRouter().apply(row), "source_sequence"));
  }

  @Compared("record-timestamp")
  void timestampOfTheRecord(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    // ts_ms of the envelope is the time at which Debezium processed the event: 40 ms later here.
    assertEquals(OutboxEvents.COMMIT_MILLIS + 40, sides.eventRouter().apply(row).timestamp());
    assertEquals(OutboxEvents.COMMIT_MILLIS, sides.outboxRouter().apply(row).timestamp());
  }

  @Compared("time-timestamp")
  void columnsOfTimestamp(Sides sides) {
    SourceRecord row = createdAt(MICROS, 5_000_000L);
    assertEquals(5_000L, sides.eventRouter(BY_COLUMN).apply(row).timestamp());
    assertEquals(
        "1970-01-01T00:00:05.000000Z", header(sides.outboxRouter().apply(row), "event_time"));
  }

  @Compared("time-timestamptz")
  void columnsOfTimestamptz(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    assertStops(DataException.class, "not of type INT64", sides.eventRouter(BY_COLUMN), row);
    assertEquals(OutboxEvents.CREATED_AT, header(sides.outboxRouter().apply(row), "event_time"));
  }

  @Compared("time-connect")
  void columnsWithPrecisionModeConnect(Sides sides) {
    SourceRecord row = createdAt(Timestamp.SCHEMA, new java.util.Date(5));
    assertThrows(ClassCastException.class, () -> sides.eventRouter(BY_COLUMN).apply(row));
    assertEquals(
        "1970-01-01T00:00:00.005000Z", header(sides.outboxRouter().apply(row), "event_time"));
  }

  @Compared("time-bigint")
  void columnsOfBigint(Sides sides) {
    SourceRecord row = createdAt(Schema.INT64_SCHEMA, 5L);
    assertStops(
        ConnectException.class, "Unsupported field type", sides.eventRouter(BY_COLUMN), row);
    assertStops(DataException.class, "timestamptz", sides.outboxRouter(), row);
  }

  @Compared("time-null")
  void rowsWithoutATime(Sides sides) {
    SourceRecord row = createdAt(MICROS, null);
    assertEquals(
        OutboxEvents.COMMIT_MILLIS + 40, sides.eventRouter(BY_COLUMN).apply(row).timestamp());
    assertDeadLetter("event-time-invalid", sides.outboxRouter().apply(row));
  }

  @Compared("option-value-typo")
  void unknownPlacements(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    var eventRouter = sides.eventRouter("table.fields.additional.placement", "event_type:haeder");
    assertThrows(NullPointerException.class, () -> eventRouter.apply(row));
    String[] typos = {
      "table.fields.additional.placement", "event_type:haeder",
      "table.fields.additional.placement", "seq:partition",
      "table.fields.additional.placement", "seq:envelope",
      "invalid.rows", "dead-leter",
      "snapshot.rows", "rout",
      "pass.through", "heartbeat",
      "aggregate.note.partitions", "0",
      "aggregate.note.topc", "library.note"
    };
    for (int i = 0; i < typos.length; i += 2) {
      String option = typos[i];
      String value = typos[i + 1];
      String message =
          assertThrows(ConfigException.class, () -> sides.outboxRouter(option, value)).getMessage();
      assertTrue(message.contains(option), message);
    }
  }

  @Compared("option-missing")
  void missingOptions(Sides sides) {
    SourceRecord row = OutboxEvents.insert().record();
    // EventRouter detects at the first row that the table lacks its default column, aggregateid.
    assertStops(
        DataException.class,
        "aggregateid is not a valid field name",
        sides.eventRouter("table.field.event.key", "aggregateid"),
        row);
    for (String option : new String[] {"aggregate.note.topic", "aggregate.note.schema.1"}) {
      Map<String, String> props = Routers.props();
      props.remove(option);
      String message =
          assertThrows(ConfigException.class, () -> Routers.configured(props)).getMessage();
      assertTrue(message.contains(option), message);
    }
    assertEquals("library.note", sides.outboxRouter().apply(row).topic());
  }
}
