package io.outboxkit.smt.outbox;

import io.outboxkit.smt.outbox.RouterConfig.ConfigName;
import java.util.function.Supplier;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Which changes of the outbox table are events, which are skipped, which stop the task. */
final class RowOperations {
  private static final Logger LOG = LoggerFactory.getLogger(RowOperations.class);

  private static final String CREATE = "c";
  private static final String READ = "r";
  private static final String UPDATE = "u";
  private static final String DELETE = "d";
  private static final String TRUNCATE = "t";

  /**
   * Header of the create that follows the delete when an update changed the primary key
   * (RelationalChangeRecordEmitter).
   */
  private static final String OLD_KEY_HEADER = "__debezium.oldkey";

  /** Values of {@code table.op.invalid.behavior}. */
  static final String FATAL = "fatal";

  static final String ERROR = "error";
  static final String WARN = "warn";

  private final String table;
  private final boolean routesSnapshotRows;
  private final String behavior;
  private final boolean ignoresDeletes;
  private boolean logged;

  RowOperations(RouterConfig config) {
    this.table = config.table();
    this.routesSnapshotRows = config.routesSnapshotRows();
    this.behavior = config.getString(ConfigName.INVALID_OPERATIONS);
    this.ignoresDeletes = config.ignoresDeletes();
  }

  boolean isInsert(ConnectRecord<?> record, String operation) {
    return CREATE.equals(operation) && !isUpdateOfKey(record)
        || READ.equals(operation) && routesSnapshotRows;
  }

  private static boolean isUpdateOfKey(ConnectRecord<?> record) {
    return !record.headers().isEmpty() && record.headers().lastWithName(OLD_KEY_HEADER) != null;
  }

  /** Whether deletes are skipped, and so what Debezium sends after them. */
  boolean ignoresDeletes() {
    return ignoresDeletes;
  }

  /**
   * Returns if a change that is no insert is to be skipped. A create is one half of an update.
   *
   * @param place where it is in the log, for the message
   * @throws DataException if it is not
   */
  void requireSkippable(String operation, Supplier<String> place) {
    if (READ.equals(operation)) {
      throw snapshotRow();
    }
    if (UPDATE.equals(operation) || CREATE.equals(operation)) {
      if (behavior.equals(FATAL)) {
        String what = UPDATE.equals(operation) ? operation : operation + " that updates a key";
        throw change(what, ", or set table.op.invalid.behavior=warn to skip such changes");
      }
      log(place);
    } else if (DELETE.equals(operation) || TRUNCATE.equals(operation)) {
      if (!ignoresDeletes) {
        throw change(operation, ", or set deleted.rows=ignore to skip such changes");
      }
    } else {
      throw change(operation, "");
    }
  }

  /** Once per start: a service that updates its outbox does so again and again. */
  private void log(Supplier<String> place) {
    if (logged && !LOG.isDebugEnabled()) {
      return;
    }
    String text =
        "An update of a row of {} at {} is skipped ({}={}): only inserts are events. Further ones"
            + " are logged at debug.";
    Object[] values = {table, place.get(), ConfigName.INVALID_OPERATIONS, behavior};
    if (logged) {
      LOG.debug(text, values);
    } else if (behavior.equals(ERROR)) {
      LOG.error(text, values);
    } else {
      LOG.warn(text, values);
    }
    logged = true;
  }

  private DataException snapshotRow() {
    return new DataException(
        "A snapshot read rows of "
            + table
            + " (op=r). Snapshots bring old states back: they read in no order of commits. Use"
            + " snapshot.mode=no_data, and write what was there before into the outbox; or"
            + " set snapshot.rows=route if you know that each aggregate has one row.");
  }

  private DataException change(String operation, String skip) {
    return new DataException(
        "The outbox table "
            + table
            + " had a change with op="
            + operation
            + "; only inserts can be routed. Make the publication insert-only (with"
            + " (publish='insert'))"
            + skip
            + ".");
  }
}
