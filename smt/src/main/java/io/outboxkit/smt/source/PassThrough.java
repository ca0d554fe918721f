package io.outboxkit.smt.source;

import java.util.List;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;

/** Rejects records that are not outbox events, unless {@code pass.through} lists their kind. */
record PassThrough(List<String> entries) {
  static final String TABLE_PREFIX = "table:";

  /** Throw DataException, which contains the remedy, if pass.through lacks the entry. */
  void requireEntry(String entry, ConnectRecord<?> record, String description, String remedy) {
    if (!entries.contains(entry)) {
      throw rejection(
          record,
          description,
          "add " + entry + " to pass.through, or " + remedy + " on the connector");
    }
  }

  /**
   * Throw DataException for a tombstone unless its table is in pass.through. {@link #isOfTable}
   * determines the table, because Debezium's tombstones after deletes do not have a source field.
   */
  void requireListedTombstone(ConnectRecord<?> record) {
    for (String entry : entries) {
      if (entry.startsWith(TABLE_PREFIX)
          && isOfTable(record, entry.substring(TABLE_PREFIX.length()))) {
        return;
      }
    }
    throw rejection(
        record,
        "a tombstone, which Debezium sends after a delete",
        "add table:SCHEMA.TABLE to pass.through, or set tombstones.on.delete=false on the"
            + " connector");
  }

  /** Return whether a tombstone's key schema or topic is named after the table, with any prefix. */
  static boolean isOfTable(ConnectRecord<?> record, String table) {
    String keySchema = record.keySchema() == null ? null : record.keySchema().name();
    return endsWithName(keySchema, table + ".Key") || endsWithName(record.topic(), table);
  }

  static DataException rejection(ConnectRecord<?> record, String description, String remedy) {
    return new DataException(
        "Unexpected record on topic %s: %s; %s".formatted(record.topic(), description, remedy));
  }

  private static boolean endsWithName(String text, String name) {
    return text != null && (text.equals(name) || text.endsWith("." + name));
  }
}
