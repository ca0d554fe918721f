package io.outboxkit.bench;

import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.Converter;

/**
 * Minimal Avro converter, as a lower bound of the cost: AvroData, which the Confluent and Apicurio
 * converters use, and Avro's writer, with a constant schema id.
 */
public final class BareAvroConverter implements Converter {
  private static final int CACHED_SCHEMAS = 1000;

  private final AvroData data =
      new AvroData(
          new AvroDataConfig(Map.of("schemas.cache.config", Integer.toString(CACHED_SCHEMAS))));
  private final Map<org.apache.avro.Schema, GenericDatumWriter<Object>> writers =
      new IdentityHashMap<>();
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
  private BinaryEncoder encoder;

  @Override
  public void configure(Map<String, ?> configs, boolean isKey) {}

  @Override
  public byte[] fromConnectData(String topic, Schema schema, Object value) {
    GenericRecord datum = (GenericRecord) data.fromConnectData(schema, value);
    bytes.reset();
    bytes.write(0);
    bytes.writeBytes(ByteBuffer.allocate(Integer.BYTES).putInt(7).array());
    encoder = EncoderFactory.get().binaryEncoder(bytes, encoder);
    try {
      writers.computeIfAbsent(datum.getSchema(), GenericDatumWriter::new).write(datum, encoder);
      encoder.flush();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  @Override
  public SchemaAndValue toConnectData(String topic, byte[] value) {
    throw new UnsupportedOperationException("a source connector only writes");
  }
}
