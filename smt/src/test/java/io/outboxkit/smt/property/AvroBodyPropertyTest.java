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

/** AvroBodyChecker accepts all bytes that Avro writes, and only bytes that Avro can read. */
class AvroBodyPropertyTest {
  private static final int DEPTH = 2;

  /** A value of the schema, written by Avro. */
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
      byte[] prefix = Arrays.copyOf(body.bytes(), length);
      assertThrows(PayloadException.class, () -> checker.check(prefix, 0));
    }
  }

  @Property(edgeCases = EdgeCasesMode.NONE)
  void acceptedBytesAreReadByAvro(@ForAll("modified") Body body) throws IOException {
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
  Arbitrary<Body> modified() {
    return bodies()
        .filter(body -> body.bytes().length > 0)
        .flatMap(
            body ->
                Arbitraries.integers()
                    .between(0, body.bytes().length - 1)
                    .tuple2()
                    .flatMap(
                        indexes ->
                            Arbitraries.bytes()
                                .map(
                                    value ->
                                        withReplacedBytes(
                                            body, indexes.get1(), indexes.get2(), value))));
  }

  private static Body withReplacedBytes(Body body, int first, int second, byte value) {
    byte[] bytes = body.bytes().clone();
    bytes[first] = value;
    bytes[second] = (byte) ~value;
    return new Body(body.schema(), bytes);
  }

  /** Return the body of the JSON; its bytes are null if the JSON does not fit. */
  private static Body written(Schema schema, String json) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
    try {
      new GenericDatumWriter<>(schema).write(ReferenceReader.read(schema, json), encoder);
      encoder.flush();
    } catch (ReferenceReader.Rejected e) {
      return new Body(schema, null);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    return new Body(schema, bytes.toByteArray());
  }
}
