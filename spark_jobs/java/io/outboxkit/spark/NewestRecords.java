package io.outboxkit.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Reads offset ranges of a topic. Each task repeatedly fills a buffer of limited size, and returns
 * only the newest record of each key in the buffer. If a buffer holds ten records per key, Spark
 * creates only a tenth of the rows. The result may contain several records of a key, one from each
 * buffer, so the caller must aggregate them.
 */
public final class NewestRecords {
  private static final StructType SCHEMA =
      StructType.fromDDL(
          "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
              + "sequence binary, id_header binary, key_id_header binary, "
              + "__outbox_records bigint, __outbox_kinds int");

  private NewestRecords() {}

  /** Offsets to read from one partition: `from` is inclusive, `until` is exclusive. */
  record Range(String topic, int partition, long from, long until) implements Serializable {}

  /** Consumer settings, buffer limit, handling of records and poll timeout of each task. */
  record Settings(
      Map<String, Object> consumer,
      long bufferBytes,
      boolean requiresSequence,
      long timeoutMillis)
      implements Serializable {
    /** Omits the consumer settings, which may include passwords. */
    @Override
    public String toString() {
      return "Settings[bufferBytes=%d, timeoutMillis=%d]".formatted(bufferBytes, timeoutMillis);
    }

    /** Returns bufferBytes, limited to 1/8 of the heap divided by the number of processors. */
    long bufferBytesPerTask() {
      Runtime runtime = Runtime.getRuntime();
      return Math.min(bufferBytes, runtime.maxMemory() / 8 / runtime.availableProcessors());
    }
  }

  /** Ranges that the tasks of a plan read. The driver can replace them between two executions. */
  public static final class Ranges implements Serializable {
    // A list that Java serializes with the closure of each job; RDD items use spark.serializer.
    private ArrayList<Range> current = new ArrayList<>();

    /**
     * Replaces the ranges.
     *
     * @param ranges partition number, start offset and end offset (excluded) of each partition
     */
    public void set(String topic, List<List<Number>> ranges) {
      ArrayList<Range> replaced = new ArrayList<>();
      for (List<Number> range : ranges) {
        int partition = range.get(0).intValue();
        long from = range.get(1).longValue();
        replaced.add(new Range(topic, partition, from, range.get(2).longValue()));
      }
      current = replaced;
    }

    /** Returns every n-th range, where n is the number of tasks, starting with the task's own. */
    private List<Range> ofTask(int task, int taskCount) {
      List<Range> ranges = new ArrayList<>();
      for (int index = task; index < current.size(); index += taskCount) {
        ranges.add(current.get(index));
      }
      return ranges;
    }
  }

  /**
   * Returns the newest records of each buffer. The columns are the key, value, partition, offset,
   * timestamp, the headers source_sequence (null if it is malformed), __value_schema_id and
   * __key_schema_id, the number of records that the row represents (including superseded records),
   * and the sequence kinds of these records. Each execution reads the ranges that were set last.
   *
   * @param taskCount number of tasks. With one task, the rows are aggregated without a shuffle, so
   *     the plan can be executed repeatedly.
   * @param consumer settings of Kafka's consumer
   * @param bufferBytes maximum size of the records that one task buffers; 0 to return every record
   * @param requiresSequence whether a record without source_sequence is handled as one with a
   *     malformed source_sequence
   * @param timeoutMillis time limit for polls that neither return records nor advance the position
   */
  public static Dataset<Row> of(
      SparkSession session,
      Ranges ranges,
      int taskCount,
      Map<String, Object> consumer,
      long bufferBytes,
      boolean requiresSequence,
      long timeoutMillis) {
    var classic = (org.apache.spark.sql.classic.SparkSession) session;
    Settings settings =
        new Settings(Map.copyOf(consumer), bufferBytes, requiresSequence, timeoutMillis);
    List<Integer> tasks = IntStream.range(0, taskCount).boxed().toList();
    JavaRDD<InternalRow> rows =
        JavaSparkContext.fromSparkContext(classic.sparkContext())
            .parallelize(tasks, taskCount)
            .flatMap(task -> openRows(ranges.ofTask(task, taskCount), settings));
    Dataset<Row> frame = classic.internalCreateDataFrame(rows.rdd(), SCHEMA, false);
    return taskCount == 1 ? frame.coalesce(1) : frame; // otherwise, Spark would add a shuffle
  }

  private static RecordRows openRows(List<Range> ranges, Settings settings) {
    PersistedRows.checkReadAllowed();
    PartitionReader reader = new PartitionReader(settings, ranges);
    TaskCompletionListener close =
        context -> reader.close(!context.isFailed() && !context.isInterrupted());
    TaskContext.get().addTaskCompletionListener(close);
    return new RecordRows(
        reader, ranges.iterator(), settings.bufferBytesPerTask(), settings.requiresSequence());
  }
}
