package io.outboxkit.bench;

import io.outboxkit.smt.OutboxEvents;
import java.util.Random;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Cyclic sequence of inserts into the outbox table, long enough to defeat branch prediction and CPU
 * caches. As with Debezium, all have the same schema object.
 */
final class ChangeEvents {
  /** A power of two. */
  static final int COUNT = 1024;

  private static final long SEED = 20261120;
  private static final long FIRST_LSN = 45_768_008L;

  private final SourceRecord[] events = new SourceRecord[COUNT];
  private int nextIndex;

  ChangeEvents(Payload payload) {
    Random random = new Random(SEED);
    Schema schema = null;
    for (int i = 0; i < COUNT; i++) {
      SourceRecord event = event(payload, random, i);
      schema = schema == null ? event.valueSchema() : schema;
      events[i] =
          new SourceRecord(
              event.sourcePartition(),
              event.sourceOffset(),
              event.topic(),
              schema,
              copyWithSchema((Struct) event.value(), schema));
    }
  }

  /** Return a new record, because EventRouter adds headers to its input. */
  SourceRecord next() {
    SourceRecord event = events[nextIndex++ & COUNT - 1];
    return new SourceRecord(
        event.sourcePartition(),
        event.sourceOffset(),
        event.topic(),
        event.valueSchema(),
        event.value());
  }

  private static SourceRecord event(Payload payload, Random random, int number) {
    long lsn = FIRST_LSN + 640L * number;
    return OutboxEvents.insert()
        .column("id", named("io.debezium.data.Uuid"), Payload.uuid(random).toString())
        .column("seq", Schema.INT64_SCHEMA, (long) number)
        .column("aggregate_type", Schema.STRING_SCHEMA, payload.aggregate())
        .column("aggregate_id", Schema.STRING_SCHEMA, Payload.uuid(random).toString())
        .column("event_type", Schema.STRING_SCHEMA, "BookLent")
        .column("created_at", named("io.debezium.time.ZonedTimestamp"), Payload.instant(random))
        .payload(payload.text(random))
        .sequence("[\"" + (lsn - 56) + "\",\"" + lsn + "\"]", lsn)
        .record();
  }

  private static Schema named(String name) {
    return SchemaBuilder.string().name(name).version(1).build();
  }

  private static Struct copyWithSchema(Struct struct, Schema schema) {
    Struct copy = new Struct(schema);
    for (Field field : schema.fields()) {
      Object value = struct.getWithoutDefault(field.name());
      copy.put(
          field, value instanceof Struct nested ? copyWithSchema(nested, field.schema()) : value);
    }
    return copy;
  }
}
