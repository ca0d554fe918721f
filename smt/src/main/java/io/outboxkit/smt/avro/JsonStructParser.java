package io.outboxkit.smt.avro;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.connect.data.Struct;

/**
 * Parses JSON text into Connect Structs of one Avro schema. The text is first encoded as Avro
 * binary, so this parser accepts the same payloads as {@link JsonAvroEncoder}. Not thread-safe.
 */
public final class JsonStructParser {
  private final JsonAvroEncoder encoder;
  private final GenericDatumReader<GenericRecord> reader;
  private final ConnectMapping mapping;
  private final AvroOutput out = new AvroOutput();
  private BinaryDecoder decoder;

  /** Throw IllegalArgumentException if the schema is not a record or has no Connect equivalent. */
  public JsonStructParser(Schema schema, int version) {
    if (schema.getType() != Schema.Type.RECORD) {
      throw new IllegalArgumentException("the type of the schema must be record");
    }
    this.encoder = new JsonAvroEncoder(schema);
    this.mapping = ConnectMapping.of(schema, version);
    this.reader = new GenericDatumReader<>(schema);
  }

  /** Return the schema of the Structs. Each call returns the same object. */
  public org.apache.kafka.connect.data.Schema schema() {
    return mapping.schema();
  }

  /** Throw PayloadException if the text is not JSON or does not fit the schema. */
  public Struct parse(String json) throws PayloadException {
    out.reset();
    encoder.encode(json, out);
    byte[] bytes = out.toByteArray();
    decoder = DecoderFactory.get().binaryDecoder(bytes, decoder);
    try {
      return (Struct) mapping.toConnect(reader.read(null, decoder));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
