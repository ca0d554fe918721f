package io.outboxkit.spark;

import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/**
 * Reads the records of one range after another, in offset order. Skips offsets without a record
 * (compacted records, transaction markers). Throws Kafka's OffsetOutOfRangeException if a range
 * starts before the log start offset, or if records of a range are deleted while it is read.
 */
final class PartitionReader {
  private static final Duration POLL_TIMEOUT = Duration.ofSeconds(1);

  private final long timeoutMillis;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private NewestRecords.Range range;
  private TopicPartition partition;
  private Iterator<ConsumerRecord<byte[], byte[]>> polledRecords = Collections.emptyIterator();
  private boolean isAtEnd = true;

  PartitionReader(NewestRecords.Settings settings) {
    timeoutMillis = settings.timeoutMillis();
    Map<String, Object> properties = new HashMap<>(settings.consumer());
    properties.put("enable.auto.commit", false);
    // Fail if the start offset does not exist, because another start offset would skip records.
    properties.put("auto.offset.reset", "none");
    consumer =
        new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  /** Continues with the records of another range. */
  void open(NewestRecords.Range nextRange) {
    range = nextRange;
    partition = new TopicPartition(range.topic(), range.partition());
    polledRecords = Collections.emptyIterator();
    consumer.assign(List.of(partition));
    consumer.seek(partition, range.from());
    isAtEnd = range.from() >= range.until();
  }

  /** Returns the next record, or null at the end. Throws IllegalStateException on a timeout. */
  ConsumerRecord<byte[], byte[]> next() {
    while (!isAtEnd) {
      if (polledRecords.hasNext()) {
        ConsumerRecord<byte[], byte[]> record = polledRecords.next();
        if (record.offset() < range.until()) {
          return record;
        }
        isAtEnd = true;
      } else if (consumer.position(partition) >= range.until()) {
        isAtEnd = true;
      } else {
        poll();
      }
    }
    return null;
  }

  private void poll() {
    long offset = consumer.position(partition);
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
    do {
      if (TaskContext.get().isInterrupted()) {
        throw new TaskKilledException("the Spark task was cancelled");
      }
      polledRecords = consumer.poll(POLL_TIMEOUT).records(partition).iterator();
      // Records of an aborted transaction are not returned, but they advance the position.
      if (polledRecords.hasNext() || consumer.position(partition) > offset) {
        return;
      }
    } while (System.nanoTime() < deadline);
    throw new IllegalStateException(
        "%s: no record at or after offset %d arrived within %d s; the range ends at offset %d"
            .formatted(
                partition, offset, TimeUnit.MILLISECONDS.toSeconds(timeoutMillis), range.until()));
  }

  void close() {
    consumer.close(Duration.ZERO);
  }
}
