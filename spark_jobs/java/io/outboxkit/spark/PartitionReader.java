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
 * The records of one range, in order. Offsets that are missing inside of it (compacted, of
 * transactions) pass; a range that begins before the log does, or that the log lost while it was
 * read, fails with Kafka's OffsetOutOfRangeException.
 */
final class PartitionReader {
  private static final Duration STEP = Duration.ofSeconds(1);

  private final NewestRecords.Range range;
  private final long patienceMillis;
  private final TopicPartition partition;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private Iterator<ConsumerRecord<byte[], byte[]>> polled = Collections.emptyIterator();
  private boolean ended;

  PartitionReader(NewestRecords.Range range, NewestRecords.Settings settings) {
    this.range = range;
    patienceMillis = settings.patienceMillis();
    partition = new TopicPartition(range.topic(), range.partition());
    Map<String, Object> options = new HashMap<>(settings.consumer());
    options.put("enable.auto.commit", false);
    // Where a log does not hold what was asked for, reading on from anywhere else is loss.
    options.put("auto.offset.reset", "none");
    consumer =
        new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    consumer.assign(List.of(partition));
    consumer.seek(partition, range.from());
    ended = range.from() >= range.until();
  }

  /** The next record, or null behind the last. Throws IllegalStateException when it waits in vain. */
  ConsumerRecord<byte[], byte[]> next() {
    while (!ended) {
      if (polled.hasNext()) {
        ConsumerRecord<byte[], byte[]> next = polled.next();
        if (next.offset() < range.until()) {
          return next;
        }
        ended = true;
      } else if (consumer.position(partition) >= range.until()) {
        ended = true;
      } else {
        poll();
      }
    }
    return null;
  }

  private void poll() {
    long from = consumer.position(partition);
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMillis);
    do {
      if (TaskContext.get().isInterrupted()) {
        throw new TaskKilledException("no longer wanted");
      }
      polled = consumer.poll(STEP).records(partition).iterator();
      // Behind records that nobody is shown, as those of an aborted transaction, it moves without any.
      if (polled.hasNext() || consumer.position(partition) > from) {
        return;
      }
    } while (System.nanoTime() < deadline);
    throw new IllegalStateException(
        "%s: nothing came from offset %d on for %d s, and %d is the end of what is read"
            .formatted(
                partition, from, TimeUnit.MILLISECONDS.toSeconds(patienceMillis), range.until()));
  }

  void close() {
    consumer.close(Duration.ZERO);
  }
}
