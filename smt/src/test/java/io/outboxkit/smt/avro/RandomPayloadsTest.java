package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Random;
import org.apache.avro.Schema;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Whatever the schema: the bytes are those of Avro's own writer, and half a text is refused. */
class RandomPayloadsTest {
  private static final int SCHEMAS = 300;
  private static final int VALUES = 10;

  @ParameterizedTest
  @ValueSource(longs = {1, 2, 3})
  void bytesAreThoseOfAvro(long seed) throws Exception {
    RandomPayloads payloads = new RandomPayloads(seed);
    AvroOutput out = new AvroOutput();
    for (int i = 0; i < SCHEMAS; i++) {
      Schema schema = payloads.record(3);
      JsonAvroEncoder encoder = new JsonAvroEncoder(schema);
      for (int j = 0; j < VALUES; j++) {
        RandomPayloads.Pair value = payloads.value(schema);
        out.reset();
        encoder.encode(value.json(), out);
        assertArrayEquals(
            Encoding.byAvro(schema, value.avro()),
            out.toByteArray(),
            () -> schema + "\n" + value.json());
      }
    }
  }

  /** Only PayloadException: any other one would stop the task instead of making a dead letter. */
  @ParameterizedTest
  @ValueSource(longs = {4, 5})
  void textThatWasCutOffIsRefused(long seed) {
    RandomPayloads payloads = new RandomPayloads(seed);
    Random random = new Random(seed);
    for (int i = 0; i < SCHEMAS; i++) {
      Schema schema = payloads.record(3);
      JsonAvroEncoder encoder = new JsonAvroEncoder(schema);
      String json = payloads.value(schema).json();
      String cut = json.substring(0, random.nextInt(json.length()));
      assertThrows(
          PayloadException.class,
          () -> encoder.encode(cut, new AvroOutput()),
          () -> schema + "\n" + cut);
    }
  }

  /** A value of one schema offered to another: accepted or refused, but never anything else. */
  @ParameterizedTest
  @ValueSource(longs = {6, 7})
  void valuesOfOtherSchemasDoNoHarm(long seed) {
    RandomPayloads payloads = new RandomPayloads(seed);
    AvroOutput out = new AvroOutput();
    for (int i = 0; i < SCHEMAS; i++) {
      String json = payloads.value(payloads.record(3)).json();
      Schema other = payloads.record(3);
      out.reset();
      try {
        new JsonAvroEncoder(other).encode(json, out);
        Encoding.decode(other, out.toByteArray());
      } catch (PayloadException e) {
        // The other outcome.
      }
    }
  }
}
