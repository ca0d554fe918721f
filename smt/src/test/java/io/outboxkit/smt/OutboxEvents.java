package io.outboxkit.smt;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Builder of change events with the schemas of Debezium's PostgreSQL connector 3.7.0.Final, which
 * {@link DebeziumShapesTest} compares with Debezium's classes. By default, the event is an insert
 * into the default outbox table.
 */
public final class OutboxEvents {
  public static final String ID = "6f1c1f0e-3c1b-4d8e-9a53-0d6a2f9b7c11";
  public static final String CREATED_AT = "2026-11-20T18:31:38.123456Z";
  public static final String SEQUENCE = "0001_0000000002ba5d10-0000000002ba5d48";
  public static final long COMMIT_MILLIS = 1_795_199_498_200L;

  private final Map<String, Object> row = new LinkedHashMap<>();
  private final Map<String, Schema> columns = new LinkedHashMap<>();
  private String connector = "postgresql";
  private String operation = "c";
  private String schemaName = "public";
  private String tableName = "outbox_event";
  private String sequence = "[\"45767952\",\"45768008\"]";
  private Long lsn = 45_768_008L;
  private Long micros = COMMIT_MILLIS * 1000 + 999;
  private Long transaction = 771L;

  private OutboxEvents() {
    column("id", named(SchemaBuilder.string(), "io.debezium.data.Uuid"), ID);
    column("seq", Schema.INT64_SCHEMA, 7L);
    column("aggregate_type", Schema.STRING_SCHEMA, "note");
    column("aggregate_id", Schema.STRING_SCHEMA, "note-1");
    column("event_type", Schema.STRING_SCHEMA, "NoteWritten");
    column("payload", json(), "{\"text\": \"hello\"}");
    column("headers", json(), null);
    column(
        "created_at", named(SchemaBuilder.string(), "io.debezium.time.ZonedTimestamp"), CREATED_AT);
  }

  public static OutboxEvents insert() {
    return new OutboxEvents();
  }

  public static Schema json() {
    return named(SchemaBuilder.string().optional(), "io.debezium.data.Json");
  }

  private static Schema named(SchemaBuilder builder, String name) {
    return builder.name(name).version(1).build();
  }

  public OutboxEvents column(String name, Schema schema, Object value) {
    columns.put(name, schema);
    row.put(name, value);
    return this;
  }

  /** Set a text column; allow null if the column was not optional. */
  public OutboxEvents with(String name, String value) {
    Schema schema = columns.get(name);
    if (!schema.isOptional()) {
      columns.put(name, SchemaBuilder.string().name(schema.name()).optional().build());
    }
    row.put(name, value);
    return this;
  }

  public OutboxEvents without(String name) {
    columns.remove(name);
    row.remove(name);
    return this;
  }

  public OutboxEvents payload(String payload) {
    return with("payload", payload);
  }

  public OutboxEvents connector(String name) {
    this.connector = name;
    return this;
  }

  public OutboxEvents operation(String code) {
    this.operation = code;
    return this;
  }

  public OutboxEvents table(String schema, String table) {
    this.schemaName = schema;
    this.tableName = table;
    return this;
  }

  public OutboxEvents sequence(String text, Long position) {
    this.sequence = text;
    this.lsn = position;
    return this;
  }

  public OutboxEvents withoutMicros() {
    this.micros = null;
    return this;
  }

  public SourceRecord record() {
    return changeEvent(rowSchema(), true);
  }

  /** Return a logical decoding message (op=m) without a message struct. */
  public SourceRecord messageRecord() {
    this.operation = "m";
    return changeEvent(rowSchema(), false);
  }

  /** Return a transactional message with the prefix {@code outbox} and the members of a row. */
  public static SourceRecord message(String payload, String moreMembers) {
    String content =
        "{\"id\": \"1\", \"aggregate_type\": \"note\", \"aggregate_id\": \"n\", \"event_type\":"
            + " \"E\", \"created_at\": \"2026-11-20T18:31:38Z\", \"payload\": "
            + payload
            + moreMembers
            + "}";
    return message("outbox", content.getBytes(java.nio.charset.StandardCharsets.UTF_8), true);
  }

  /** Return a logical decoding message. */
  public static SourceRecord message(String prefix, Object content, boolean transactional) {
    OutboxEvents event = insert();
    event.transaction = transactional ? 771L : null;
    SourceRecord record = event.messageRecord();
    Schema schema =
        content instanceof String ? textMessage() : messageSchema().field("message").schema();
    SchemaBuilder envelope = SchemaBuilder.struct().name(record.valueSchema().name());
    for (org.apache.kafka.connect.data.Field field : record.valueSchema().fields()) {
      envelope.field(field.name(), field.name().equals("message") ? schema : field.schema());
    }
    Struct value = new Struct(envelope.build());
    for (String name : new String[] {"op", "ts_ms", "source"}) {
      value.put(name, ((Struct) record.value()).get(name));
    }
    value.put("message", new Struct(schema).put("prefix", prefix).put("content", content));
    return new SourceRecord(
        record.sourcePartition(),
        record.sourceOffset(),
        record.topic(),
        null,
        null,
        value.schema(),
        value);
  }

