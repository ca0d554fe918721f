package io.outboxkit.spark;

import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * Rows of a topic that are kept for the steps of one batch, and must not be read a second time for a
 * later step: where an executor takes them along, Spark would make them again from a log that may
 * have been compacted meanwhile, and the steps would speak of different records.
 */
public final class KeptRows {
  /** A local property of the jobs that may use kept rows only. */
  public static final String PROPERTY = "outbox.kept.only";

  private KeptRows() {}

  /** Said by a task that would read again. */
  public static final class LostException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    LostException() {
      super("rows that were kept are lost, and must not be read again");
    }
  }

  /** For the begin of a task that reads a topic. Throws LostException in a job that must not. */
  static void check() {
    if (TaskContext.get().getLocalProperty(PROPERTY) != null) {
      throw new LostException();
    }
  }

  /** The same rows, of a frame that another reader makes, with that check. */
  public static Dataset<Row> checked(Dataset<Row> frame) {
    var classic = (org.apache.spark.sql.classic.SparkSession) frame.sparkSession();
    var plan = ((org.apache.spark.sql.classic.Dataset<Row>) frame).queryExecution();
    JavaRDD<InternalRow> rows =
        plan.toRdd()
            .toJavaRDD()
            .mapPartitions(
                each -> {
                  check();
                  return each;
                });
    return classic.internalCreateDataFrame(rows.rdd(), frame.schema(), false);
  }
}
