package io.outboxkit.spark;

import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Prevents Spark from reading the records of a batch a second time. All steps of a batch must use
 * the same records, so their rows are persisted. If an executor were lost, Spark would recompute
 * its rows from the topic, which may have been compacted since the first read.
 */
public final class PersistedRows {
  /** Local property that is set for Spark jobs that must not read a topic. */
  public static final String PROPERTY = "outbox.persisted.only";

  private PersistedRows() {}

  /** Thrown by a task that would read a topic because persisted rows are lost. */
  public static final class LostException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    LostException() {
      super("persisted rows of a batch were lost, perhaps because an executor failed");
    }
  }

  /** Throws LostException if the job of this task must not read a topic. */
  static void checkReadAllowed() {
    if (TaskContext.get().getLocalProperty(PROPERTY) != null) {
      throw new LostException();
    }
  }

  /** Returns the rows of a Dataset. Tasks that compute these rows call checkReadAllowed() first. */
  public static Dataset<Row> withReadCheck(Dataset<Row> frame) {
    var classic = (org.apache.spark.sql.classic.SparkSession) frame.sparkSession();
    var plan = ((org.apache.spark.sql.classic.Dataset<Row>) frame).queryExecution();
    JavaRDD<InternalRow> rows =
        plan.toRdd()
            .toJavaRDD()
            .mapPartitions(
                partition -> {
                  checkReadAllowed();
                  return partition;
                });
    return classic.internalCreateDataFrame(rows.rdd(), frame.schema(), false);
  }
}
