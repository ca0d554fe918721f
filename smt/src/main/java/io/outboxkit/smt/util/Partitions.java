package io.outboxkit.smt.util;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;

/** The partition that Kafka's Java producer picks for a key. */
public final class Partitions {
  private Partitions() {}

  /**
   * murmur2 of the text's UTF-8 bytes, modulo the partition count.
   *
   * @param partitions number of partitions of the topic, above 0
   * @return a partition from 0 to {@code partitions - 1}
   */
  public static int of(String text, int partitions) {
    return of(text.getBytes(StandardCharsets.UTF_8), partitions);
  }

  /** As {@link #of(String, int)}, of a key that is serialized already. */
  public static int of(byte[] key, int partitions) {
    return Utils.toPositive(Utils.murmur2(key)) % partitions;
  }

  /**
   * The bytes that Kafka's serializer for the value's class writes
   * (org.apache.kafka.common.serialization): UTF-8 for strings and UUIDs, big-endian for numbers.
   *
   * @return null if Kafka has none for the class
   */
  public static byte[] serialized(Object key) {
    if (key instanceof String || key instanceof UUID) {
      return key.toString().getBytes(StandardCharsets.UTF_8);
    }
    if (key instanceof byte[] bytes) {
      return bytes;
    }
    if (key instanceof ByteBuffer buffer) {
      byte[] bytes = new byte[buffer.remaining()];
      buffer.duplicate().get(bytes);
      return bytes;
    }
    if (key instanceof Bytes bytes) {
      return bytes.get();
    }
    if (key instanceof Boolean bool) {
      return new byte[] {(byte) (bool ? 1 : 0)};
    }
    return key instanceof Number number ? serialized(number) : null;
  }

  private static byte[] serialized(Number key) {
    if (key instanceof Long number) {
      return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
    }
    if (key instanceof Integer number) {
      return ByteBuffer.allocate(Integer.BYTES).putInt(number).array();
    }
    if (key instanceof Short number) {
      return ByteBuffer.allocate(Short.BYTES).putShort(number).array();
    }
    if (key instanceof Double number) {
      return ByteBuffer.allocate(Double.BYTES).putDouble(number).array();
    }
    if (key instanceof Float number) {
      return ByteBuffer.allocate(Float.BYTES).putFloat(number).array();
    }
    return null;
  }
}
