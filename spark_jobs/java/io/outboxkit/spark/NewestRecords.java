package io.outboxkit.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
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

  /** Consumer settings, buffer limit and poll timeout of each task. */
  record Settings(Map<String, Object> consumer, long bufferBytes, long timeoutMillis)
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

  /**
   * Returns the newest records of each buffer. One task reads each range. The columns are the key,
   * value, partition, offset, timestamp, the headers source_sequence (null if it is malformed),
   * __value_schema_id and __key_schema_id, the number of records that the row represents (including
   * superseded records), and the sequence kinds of these records.
   *
   * @param ranges partition number, start offset and end offset (excluded) of each partition
   * @param consumer settings of Kafka's consumer
   * @param bufferBytes maximum size of the records that one task buffers; 0 to return every record
   * @param timeoutMillis time limit for polls that neither return records nor advance the position
   */
  public static Dataset<Row> of(
      SparkSession session,
      String topic,
      List<List<Number>> ranges,
      Map<String, Object> consumer,
      long bufferBytes,
      long timeoutMillis) {
    // Captured by the closure, which Java always serializes; RDD items use spark.serializer.
    ArrayList<Range> readRanges = new ArrayList<>();
    List<Integer> indexes = new ArrayList<>();
    for (List<Number> range : ranges) {
      indexes.add(readRanges.size());
      readRanges.add(
          new Range(
              topic, range.get(0).intValue(), range.get(1).longValue(), range.get(2).longValue()));
    }
    var classic = (org.apache.spark.sql.classic.SparkSession) session;
    Settings settings = new Settings(Map.copyOf(consumer), bufferBytes, timeoutMillis);
    JavaRDD<InternalRow> rows =
        JavaSparkContext.fromSparkContext(classic.sparkContext())
            .parallelize(indexes, Math.max(1, indexes.size()))
            .flatMap(index -> openRows(readRanges.get(index), settings));
    return classic.internalCreateDataFrame(rows.rdd(), SCHEMA, false);
  }

  private static RecordRows openRows(Range range, Settings settings) {
    PersistedRows.checkReadAllowed();
    PartitionReader reader = new PartitionReader(range, settings);
    TaskContext.get().addTaskCompletionListener((TaskCompletionListener) context -> reader.close());
    return new RecordRows(reader, range.partition(), settings.bufferBytesPerTask());
  }
}
