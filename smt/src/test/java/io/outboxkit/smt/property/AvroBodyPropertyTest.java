package io.outboxkit.smt.property;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.PayloadException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Arrays;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.EdgeCasesMode;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/** Bytes that claim to be Avro: the checker takes what Avro writes, and only what Avro reads. */
class AvroBodyPropertyTest {
  private static final int DEPTH = 2;

  /** What Avro's own writer made of a value of the schema. */
  record Body(Schema schema, byte[] bytes) {
    @Override
    public String toString() {
      return schema + "\n" + Arrays.toString(bytes);
    }
  }

  @Property(edgeCases = EdgeCasesMode.NONE, tries = 300)
  void acceptsBytesOfAvroAndNoPrefixOfThem(@ForAll("bodies") Body body) throws PayloadException {
    AvroBodyChecker checker = new AvroBodyChecker(body.schema());
    checker.check(body.bytes(), 0);
    for (int length = 0; length < body.bytes().length; length++) {
      byte[] cut = Arrays.copyOf(body.bytes(), length);
      assertThrows(PayloadException.class, () -> checker.check(cut, 0));
    }
  }

  @Property(edgeCases = EdgeCasesMode.NONE)
  void acceptedBytesAreReadByAvro(@ForAll("damaged") Body body) throws IOException {
    try {
      new AvroBodyChecker(body.schema()).check(body.bytes(), 0);
    } catch (PayloadException e) {
      return;
    }
    BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(body.bytes(), null);
    new GenericDatumReader<>(body.schema()).read(null, decoder);
    assertTrue(decoder.isEnd(), "bytes after the value");
  }

  @Provide
  Arbitrary<Body> bodies() {
    return Schemas.records(DEPTH)
        .flatMap(schema -> Payloads.of(schema).map(json -> written(schema, json)))
        .filter(body -> body.bytes() != null);
  }

  @Provide
  Arbitrary<Body> damaged() {
    return bodies()
        .filter(body -> body.bytes().length > 0)
        .flatMap(
            body ->
                Arbitraries.integers()
                    .between(0, body.bytes().length - 1)
                    .tuple2()
                    .flatMap(
                        places ->
                            Arbitraries.bytes()
                                .map(
                                    value -> replaced(body, places.get1(), places.get2(), value))));
  }

  private static Body replaced(Body body, int place, int other, byte value) {
    byte[] bytes = body.bytes().clone();
    bytes[place] = value;
    bytes[other] = (byte) ~value;
    return new Body(body.schema(), bytes);
  }

  /** Without bytes where the JSON does not fit. */
  private static Body written(Schema schema, String json) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
    try {
      new GenericDatumWriter<>(schema).write(ReferencePath.read(schema, json), encoder);
      encoder.flush();
    } catch (ReferencePath.Rejected e) {
      return new Body(schema, null);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    return new Body(schema, bytes.toByteArray());
  }
}
