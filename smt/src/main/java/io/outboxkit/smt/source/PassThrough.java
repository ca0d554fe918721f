package io.outboxkit.smt.source;

import java.util.List;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;

/** Rejects records that are not outbox events, unless {@code pass.through} lists their kind. */
record PassThrough(List<String> entries) {
  static final String TABLE_PREFIX = "table:";

  /** Throw DataException, with the connector setting to change, if pass.through lacks the entry. */
  void require(String entry, ConnectRecord<?> record, String description, String remedy) {
    if (!entries.contains(entry)) {
      throw rejected(
          record,
          description,
          "set pass.through=" + entry + ", or " + remedy + " on the connector");
    }
  }

  /**
   * Throw DataException for a tombstone unless its table is in pass.through. The tombstones that
   * Debezium sends after deletes have no source field; {@link #isOfTable} determines their table.
   */
  void requireTombstone(ConnectRecord<?> record) {
    for (String entry : entries) {
      if (entry.startsWith(TABLE_PREFIX)
          && isOfTable(record, entry.substring(TABLE_PREFIX.length()))) {
        return;
      }
    }
    throw rejected(
        record,
        "a tombstone, which Debezium sends after a delete",
        "set pass.through=table:<schema.table>, or tombstones.on.delete=false on the connector");
  }

  /** Return whether the key schema or the topic of a tombstone ends with the table's name. */
  static boolean isOfTable(ConnectRecord<?> record, String table) {
    String keySchema = record.keySchema() == null ? null : record.keySchema().name();
    return endsWithName(keySchema, table + ".Key") || endsWithName(record.topic(), table);
  }

  static DataException rejected(ConnectRecord<?> record, String description, String remedy) {
    return new DataException(
        "Unexpected record on topic %s: %s; %s".formatted(record.topic(), description, remedy));
  }

  private static boolean endsWithName(String text, String name) {
    return text != null && (text.equals(name) || text.endsWith("." + name));
  }
}
