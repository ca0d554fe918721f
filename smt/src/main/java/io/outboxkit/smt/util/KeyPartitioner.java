package io.outboxkit.smt.util;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.BooleanSerializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.BytesSerializer;
import org.apache.kafka.common.serialization.DoubleSerializer;
import org.apache.kafka.common.serialization.FloatSerializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.ShortSerializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.serialization.UUIDSerializer;
import org.apache.kafka.common.utils.Utils;

/** The default partitioner of Kafka's Java producer. */
public final class KeyPartitioner {
  private static final Map<Class<?>, Serializer<?>> SERIALIZERS =
      Map.of(
          String.class, new StringSerializer(),
          UUID.class, new UUIDSerializer(),
          Boolean.class, new BooleanSerializer(),
          Short.class, new ShortSerializer(),
          Integer.class, new IntegerSerializer(),
          Long.class, new LongSerializer(),
          Float.class, new FloatSerializer(),
          Double.class, new DoubleSerializer(),
          byte[].class, new ByteArraySerializer(),
          org.apache.kafka.common.utils.Bytes.class, new BytesSerializer());

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
   * Serialize a key with Kafka's serializer for its class.
   *
   * @return null if Kafka has no serializer for the class
   */
  @SuppressWarnings("unchecked") // each serializer is for its key in the map
  public static byte[] serialize(Object key) {
    if (key instanceof ByteBuffer) {
      return Bytes.of(key);
    }
    Serializer<Object> serializer = (Serializer<Object>) SERIALIZERS.get(key.getClass());
    return serializer == null ? null : serializer.serialize(null, key);
  }
}
