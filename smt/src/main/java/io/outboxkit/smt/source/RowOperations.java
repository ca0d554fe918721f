package io.outboxkit.smt.source;

import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import java.util.function.Supplier;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Determines whether a change of the outbox table is routed, is skipped, or stops the task. */
final class RowOperations {
  private static final Logger LOG = LoggerFactory.getLogger(RowOperations.class);

  private static final String CREATE = "c";
  private static final String READ = "r";
  private static final String UPDATE = "u";
  private static final String DELETE = "d";
  private static final String TRUNCATE = "t";

  /**
   * Header that identifies an update of the primary key. Debezium sends such an update as a delete
   * event and a create event with this header (RelationalChangeRecordEmitter).
   */
  private static final String OLD_KEY_HEADER = "__debezium.oldkey";

  private final String table;
  private final boolean routesSnapshotRows;
  private final String updateBehavior;
  private final boolean ignoresDeletes;
  private boolean updateLogged;

  RowOperations(RouterConfig config) {
    this.table = config.table();
    this.routesSnapshotRows = config.routesSnapshotRows();
    this.updateBehavior = config.getString(ConfigName.INVALID_OPERATIONS);
    this.ignoresDeletes = config.ignoresDeletes();
  }

  boolean isRouted(ConnectRecord<?> record, String operation) {
    return CREATE.equals(operation) && !isKeyUpdate(record)
        || READ.equals(operation) && routesSnapshotRows;
  }

  private static boolean isKeyUpdate(ConnectRecord<?> record) {
    return !record.headers().isEmpty() && record.headers().lastWithName(OLD_KEY_HEADER) != null;
  }

  boolean ignoresDeletes() {
    return ignoresDeletes;
  }

  /** Log a skipped update. Throw DataException if the operation must stop the task. */
  void requireSkippable(String operation, Supplier<String> sequence) {
    if (READ.equals(operation)) {
      throw new DataException(
          String.format(
              "Snapshot row of table %s (op=r): a snapshot does not read rows in commit order, so"
                  + " old states can overwrite newer states; set snapshot.mode=no_data, or set"
                  + " snapshot.rows=route if each aggregate has only one row",
              table));
    } else if (UPDATE.equals(operation) || CREATE.equals(operation)) {
      if (updateBehavior.equals(RouterConfig.FATAL)) {
        throw unsupportedOperation(
            UPDATE.equals(operation) ? operation : operation + " after an update of the key",
            ", or set table.op.invalid.behavior=warn");
      }
      logSkippedUpdate(sequence);
    } else if (DELETE.equals(operation) || TRUNCATE.equals(operation)) {
      if (!ignoresDeletes) {
        throw unsupportedOperation(operation, ", or set deleted.rows=ignore");
      }
    } else {
      throw unsupportedOperation(operation, "");
    }
  }

  /** Log the first skipped update at the configured level. Log further updates at DEBUG. */
  private void logSkippedUpdate(Supplier<String> sequence) {
    if (updateLogged && !LOG.isDebugEnabled()) {
      return;
    }
    String format =
        "Skipped an update of a row of {} with source_sequence {} ({}={}): only inserts are routed."
            + " Further skipped updates are logged at DEBUG.";
    Object[] arguments = {table, sequence.get(), ConfigName.INVALID_OPERATIONS, updateBehavior};
    if (updateLogged) {
      LOG.debug(format, arguments);
    } else if (updateBehavior.equals(RouterConfig.ERROR)) {
      LOG.error(format, arguments);
    } else {
      LOG.warn(format, arguments);
    }
    updateLogged = true;
  }

  private DataException unsupportedOperation(String operation, String alternative) {
    return new DataException(
        String.format(
            "Change of outbox table %s with op=%s: only inserts can be routed; set"
                + " the publication's parameter publish to 'insert'%s",
            table, operation, alternative));
  }
}
