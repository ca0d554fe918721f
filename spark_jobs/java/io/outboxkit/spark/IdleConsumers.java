package io.outboxkit.spark;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers that the tasks of an executor use one after another. A new consumer takes longer than
 * the records of a small batch, because it connects to the brokers and requests metadata.
 */
final class IdleConsumers {
  private static final int MAX_PER_SETTINGS = Runtime.getRuntime().availableProcessors();
  private static final long MAX_IDLE_NANOS = Duration.ofMinutes(1).toNanos();
  private static final Map<Map<String, Object>, Deque<Idle>> IDLE = new HashMap<>();

  private IdleConsumers() {}

  private record Idle(KafkaConsumer<byte[], byte[]> consumer, long since) {}

  /** Returns an idle consumer with these settings, or a new one. It has no partitions. */
  static KafkaConsumer<byte[], byte[]> take(Map<String, Object> settings) {
    synchronized (IDLE) {
      closeOld();
      Deque<Idle> idle = IDLE.get(settings);
      if (idle != null && !idle.isEmpty()) {
        return idle.pop().consumer();
      }
    }
    return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  /** Keeps a consumer whose last request succeeded for another task. */
  static void give(Map<String, Object> settings, KafkaConsumer<byte[], byte[]> consumer) {
    consumer.assign(List.of());
    synchronized (IDLE) {
      closeOld();
      Deque<Idle> idle = IDLE.computeIfAbsent(settings, key -> new ArrayDeque<>());
      if (idle.size() < MAX_PER_SETTINGS) {
        idle.push(new Idle(consumer, System.nanoTime()));
        return;
      }
    }
    close(consumer);
  }

  static void close(KafkaConsumer<byte[], byte[]> consumer) {
    consumer.close(Duration.ZERO);
  }

  private static void closeOld() {
    long now = System.nanoTime();
    for (Deque<Idle> idle : IDLE.values()) {
      while (!idle.isEmpty() && now - idle.peekLast().since() > MAX_IDLE_NANOS) {
        close(idle.removeLast().consumer());
      }
    }
    IDLE.values().removeIf(Deque::isEmpty);
  }
}
