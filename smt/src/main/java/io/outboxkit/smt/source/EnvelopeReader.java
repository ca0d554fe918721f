package io.outboxkit.smt.source;

import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.source.ColumnMapping.TableColumns;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;

/**
 * Reads outbox rows from records of a Debezium source connector. Record types are identified by
 * schema names and fields, so that Debezium's classes are not required.
 */
public final class EnvelopeReader {
  private static final String HEARTBEAT_SCHEMA = "io.debezium.connector.common.Heartbeat";
  private static final String TRANSACTION_SCHEMA =
      "io.debezium.connector.common.TransactionMetadataValue";
  private static final String NOTIFICATION_SCHEMA = "io.debezium.connector.common.Notification";
  private static final String SCHEMA_CHANGE_SUFFIX = ".SchemaChangeValue";

  private static final String CONNECTOR = "postgresql";
  private static final String MESSAGE_OPERATION = "m";
  private static final String MISPLACED_REMEDY =
      "configure OutboxRouter as the first transform of a Debezium source connector";

  private final RouterConfig config;
  private final String table;
  private final String messagePrefix;
  private final int sourceEpoch;
  private final MessageReader messageReader;
  private final PassThrough passThrough;
  private final RowOperations operations;
  private final EventTime eventTime = new EventTime();

  // Caches for the schemas of the previous record. Schemas change only if a table is altered.
  private EnvelopeFields cachedFields;
  private ColumnMapping cachedColumns;

  public EnvelopeReader(RouterConfig config) {
    this.config = config;
    this.table = config.table();
    this.messagePrefix = config.messagePrefix();
    this.sourceEpoch = config.getInt(ConfigName.SOURCE_EPOCH);
    this.messageReader = new MessageReader(config);
    this.passThrough = new PassThrough(config.getList(ConfigName.PASS_THROUGH));
    this.operations = new RowOperations(config);
  }

  /**
   * Return the row or message, null to pass the record on, or {@link OutboxRow#SKIPPED} to drop it.
   *
   * @throws DataException if the options do not cover the record, if a column is missing or has an
   *     unsupported type, or if the content of a message is text
   */
  public OutboxRow read(ConnectRecord<?> record) {
    if (record.value() == null) {
      if (operations.ignoresDeletes() && table != null && PassThrough.isOfTable(record, table)) {
        return OutboxRow.SKIPPED;
      }
      passThrough.requireListedTombstone(record);
      return null;
    }
    if (!(record.value() instanceof Struct envelope)) {
      throw PassThrough.rejection(
          record,
          "a value of class " + record.value().getClass().getName() + ", not a Debezium Struct",
          MISPLACED_REMEDY);
    }
    EnvelopeFields fields = fieldsOf(envelope.schema());
    if (fields == null) {
      requirePassThrough(record, envelope.schema().name());
      return null;
    }
    return readChange(record, envelope, fields);
  }

  private OutboxRow readChange(ConnectRecord<?> record, Struct envelope, EnvelopeFields fields) {
    Struct source = (Struct) envelope.get(fields.source());
    requirePostgres(record, source, fields);
    String operation = (String) envelope.get(fields.operation());
    if (MESSAGE_OPERATION.equals(operation)) {
      return readMessage(record, envelope, source, fields);
    }
    String schemaName = (String) EnvelopeFields.get(source, fields.sourceSchema());
    String tableName = (String) EnvelopeFields.get(source, fields.sourceTable());
    if (!isOutbox(schemaName, tableName)) {
      String name = schemaName + "." + tableName;
      passThrough.requireEntry(
          PassThrough.TABLE_PREFIX + name,
          record,
          "a row of table " + name,
          "remove the table from table.include.list");
      return null;
    }
    if (!operations.isRouted(record, operation)) {
      operations.requireSkippable(operation, () -> sequenceOf(source, fields));
      return OutboxRow.SKIPPED;
    }
    Struct after = (Struct) EnvelopeFields.get(envelope, fields.after());
    if (after == null) {
      throw new DataException("Insert into " + table + " has no row: the field after is null");
    }
    return outboxRow(after, columnsOf(after.schema()), source, fields);
  }

  /** Rows of other connectors have no WAL position: all would have the same source_sequence. */
  private static void requirePostgres(
      ConnectRecord<?> record, Struct source, EnvelopeFields fields) {
    Object connector = EnvelopeFields.get(source, fields.connector());
    if (!CONNECTOR.equals(connector)) {
      throw PassThrough.rejection(
          record,
          "a change event whose source.connector is " + connector + ", not " + CONNECTOR,
          "use Debezium's EventRouter with other connectors");
    }
  }

  private OutboxRow readMessage(
      ConnectRecord<?> record, Struct envelope, Struct source, EnvelopeFields fields) {
    Struct message = (Struct) EnvelopeFields.get(envelope, fields.message());
    if (messagePrefix == null
        || message == null
        || !messagePrefix.equals(message.getString("prefix"))) {
      passThrough.requireEntry(
          "messages",
          record,
          "a logical decoding message",
          "add the prefix to message.prefix.exclude.list");
      return null;
    }
    return messageReader.read(
        message.get("content"),
        // Only transactional messages have a transaction id (Debezium's PgOutputMessageDecoder).
        EnvelopeFields.get(source, fields.transaction()) != null,
        sequenceOf(source, fields),
        (Long) EnvelopeFields.get(source, fields.lsn()),
        commitMillis(source, fields));
  }

