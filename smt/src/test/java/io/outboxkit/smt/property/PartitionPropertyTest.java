package io.outboxkit.smt.property;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.outboxkit.smt.SetPartition;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.stream.IntStream;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.lifecycle.AfterContainer;
import net.jqwik.api.lifecycle.BeforeContainer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.connect.data.ConnectSchema;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * SetPartition sets the partition that a KafkaProducer chooses for a record whose key is the
 * field's value, serialized with Kafka's serializer for the value's class.
 */
class PartitionPropertyTest {
  private static final String TOPIC = "library.note";
  private static final Node NODE = new Node(1, "127.0.0.1", 1);

  /** By number of partitions. */
  private static final Map<Integer, Cluster> CLUSTERS = new HashMap<>();

  private static KafkaProducer<byte[], byte[]> producer;
  private static Method partition;

  /** The producer has no broker. It needs none to choose a partition. */
  @BeforeContainer
  static void startProducer() throws NoSuchMethodException {
    producer =
        new KafkaProducer<>(
            Map.of("bootstrap.servers", "127.0.0.1:1"),
            new ByteArraySerializer(),
            new ByteArraySerializer());
    // The method by which send() chooses the partition.
    partition =
        KafkaProducer.class.getDeclaredMethod(
            "partition", ProducerRecord.class, byte[].class, byte[].class, Cluster.class);
    partition.setAccessible(true);
  }

  @AfterContainer
  static void stopProducer() {
    producer.close(Duration.ZERO);
  }

  @Property
  void stringsHaveTheProducersPartition(
      @ForAll("strings") String key, @ForAll @IntRange(min = 1, max = 300) int count)
      throws Exception {
    assertSamePartition(key, count);
  }

  /** Texts of any characters, including unpaired surrogates. */
  @Provide
  Arbitrary<String> strings() {
    return Arbitraries.oneOf(
        Arbitraries.strings().ofMaxLength(80),
        Arbitraries.strings().withChars('\ud83d', '\ude00', 'a', 'é', '中').ofMaxLength(12),
        Arbitraries.longs().tuple2().map(t -> new UUID(t.get1(), t.get2()).toString()));
  }

  @Property
  void numbersAndBooleansHaveTheProducersPartition(
      @ForAll("numbers") Object key, @ForAll @IntRange(min = 1, max = 300) int count)
      throws Exception {
    assertSamePartition(key, count);
  }

  @Provide
  Arbitrary<Object> numbers() {
    return Arbitraries.oneOf(
        Arbitraries.shorts().asGeneric(),
        Arbitraries.integers().asGeneric(),
        Arbitraries.longs().asGeneric(),
        Arbitraries.floats().asGeneric(),
        Arbitraries.doubles().asGeneric(),
        Arbitraries.of(
                Float.NaN, Float.NEGATIVE_INFINITY, -0.0f, Double.NaN, -0.0, Double.MIN_VALUE)
            .asGeneric(),
        Arbitraries.of(true, false).asGeneric());
  }

  @Property
  void uuidsHaveTheProducersPartition(
      @ForAll long high, @ForAll long low, @ForAll @IntRange(min = 1, max = 300) int count)
      throws Exception {
    assertSamePartition(new UUID(high, low), count);
  }

  @Property
  void bytesHaveTheProducersPartition(
      @ForAll byte[] key, @ForAll @IntRange(min = 1, max = 300) int count) throws Exception {
    assertSamePartition(key, count);
    assertSamePartition(Bytes.wrap(key), count);
    assertSamePartition(ByteBuffer.wrap(key), count);
    assertSamePartition(ByteBuffer.wrap(key).asReadOnlyBuffer(), count);
    assertSamePartition(direct(key), count);
  }

  /** Slices of a larger array. */
  @Property
  void slicesHaveTheProducersPartition(
      @ForAll byte[] key, @ForAll @IntRange(min = 1, max = 300) int count) throws Exception {
    byte[] larger = new byte[key.length + 5];
    System.arraycopy(key, 0, larger, 2, key.length);
    ByteBuffer slice = ByteBuffer.wrap(larger, 2, key.length).slice();
    assertEquals(byProducer(key, count), bySetPartition("key", key(slice), count));
    assertEquals(key.length, slice.remaining());
  }

  private static ByteBuffer direct(byte[] key) {
    ByteBuffer buffer = ByteBuffer.allocateDirect(key.length);
    buffer.put(key).flip();
    return buffer;
  }

  private static void assertSamePartition(Object key, int count) throws Exception {
    int expected = byProducer(serialized(key), count);
    assertEquals(expected, bySetPartition("key", key(key), count));
    assertEquals(expected, bySetPartition("header.h", header(key), count));
    assertEquals(
        expected, bySetPartition("value.a.b", value(Map.of("a", Map.of("b", key))), count));
    Schema schema = schemaOf(key);
    if (schema != null) {
      Schema outer = SchemaBuilder.struct().field("b", schema).build();
      Struct struct = new Struct(outer).put("b", key);
      assertEquals(expected, bySetPartition("value.b", value(struct), count));
    }
  }

  @SuppressWarnings("unchecked")
  private static byte[] serialized(Object key) {
    Class<?> type = key instanceof ByteBuffer ? ByteBuffer.class : key.getClass();
    try (Serializer<Object> serializer = (Serializer<Object>) Serdes.serdeFrom(type).serializer()) {
      return serializer.serialize(TOPIC, key instanceof ByteBuffer b ? b.duplicate() : key);
    }
  }

  private static int byProducer(byte[] key, int count) throws Exception {
    Cluster cluster = CLUSTERS.computeIfAbsent(count, PartitionPropertyTest::cluster);
    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(TOPIC, key, null);
    return (int) partition.invoke(producer, record, key, null, cluster);
  }

  private static Cluster cluster(int count) {
    List<PartitionInfo> partitions =
        IntStream.range(0, count)
            .mapToObj(i -> new PartitionInfo(TOPIC, i, NODE, null, null))
            .toList();
    return new Cluster("c", List.of(NODE), partitions, Set.of(), Set.of());
  }

  private static int bySetPartition(String field, SourceRecord record, int count) {
    SetPartition<SourceRecord> transform = new SetPartition<>();
    transform.configure(Map.of("field", field, "topic.partitions", TOPIC + ":" + count));
    return transform.apply(record).kafkaPartition();
  }

  /** Return null if Connect has no type for the class. */
  private static Schema schemaOf(Object key) {
    Schema.Type type =
        key instanceof UUID || key instanceof Bytes
            ? null
            : ConnectSchema.schemaType(
                key instanceof ByteBuffer ? ByteBuffer.class : key.getClass());
    return type == null ? null : SchemaBuilder.type(type).build();
  }

  private static SourceRecord key(Object key) {
    return new SourceRecord(Map.of(), Map.of(), TOPIC, null, null, key, null, "v");
  }

  private static SourceRecord value(Object value) {
    return new SourceRecord(Map.of(), Map.of(), TOPIC, null, null, "k", null, value);
  }

  private static SourceRecord header(Object value) {
    SourceRecord record = value("v");
    record.headers().add("h", value, null);
    return record;
  }
}
