package io.outboxkit.smt.util;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Utils;

/** Computes the partition of a record key as the default partitioner of Kafka's producer does. */
public final class KeyPartitioner {
  private static final Map<Class<?>, Serde<?>> SERDES =
      Map.of(
          String.class, Serdes.String(),
          UUID.class, Serdes.UUID(),
          Short.class, Serdes.Short(),
          Integer.class, Serdes.Integer(),
          Long.class, Serdes.Long(),
          Float.class, Serdes.Float(),
          Double.class, Serdes.Double(),
          byte[].class, Serdes.ByteArray(),
          org.apache.kafka.common.utils.Bytes.class, Serdes.Bytes());

  private KeyPartitioner() {}

  public static int partition(String key, int partitionCount) {
    return partition(key.getBytes(StandardCharsets.UTF_8), partitionCount);
  }

  public static int partition(byte[] key, int partitionCount) {
    return Utils.toPositive(Utils.murmur2(key)) % partitionCount;
  }

  /** Serialize a key with Kafka's serializer for its class, or return null if none exists. */
  @SuppressWarnings("unchecked") // each serde serializes the class to which SERDES maps it
  public static byte[] serialize(Object key) {
    if (key instanceof ByteBuffer) {
      return Bytes.of(key);
    }
    if (key instanceof Boolean bool) { // older Kafka clients have no BooleanSerializer
      return new byte[] {(byte) (bool ? 1 : 0)};
    }
    Serde<Object> serde = (Serde<Object>) SERDES.get(key.getClass());
    return serde == null ? null : serde.serializer().serialize(null, key);
  }
}
