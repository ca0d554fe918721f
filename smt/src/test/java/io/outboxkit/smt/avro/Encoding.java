package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/** Encodes with JsonAvroEncoder, decodes with Avro's reader. */
final class Encoding {
  private Encoding() {}

  static Schema schema(String json) {
    return new Schema.Parser().parse(json);
  }

  static byte[] encode(Schema schema, String json) throws PayloadException {
    AvroOutput out = new AvroOutput();
    new JsonAvroEncoder(schema).encode(json, out);
    return out.toByteArray();
  }

  static Object decode(Schema schema, byte[] bytes) {
    BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
    try {
      Object value = new GenericDatumReader<>(schema).read(null, decoder);
      if (!decoder.isEnd()) {
        throw new AssertionError("bytes after the value");
      }
      return value;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  static Object roundTrip(String schema, String json) throws PayloadException {
    Schema parsed = schema(schema);
    return decode(parsed, encode(parsed, json));
  }

  /** Encode the value with Avro's writer. */
  static byte[] byAvro(Schema schema, Object value) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
    try {
      new GenericDatumWriter<>(schema).write(value, encoder);
      encoder.flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  static String rejection(String schema, String json) {
    Schema parsed = schema(schema);
    return assertThrows(PayloadException.class, () -> encode(parsed, json)).getMessage();
  }
}
