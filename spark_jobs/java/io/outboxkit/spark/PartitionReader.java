package io.outboxkit.spark;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/**
 * Reads the records of one range after another, in offset order. Fetches the next ranges at the
 * same time, until their records reach a limit. Skips offsets without a record (compacted records,
 * transaction markers). Throws Kafka's OffsetOutOfRangeException if a range starts before the log
 * start offset, or if records of a range are deleted while it is read.
 */
final class PartitionReader {
  private static final Duration POLL_TIMEOUT = Duration.ofSeconds(1);

  /** Time without a record after which the brokers are asked whether the topic still exists. */
  private static final Duration MAX_SILENCE = Duration.ofSeconds(5);

  /** Size in bytes of the records of later ranges above which no more of them are fetched. */
  private static final long MAX_PREFETCHED_BYTES = 64L << 20;

  private final long timeoutMillis;
  private final Map<String, Object> properties;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final Map<TopicPartition, Queue<ConsumerRecord<byte[], byte[]>>> polled = new HashMap<>();
  private final Map<TopicPartition, Long> ends = new HashMap<>();
  private NewestRecords.Range range;
  private TopicPartition partition;
  private Queue<ConsumerRecord<byte[], byte[]>> current;
  private long prefetchedBytes;
  private boolean isAtEnd = true;

  /** Thrown if the records of a range do not arrive. The message contains no values of records. */
  public static final class MissingRecordsException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    MissingRecordsException(String message) {
      super(message);
    }
  }

  /** Thrown if the topic is deleted while it is read. The message has no values of records. */
  public static final class TopicDeletedException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    TopicDeletedException(String topic) {
      super("topic %s was deleted while it was read".formatted(topic));
    }
  }

  PartitionReader(NewestRecords.Settings settings, List<NewestRecords.Range> ranges) {
    timeoutMillis = settings.timeoutMillis();
    properties = new HashMap<>(settings.consumer());
    properties.put("enable.auto.commit", false);
    // Fail if the start offset does not exist, because another start offset would skip records.
    properties.put("auto.offset.reset", "none");
    consumer = IdleConsumers.take(properties);
    List<NewestRecords.Range> read = ranges.stream().filter(PartitionReader::hasOffsets).toList();
    for (NewestRecords.Range next : read) {
      polled.put(partitionOf(next), new ArrayDeque<>());
      ends.put(partitionOf(next), next.until());
    }
    consumer.assign(ends.keySet());
    read.forEach(next -> consumer.seek(partitionOf(next), next.from()));
  }

  private static boolean hasOffsets(NewestRecords.Range range) {
    return range.from() < range.until();
  }

  private static TopicPartition partitionOf(NewestRecords.Range range) {
    return new TopicPartition(range.topic(), range.partition());
  }

  /** Continues with the records of another range. */
  void open(NewestRecords.Range nextRange) {
    range = nextRange;
    partition = partitionOf(range);
    isAtEnd = !hasOffsets(range);
    if (!isAtEnd) {
      current = polled.get(partition);
      current.forEach(record -> prefetchedBytes -= sizeOf(record));
      consumer.resume(List.of(partition));
    }
  }

  /**
   * Returns the next record, or null at the end. Throws MissingRecordsException on a timeout, and
   * TopicDeletedException if the topic no longer exists.
   */
  ConsumerRecord<byte[], byte[]> next() {
    while (!isAtEnd) {
      ConsumerRecord<byte[], byte[]> record = current.poll();
      if (record != null) {
        return record;
      }
      if (consumer.position(partition) >= range.until()) {
        isAtEnd = true;
        consumer.pause(List.of(partition));
      } else {
        poll();
      }
    }
    return null;
  }

  private void poll() {
    long offset = consumer.position(partition);
    long start = System.nanoTime();
    long deadline = start + TimeUnit.MILLISECONDS.toNanos(timeoutMillis);
    boolean isChecked = false;
    do {
      if (TaskContext.get().isInterrupted()) {
        throw new TaskKilledException("the Spark task was cancelled");
      }
      keep(consumer.poll(POLL_TIMEOUT));
      // Records of an aborted transaction are not returned, but they advance the position.
      if (!current.isEmpty() || consumer.position(partition) > offset) {
        return;
      }
      if (!isChecked && System.nanoTime() - start > MAX_SILENCE.toNanos()) {
        isChecked = true;
        if (!consumer.listTopics(MAX_SILENCE).containsKey(partition.topic())) {
          throw new TopicDeletedException(partition.topic());
        }
      }
    } while (System.nanoTime() < deadline);
    throw new MissingRecordsException(
        "%s: no record at or after offset %d arrived within %d s; the range ends at offset %d"
            .formatted(
                partition, offset, TimeUnit.MILLISECONDS.toSeconds(timeoutMillis), range.until()));
  }

  /** Keeps the records of the ranges, and ends fetching from partitions whose range is complete. */
  private void keep(ConsumerRecords<byte[], byte[]> records) {
    for (TopicPartition place : records.partitions()) {
      long until = ends.get(place);
      for (ConsumerRecord<byte[], byte[]> record : records.records(place)) {
        if (record.offset() >= until) {
          break;
        }
        polled.get(place).add(record);
        prefetchedBytes += place.equals(partition) ? 0 : sizeOf(record);
      }
      if (consumer.position(place) >= until) {
        consumer.pause(List.of(place));
      }
    }
    if (prefetchedBytes > MAX_PREFETCHED_BYTES) {
      consumer.pause(ends.keySet().stream().filter(place -> !place.equals(partition)).toList());
    }
  }

  private static long sizeOf(ConsumerRecord<byte[], byte[]> record) {
    return Math.max(0, record.serializedKeySize()) + Math.max(0, record.serializedValueSize());
  }

  /** Closes the consumer, or keeps it for another task if this one `succeeded`. */
  void close(boolean succeeded) {
    if (succeeded) {
      IdleConsumers.give(properties, consumer);
    } else {
      IdleConsumers.close(consumer);
    }
  }
}
