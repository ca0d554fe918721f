package io.outboxkit.smt.outbox;

import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;

/**
 * Tells what Debezium sent: a row or message of the outbox, something that may pass, or something
 * nobody named. Kinds are recognised by schema names and fields, so no Debezium class is needed.
 */
public final class EnvelopeReader {
  private static final String HEARTBEAT = "io.debezium.connector.common.Heartbeat";
  private static final String TRANSACTION = "io.debezium.connector.common.TransactionMetadataValue";
  private static final String NOTIFICATION = "io.debezium.connector.common.Notification";
  private static final String SCHEMA_CHANGE_SUFFIX = ".SchemaChangeValue";

  private static final String MESSAGE = "m";

  private final RouterConfig config;
  private final String table;
  private final String messagePrefix;
  private final int sourceEpoch;
  private final MessageReader messages;
  private final PassThrough passThrough;
  private final RowOperations operations;
  private final EventTime eventTime = new EventTime();

  // The schemas of the last record: Debezium makes new ones only when the table changes.
  private EnvelopeFields fields;
  private Columns columns;

  public EnvelopeReader(RouterConfig config) {
    this.config = config;
    this.table = config.table();
    this.messagePrefix = config.messagePrefix();
    this.sourceEpoch = config.sourceEpoch();
    this.messages = new MessageReader(config);
    this.passThrough = config.passThrough();
    this.operations = new RowOperations(config);
  }

  /**
   * The outbox row or message in the record; null if the record is to pass as it is, {@link
   * OutboxRow#SKIPPED} if it is to be dropped.
   *
   * @throws DataException if the record is neither: the message names the topic and what to set
   */
  public OutboxRow read(ConnectRecord<?> record) {
    if (record.value() == null) {
      if (operations.ignoresDeletes() && table != null && PassThrough.isOfTable(record, table)) {
        return OutboxRow.SKIPPED;
      }
      passThrough.requireTombstone(record);
      return null;
    }
    if (!(record.value() instanceof Struct envelope)) {
      throw PassThrough.refused(
          record,
          "a value of class " + record.value().getClass().getName() + ", not a Debezium Struct",
          "put this transform first and use it with Debezium's source connectors only");
    }
    EnvelopeFields known = fieldsOf(envelope.schema());
    if (known == null) {
      requireMetadataAllowed(record, envelope.schema().name());
      return null;
    }
    return readChange(record, envelope, known);
  }

  private OutboxRow readChange(ConnectRecord<?> record, Struct envelope, EnvelopeFields known) {
    String operation = (String) envelope.get(known.operation());
    if (MESSAGE.equals(operation)) {
      return readMessage(record, envelope, known);
    }
    Struct source = (Struct) envelope.get(known.source());
    String schemaName = (String) EnvelopeFields.get(source, known.sourceSchema());
    String tableName = (String) EnvelopeFields.get(source, known.sourceTable());
    if (!isOutbox(schemaName, tableName)) {
      passThrough.requireTable(record, schemaName + "." + tableName);
      return null;
    }
    if (!operations.isInsert(record, operation)) {
      operations.requireSkippable(operation, () -> sequenceOf(source, known));
      return OutboxRow.SKIPPED;
    }
    Struct after = (Struct) EnvelopeFields.get(envelope, known.after());
    if (after == null) {
      throw new DataException("An insert into " + table + " came without its row (after).");
    }
    return row(after, columnsOf(after.schema()), source, known);
  }

  private OutboxRow readMessage(ConnectRecord<?> record, Struct envelope, EnvelopeFields known) {
    Struct message = (Struct) EnvelopeFields.get(envelope, known.message());
    if (messagePrefix == null
        || message == null
        || !messagePrefix.equals(message.getString("prefix"))) {
      passThrough.requireMessages(record);
      return null;
    }
    Struct source = (Struct) envelope.get(known.source());
    return messages.read(
        message.get("content"),
        // Debezium leaves out the transaction of messages that belong to none
        // (PgOutputMessageDecoder).
        EnvelopeFields.get(source, known.transaction()) != null,
        sequenceOf(source, known),
        (Long) EnvelopeFields.get(source, known.lsn()),
        commitMillis(source, known));
  }

  private OutboxRow row(Struct after, Columns at, Struct source, EnvelopeFields known) {
    return new OutboxRow(
        new TableColumns(after, at),
        Columns.text(after, at.id()),
        Columns.text(after, at.key()),
        Columns.text(after, at.aggregateType()),
        Columns.text(after, at.eventType()),
        at.schemaVersion() == null ? null : Columns.text(after, at.schemaVersion()),
        Columns.value(after, at.payload()),
        at.headers() == null ? null : Columns.text(after, at.headers()),
        eventTime.format(Columns.value(after, at.timestamp()), at.timestamp().schema().name()),
        sequenceOf(source, known),
        (Long) EnvelopeFields.get(source, known.lsn()),
        commitMillis(source, known));
  }

  private String sequenceOf(Struct source, EnvelopeFields known) {
    return SourceSequence.format(
        sourceEpoch,
        (String) EnvelopeFields.get(source, known.sequence()),
        (Long) EnvelopeFields.get(source, known.lsn()));
  }

  /** Debezium fills source.ts_* with the commit time of the transaction. */
  private static Long commitMillis(Struct source, EnvelopeFields known) {
    Long micros = (Long) EnvelopeFields.get(source, known.micros());
    return micros != null
        ? Long.valueOf(Math.floorDiv(micros, 1000L))
        : (Long) EnvelopeFields.get(source, known.millis());
  }

  private boolean isOutbox(String schemaName, String tableName) {
    // Compared in parts: joining the names would cost a String per record.
    return table != null
        && schemaName != null
        && tableName != null
        && table.length() == schemaName.length() + 1 + tableName.length()
        && table.startsWith(schemaName)
        && table.charAt(schemaName.length()) == '.'
        && table.endsWith(tableName);
  }

  private void requireMetadataAllowed(ConnectRecord<?> record, String name) {
    if (HEARTBEAT.equals(name)) {
      // Dropping or refusing these would stop the replication slot from moving.
      return;
    }
    if (TRANSACTION.equals(name)) {
      passThrough.requireTransactions(record);
    } else if (name != null && name.endsWith(SCHEMA_CHANGE_SUFFIX)) {
      passThrough.requireSchemaChanges(record);
    } else if (NOTIFICATION.equals(name)) {
      throw PassThrough.refused(
          record, "a notification", "take sink out of notification.enabled.channels");
    } else {
      throw PassThrough.refused(
          record,
          "a value with schema " + name + ", not a change event of Debezium",
          "put this transform first and use it with Debezium's source connectors only");
    }
  }

  private EnvelopeFields fieldsOf(Schema schema) {
    if (fields != null && fields.schema() == schema) {
      return fields;
    }
    EnvelopeFields resolved = EnvelopeFields.of(schema);
    if (resolved != null) {
      fields = resolved;
    }
    return resolved;
  }

  private Columns columnsOf(Schema schema) {
    if (columns == null || columns.schema() != schema) {
      columns = Columns.of(schema, config);
    }
    return columns;
  }
}