  private static Schema textMessage() {
    return SchemaBuilder.struct()
        .name("io.debezium.connector.postgresql.Message")
        .field("prefix", Schema.OPTIONAL_STRING_SCHEMA)
        .field("content", Schema.OPTIONAL_STRING_SCHEMA)
        .optional()
        .build();
  }

  private Schema rowSchema() {
    SchemaBuilder builder =
        SchemaBuilder.struct().optional().name("library.public." + tableName + ".Value");
    columns.forEach(builder::field);
    return builder.build();
  }

  private SourceRecord changeEvent(Schema rowSchema, boolean hasRow) {
    Schema schema = hasRow ? envelopeSchema(rowSchema) : messageSchema();
    Struct envelope =
        new Struct(schema)
            .put("source", source())
            .put("op", operation)
            .put("ts_ms", COMMIT_MILLIS + 40);
    if (hasRow && !operation.equals("t")) {
      envelope.put(operation.equals("d") ? "before" : "after", rowStruct(rowSchema));
    }
    String topic = hasRow ? "library." + schemaName + "." + tableName : "library.message";
    return new SourceRecord(
        Map.of("server", "library"), Map.of("lsn", 1L), topic, null, null, schema, envelope);
  }

  private Struct rowStruct(Schema schema) {
    Struct struct = new Struct(schema);
    row.forEach(struct::put);
    return struct;
  }

  private Struct source() {
    return new Struct(sourceSchema())
        .put("version", "3.7.0.Final")
        .put("connector", connector)
        .put("name", "library")
        .put("ts_ms", COMMIT_MILLIS)
        .put("db", "library")
        .put("sequence", sequence)
        .put("ts_us", micros)
        .put("ts_ns", micros == null ? null : micros * 1000)
        .put("schema", schemaName)
        .put("table", tableName)
        .put("txId", transaction)
        .put("lsn", lsn);
  }

  static Schema sourceSchema() {
    return SchemaBuilder.struct()
        .name("io.debezium.connector.postgresql.Source")
        .version(1)
        .field("version", Schema.STRING_SCHEMA)
        .field("connector", Schema.STRING_SCHEMA)
        .field("name", Schema.STRING_SCHEMA)
        .field("ts_ms", Schema.INT64_SCHEMA)
        .field(
            "snapshot",
            SchemaBuilder.string()
                .name("io.debezium.data.Enum")
                .version(1)
                .parameter(
                    "allowed",
                    "true,first,first_in_data_collection,last_in_data_collection,last,false"
                        + ",incremental")
                .optional()
                .defaultValue("false")
                .build())
        .field("db", Schema.STRING_SCHEMA)
        .field("sequence", Schema.OPTIONAL_STRING_SCHEMA)
        .field("ts_us", Schema.OPTIONAL_INT64_SCHEMA)
        .field("ts_ns", Schema.OPTIONAL_INT64_SCHEMA)
        .field("schema", Schema.STRING_SCHEMA)
        .field("table", Schema.STRING_SCHEMA)
        .field("txId", Schema.OPTIONAL_INT64_SCHEMA)
        .field("lsn", Schema.OPTIONAL_INT64_SCHEMA)
        .field("xmin", Schema.OPTIONAL_INT64_SCHEMA)
        .field("origin", Schema.OPTIONAL_STRING_SCHEMA)
        .field("origin_lsn", Schema.OPTIONAL_INT64_SCHEMA)
        .build();
  }

  private static Schema envelopeSchema(Schema row) {
    return SchemaBuilder.struct()
        .name("library.public.outbox_event.Envelope")
        .version(2)
        .field("before", row)
        .field("after", row)
        .field("source", sourceSchema())
        .field("transaction", transactionBlock())
        .field("op", Schema.STRING_SCHEMA)
        .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
        .field("ts_us", Schema.OPTIONAL_INT64_SCHEMA)
        .field("ts_ns", Schema.OPTIONAL_INT64_SCHEMA)
        .build();
  }

  private static Schema messageSchema() {
    return SchemaBuilder.struct()
        .name("io.debezium.connector.postgresql.MessageValue")
        .version(1)
        .field("op", Schema.STRING_SCHEMA)
        .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
        .field("source", sourceSchema())
        .field("transaction", transactionBlock())
        .field(
            "message",
            SchemaBuilder.struct()
                .name("io.debezium.connector.postgresql.Message")
                .field("prefix", Schema.OPTIONAL_STRING_SCHEMA)
                .field("content", Schema.OPTIONAL_BYTES_SCHEMA)
                .optional()
                .build())
        .build();
  }

  private static Schema transactionBlock() {
    return SchemaBuilder.struct()
        .name("event.block")
        .version(1)
        .field("id", Schema.STRING_SCHEMA)
        .field("total_order", Schema.INT64_SCHEMA)
        .field("data_collection_order", Schema.INT64_SCHEMA)
        .optional()
        .build();
  }
}
