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
 * Reads ranges of a topic and leaves out what is older than another record of the same key and the
 * same task: of a topic with ten records a key a tenth is left, before Spark makes a row of any.
 *
 * <p>It is no reduction by itself. A key whose records are on both sides of a flush keeps one in
 * each; the aggregation that follows decides.
 */
public final class NewestRecords {
  private static final StructType SCHEMA =
      StructType.fromDDL(
          "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
              + "sequence binary, id_header binary, key_id_header binary, "
              + "_records bigint, _kinds int");

  private NewestRecords() {}

  /** Offsets of one partition, the last one not included. */
  record Range(String topic, int partition, long from, long until) implements Serializable {}

  /** What a reader is told: settings of the consumer, and its own limits. */
  record Settings(Map<String, Object> consumer, long keptBytes, long patienceMillis)
      implements Serializable {
    /** Without the consumer's settings: there are passwords among them. */
    @Override
    public String toString() {
      return "Settings[keptBytes=%d, patienceMillis=%d]".formatted(keptBytes, patienceMillis);
    }

    /** Tasks run side by side, on a heap that has other uses: all their tables are an eighth of it. */
    long keptBytesHere() {
      Runtime here = Runtime.getRuntime();
      return Math.min(keptBytes, here.maxMemory() / 8 / here.availableProcessors());
    }
  }

  /**
   * The newest records of the ranges: a task for each partition. Columns: key, value, partition,
   * offset, timestamp, the source_sequence header, the headers that can carry schema ids, and, for
   * the record and those that it replaced, their number and the kinds of sequence that they had.
   *
   * @param ranges of each partition: its number, the first offset, the one behind the last
   * @param consumer settings of Kafka's consumer
   * @param keptBytes of records that one task keeps before it hands them on
   * @param patienceMillis how long a reader waits for the broker without getting further
   */
  public static Dataset<Row> of(
      SparkSession session,
      String topic,
      List<List<Number>> ranges,
      Map<String, Object> consumer,
      long keptBytes,
      long patienceMillis) {
    // Travels with the closure, which is Java's serialization, whatever spark.serializer says.
    ArrayList<Range> wanted = new ArrayList<>();
    List<Integer> numbers = new ArrayList<>();
    for (List<Number> range : ranges) {
      numbers.add(wanted.size());
      wanted.add(
          new Range(
              topic,
              range.get(0).intValue(),
              range.get(1).longValue(),
              range.get(2).longValue()));
    }
    var classic = (org.apache.spark.sql.classic.SparkSession) session;
    Settings settings = new Settings(Map.copyOf(consumer), keptBytes, patienceMillis);
    JavaRDD<InternalRow> rows =
        JavaSparkContext.fromSparkContext(classic.sparkContext())
            .parallelize(numbers, Math.max(1, numbers.size()))
            .flatMap(number -> opened(wanted.get(number), settings));
    return classic.internalCreateDataFrame(rows.rdd(), SCHEMA, false);
  }

  private static RecordRows opened(Range range, Settings settings) {
    KeptRows.check();
    PartitionReader reader = new PartitionReader(range, settings);
    TaskContext.get().addTaskCompletionListener((TaskCompletionListener) context -> reader.close());
    return new RecordRows(reader, range.partition(), settings.keptBytesHere());
  }
}
