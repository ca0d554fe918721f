package io.outboxkit.smt.outbox;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;

/**
 * Which records besides the outbox's may pass as they are. Each {@code require} method returns if
 * the record may, and otherwise throws a DataException that names the topic and what to set.
 */
public final class PassThrough {
  private static final String TRANSACTIONS = "transactions";
  private static final String SCHEMA_CHANGES = "schema-changes";
  private static final String MESSAGES = "messages";
  private static final String TABLE_PREFIX = "table:";
  private static final String TABLE = TABLE_PREFIX + "\\S+\\.\\S+";
  private static final String KEY_SCHEMA_SUFFIX = ".Key";

  private final Set<String> kinds;
  private final Set<String> tables = new HashSet<>();

  private PassThrough(List<String> entries) {
    this.kinds = Set.copyOf(entries);
    for (String entry : entries) {
      if (entry.startsWith(TABLE_PREFIX)) {
        tables.add(entry.substring(TABLE_PREFIX.length()));
      }
    }
  }

  static PassThrough of(List<String> entries) {
    return new PassThrough(entries);
  }

  boolean hasTable(String table) {
    return tables.contains(table);
  }

  void requireTransactions(ConnectRecord<?> record) {
    if (!kinds.contains(TRANSACTIONS)) {
      throw refused(
          record,
          "transaction metadata",
          "set pass.through=transactions, or provide.transaction.metadata=false on the connector");
    }
  }

  void requireSchemaChanges(ConnectRecord<?> record) {
    if (!kinds.contains(SCHEMA_CHANGES)) {
      throw refused(
          record,
          "a schema change",
          "set pass.through=schema-changes, or include.schema.changes=false on the connector");
    }
  }

  void requireMessages(ConnectRecord<?> record) {
    if (!kinds.contains(MESSAGES)) {
      throw refused(
          record,
          "a logical decoding message",
          "set pass.through=messages, or name the prefix in message.prefix.exclude.list on the"
              + " connector");
    }
  }

  void requireTable(ConnectRecord<?> record, String table) {
    if (!tables.contains(table)) {
      throw refused(
          record,
          "a row of table " + table,
          "set pass.through=table:" + table + ", or take it out of table.include.list");
    }
  }

  /**
   * A record without a value is what Debezium sends after a delete. It carries no source, so the
   * table is recognised by the name of the key schema or, failing that, of the topic.
   */
  void requireTombstone(ConnectRecord<?> record) {
    for (String table : tables) {
      if (isOfTable(record, table)) {
        return;
      }
    }
    throw refused(
        record,
        "a record without a value (Debezium sends one after a delete)",
        "set pass.through=table:<schema.table> for its table, or tombstones.on.delete=false on the"
            + " connector");
  }

  /** Whether a record without a value is one of that table. */
  static boolean isOfTable(ConnectRecord<?> record, String table) {
    String keySchema = record.keySchema() == null ? null : record.keySchema().name();
    return endsWithName(keySchema, table + KEY_SCHEMA_SUFFIX)
        || endsWithName(record.topic(), table);
  }

  static DataException refused(ConnectRecord<?> record, String what, String remedy) {
    return new DataException(
        "Refused on topic " + record.topic() + ": " + what + ". To change that, " + remedy + ".");
  }

  private static boolean endsWithName(String text, String name) {
    return text != null
        && text.endsWith(name)
        && (text.length() == name.length()
            || text.charAt(text.length() - name.length() - 1) == '.');
  }

  /** Refuses kinds there are not. */
  static final class Validator implements ConfigDef.Validator {
    private static final Set<String> KINDS = Set.of(TRANSACTIONS, SCHEMA_CHANGES, MESSAGES);

    @Override
    public void ensureValid(String name, Object value) {
      if (value == null) {
        throw new ConfigException(name, null, "must be " + this);
      }
      for (Object entry : (List<?>) value) {
        String text = (String) entry;
        if (!KINDS.contains(text) && !text.matches(TABLE)) {
          throw new ConfigException(name, text, "must be " + this);
        }
      }
    }

    @Override
    public String toString() {
      return "a list of transactions, schema-changes, messages, table:<schema.table>";
    }
  }
}
