package io.outboxkit.smt.util;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.kafka.common.utils.Utils;

/** The default partitioner of Kafka's Java producer. */
public final class KeyPartitioner {
  private KeyPartitioner() {}

  public static int partition(String key, int partitions) {
    return partition(key.getBytes(StandardCharsets.UTF_8), partitions);
  }

  public static int partition(byte[] key, int partitions) {
    return Utils.toPositive(Utils.murmur2(key)) % partitions;
  }

  /**
   * Serialize a key as Kafka's serializer for its class does; return null if there is no
   * serializer. Not by calling it, because Kafka 3 has no serializer for booleans.
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
    return key instanceof Number number ? serializeNumber(number) : null;
  }

  private static byte[] serializeNumber(Number key) {
    if (key instanceof Short number) {
      return ByteBuffer.allocate(Short.BYTES).putShort(number).array();
    }
    if (key instanceof Integer number) {
      return ByteBuffer.allocate(Integer.BYTES).putInt(number).array();
    }
    if (key instanceof Long number) {
      return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
    }
    if (key instanceof Float number) {
      return ByteBuffer.allocate(Float.BYTES).putInt(Float.floatToRawIntBits(number)).array();
    }
    if (key instanceof Double number) {
      // Like DoubleSerializer, with one representation of all NaN values.
      return ByteBuffer.allocate(Double.BYTES).putLong(Double.doubleToLongBits(number)).array();
    }
    return null;
  }
}
