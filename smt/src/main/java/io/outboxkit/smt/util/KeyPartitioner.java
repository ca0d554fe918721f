package io.outboxkit.smt.util;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.kafka.common.utils.Utils;

/** The default partitioner of Kafka's Java producer. */
public final class KeyPartitioner {
  private KeyPartitioner() {}

  /** Return the partition of a string key. */
  public static int partition(String key, int partitions) {
    return partition(key.getBytes(StandardCharsets.UTF_8), partitions);
  }

  /** Return the partition of a serialized key. */
  public static int partition(byte[] key, int partitions) {
    return Utils.toPositive(Utils.murmur2(key)) % partitions;
  }

  /**
   * Serialize a key as the serializer for its class in org.apache.kafka.common.serialization does.
   *
   * @return null if Kafka has no serializer for the class
   */
  public static byte[] serialize(Object key) {
    if (key instanceof String || key instanceof UUID) {
      return key.toString().getBytes(StandardCharsets.UTF_8);
    }
    if (key instanceof byte[] || key instanceof ByteBuffer) {
      return Bytes.of(key);
    }
    if (key instanceof org.apache.kafka.common.utils.Bytes bytes) {
      return bytes.get();
    }
    if (key instanceof Boolean bool) {
      return new byte[] {(byte) (bool ? 1 : 0)};
    }
    return key instanceof Number number ? serialize(number) : null;
  }

  private static byte[] serialize(Number key) {
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