  private OutboxRow outboxRow(
      Struct after, ColumnMapping mapping, Struct source, EnvelopeFields fields) {
    return new OutboxRow(
        new TableColumns(after, mapping),
        ColumnMapping.text(after, mapping.id()),
        ColumnMapping.text(after, mapping.key()),
        ColumnMapping.text(after, mapping.aggregateType()),
        ColumnMapping.text(after, mapping.eventType()),
        mapping.schemaVersion() == null ? null : ColumnMapping.text(after, mapping.schemaVersion()),
        ColumnMapping.value(after, mapping.payload()),
        mapping.headers() == null ? null : ColumnMapping.text(after, mapping.headers()),
        eventTime.format(
            ColumnMapping.value(after, mapping.timestamp()), mapping.timestamp().schema().name()),
        sequenceOf(source, fields),
        (Long) EnvelopeFields.get(source, fields.lsn()),
        commitMillis(source, fields));
  }

  private String sequenceOf(Struct source, EnvelopeFields fields) {
    return SourceSequence.format(
        sourceEpoch,
        (String) EnvelopeFields.get(source, fields.sequence()),
        (Long) EnvelopeFields.get(source, fields.lsn()));
  }

  /** Return the commit time in milliseconds, from source.ts_us or, if it is null, source.ts_ms. */
  private static Long commitMillis(Struct source, EnvelopeFields fields) {
    Long micros = (Long) EnvelopeFields.get(source, fields.timestampMicros());
    return micros != null
        ? Long.valueOf(Math.floorDiv(micros, 1000L))
        : (Long) EnvelopeFields.get(source, fields.timestampMillis());
  }

  private boolean isOutbox(String schemaName, String tableName) {
    // The names are not concatenated, because this would allocate a String per record.
    return table != null
        && schemaName != null
        && tableName != null
        && table.length() == schemaName.length() + 1 + tableName.length()
        && table.startsWith(schemaName)
        && table.charAt(schemaName.length()) == '.'
        && table.endsWith(tableName);
  }

  private void requirePassThrough(ConnectRecord<?> record, String schemaName) {
    if (HEARTBEAT_SCHEMA.equals(schemaName)) {
      // Heartbeats always pass, because without them the replication slot would not advance.
      return;
    }
    if (TRANSACTION_SCHEMA.equals(schemaName)) {
      passThrough.requireEntry(
          "transactions", record, "transaction metadata", "set provide.transaction.metadata=false");
    } else if (schemaName != null && schemaName.endsWith(SCHEMA_CHANGE_SUFFIX)) {
      passThrough.requireEntry(
          "schema-changes", record, "a schema change", "set include.schema.changes=false");
    } else if (NOTIFICATION_SCHEMA.equals(schemaName)) {
      throw PassThrough.rejection(
          record, "a notification", "remove sink from notification.enabled.channels");
    } else {
      throw PassThrough.rejection(
          record,
          "a value with schema " + schemaName + ", not a Debezium change event",
          MISPLACED_REMEDY);
    }
  }

  private EnvelopeFields fieldsOf(Schema schema) {
    if (cachedFields != null && cachedFields.schema() == schema) {
      return cachedFields;
    }
    EnvelopeFields fields = EnvelopeFields.of(schema);
    if (fields != null) {
      cachedFields = fields;
    }
    return fields;
  }

  private ColumnMapping columnsOf(Schema schema) {
    if (cachedColumns == null || cachedColumns.schema() != schema) {
      cachedColumns = ColumnMapping.of(schema, config);
    }
    return cachedColumns;
  }

  /**
   * Fields of a Debezium change event. They are looked up once per envelope schema. Debezium 3.7
   * defines these fields in Envelope, AbstractSourceInfoStructMaker and
   * PostgresSourceInfoStructMaker.
   */
  private record EnvelopeFields(
      Schema schema,
      Field operation,
      Field after,
      Field source,
      Field connector,
      Field sourceSchema,
      Field sourceTable,
      Field lsn,
      Field sequence,
      Field timestampMicros,
      Field timestampMillis,
      Field transaction,
      Field message) {

    /** Return the fields, or null if the schema is not the schema of a change event. */
    static EnvelopeFields of(Schema schema) {
      Field operation = schema.field("op");
      Field source = schema.field("source");
      if (operation == null || source == null || source.schema().type() != Schema.Type.STRUCT) {
        return null;
      }
      Schema sourceInfo = source.schema();
      return new EnvelopeFields(
          schema,
          operation,
          schema.field("after"),
          source,
          sourceInfo.field("connector"),
          sourceInfo.field("schema"),
          sourceInfo.field("table"),
          sourceInfo.field("lsn"),
          sourceInfo.field("sequence"),
          sourceInfo.field("ts_us"),
          sourceInfo.field("ts_ms"),
          sourceInfo.field("txId"),
          schema.field("message"));
    }

    /** Return the field's value, or null if the schema does not have the field. */
    static Object get(Struct struct, Field field) {
      return field == null ? null : struct.get(field);
    }
  }
}
