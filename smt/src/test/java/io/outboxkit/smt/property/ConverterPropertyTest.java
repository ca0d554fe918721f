package io.outboxkit.smt.property;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.JsonStructParser;
import io.outboxkit.smt.avro.PayloadException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Map;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Assume;
import net.jqwik.api.EdgeCasesMode;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Struct;

/** ParsePayload with an Avro converter writes the values that OutboxRouter writes. */
class ConverterPropertyTest {
  private static final int DEPTH = 2;
  private static final AvroData CONVERTER =
      new AvroData(
          new AvroDataConfig(
              Map.of("enhanced.avro.schema.support", "true", "connect.meta.data", "true")));

  @Property(edgeCases = EdgeCasesMode.NONE)
  void structsAreWrittenLikePayloads(@ForAll("payloads") EncoderPropertyTest.Case payload)
      throws Exception {
    byte[] byEncoder = encoded(payload);
    Assume.that(byEncoder != null);
    Struct struct = new JsonStructParser(payload.schema(), 1).parse(payload.json());
    struct.validate();
    Object converted = CONVERTER.fromConnectData(struct.schema(), struct);
    assertEquals(
        read(payload.schema(), byEncoder),
        read(payload.schema(), byAvro(payload.schema(), converted)));
  }

  /** Only schemas with Connect equivalents. For other schemas see ConverterAgreesTest. */
  @Provide
  Arbitrary<EncoderPropertyTest.Case> payloads() {
    return Schemas.records(DEPTH)
        .filter(ConverterPropertyTest::isSupported)
        .flatMap(
            schema -> Payloads.of(schema).map(json -> new EncoderPropertyTest.Case(schema, json)));
  }

  private static boolean isSupported(Schema schema) {
    try {
      return new JsonStructParser(schema, 1) != null;
    } catch (IllegalArgumentException e) {
      return false;
    }
  }

  private static byte[] encoded(EncoderPropertyTest.Case payload) {
    AvroOutput out = new AvroOutput();
    try {
      new JsonAvroEncoder(payload.schema()).encode(payload.json(), out);
      return out.toByteArray();
    } catch (PayloadException e) {
      return null;
    }
  }

  private static byte[] byAvro(Schema schema, Object value) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
    new GenericDatumWriter<>(schema).write(value, encoder);
    encoder.flush();
    return bytes.toByteArray();
  }

  private static Object read(Schema schema, byte[] bytes) throws IOException {
    return new GenericDatumReader<>(schema)
        .read(null, DecoderFactory.get().binaryDecoder(bytes, null));
  }
}
