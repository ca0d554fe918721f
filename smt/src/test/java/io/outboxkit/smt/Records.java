package io.outboxkit.smt;

import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/** Records of Debezium other than rows of tables. */
public final class Records {
  public static final String HEARTBEAT = "io.debezium.connector.common.Heartbeat";
  public static final String TRANSACTION = "io.debezium.connector.common.TransactionMetadataValue";
  public static final String SCHEMA_CHANGE = "io.debezium.connector.postgresql.SchemaChangeValue";
  public static final String NOTIFICATION = "io.debezium.connector.common.Notification";

  private Records() {}

  public static SourceRecord heartbeat() {
    Struct key =
        new Struct(
                SchemaBuilder.struct()
                    .name("io.debezium.connector.common.ServerNameKey")
                    .field("serverName", Schema.STRING_SCHEMA)
                    .build())
            .put("serverName", "library");
    Struct value =
        new Struct(
                SchemaBuilder.struct()
                    .name(HEARTBEAT)
                    .version(1)
                    .field("ts_ms", Schema.INT64_SCHEMA)
                    .build())
            .put("ts_ms", 1L);
    return record("__debezium-heartbeat.library", key.schema(), key, value.schema(), value);
  }

  /** Return a record whose value is a Struct with this schema name. */
  public static SourceRecord named(String topic, String schemaName) {
    Schema schema =
        SchemaBuilder.struct().name(schemaName).field("status", Schema.STRING_SCHEMA).build();
    return record(topic, null, null, schema, new Struct(schema).put("status", "BEGIN"));
  }

  /** Return a tombstone, as Debezium sends it after a delete. */
  public static SourceRecord tombstone(String topic, String keySchemaName) {
    Schema schema =
        SchemaBuilder.struct().name(keySchemaName).field("id", Schema.INT64_SCHEMA).build();
    return record(topic, schema, new Struct(schema).put("id", 1L), null, null);
  }

  public static SourceRecord record(
      String topic, Schema keySchema, Object key, Schema valueSchema, Object value) {
    return new SourceRecord(
        Map.of("server", "library"),
        Map.of("lsn", 1L),
        topic,
        null,
        keySchema,
        key,
        valueSchema,
        value);
  }
}
