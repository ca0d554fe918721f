package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.avro.JsonAvroEncoder.UnknownFields;
import io.outboxkit.smt.util.MessageText;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;

/**
 * Writes JSON objects as records. Fields can be in any order, missing fields get the schema's
 * default, and unknown fields are rejected or skipped.
 */
final class RecordWriter extends ValueWriter {
  /** A field. {@code defaultBytes} is its default as Avro binary, or null if there is none. */
  private record Field(int index, String name, ValueWriter writer, byte[] defaultBytes) {}

  private final Map<String, Field> fieldsByName = new HashMap<>();
  private final List<Field> fields = new ArrayList<>();
  private final UnknownFields unknownFields;

  RecordWriter(Schema schema, UnknownFields unknownFields) {
    super("record " + schema.getFullName(), JsonToken.START_OBJECT);
    this.unknownFields = unknownFields;
  }

  void addField(Schema.Field field, ValueWriter writer) {
    Field recordField = new Field(field.pos(), field.name(), writer, encodedDefault(field));
    fieldsByName.put(recordField.name(), recordField);
    fields.add(recordField);
  }

  @Override
  void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
    requireToken(parser, JsonToken.START_OBJECT);
    int start = out.position();
    int frame = out.openRecord(fields.size());
    if (!writeInJsonOrder(parser, out, frame)) {
      copyInSchemaOrder(out, frame, start);
    }
    out.closeRecord(frame);
  }

  /** Write the fields. Return whether the object has all fields of the schema in schema order. */
  private boolean writeInJsonOrder(JsonParser parser, AvroOutput out, int frame)
      throws IOException, PayloadException {
    int writtenCount = 0;
    boolean inSchemaOrder = true;
    for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
      Field field = fieldsByName.get(name);
      if (field == null) {
        skipUnknown(name, parser, out);
        continue;
      }
      if (out.hasField(frame, field.index())) {
        throw new PayloadException("duplicate field \"" + field.name() + "\"");
      }
      int start = out.position();
      parser.nextToken();
      try {
        field.writer().write(parser, out);
      } catch (PayloadException e) {
        throw e.within(field.name());
      }
      out.storeFieldBounds(frame, field.index(), start);
      inSchemaOrder &= field.index() == writtenCount++;
    }
    return inSchemaOrder && writtenCount == fields.size();
  }

  private void skipUnknown(String name, JsonParser parser, AvroOutput out)
      throws IOException, PayloadException {
    if (unknownFields == UnknownFields.REJECT) {
      throw new PayloadException("unknown field " + MessageText.quote(name) + " of " + expected());
    }
    parser.nextToken();
    parser.skipChildren();
    out.addSkippedFields(1);
  }

  private void copyInSchemaOrder(AvroOutput out, int frame, int start) throws PayloadException {
    int reorderedStart = out.position();
    for (Field field : fields) {
      if (out.hasField(frame, field.index())) {
        out.copyField(frame, field.index());
      } else if (field.defaultBytes() != null) {
        out.writeFixed(field.defaultBytes());
      } else {
        throw field.writer().mismatch("neither the field nor a default").within(field.name());
      }
    }
    out.replace(start, reorderedStart);
  }

  private static byte[] encodedDefault(Schema.Field field) {
    if (!field.hasDefaultValue()) {
      return null;
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(bytes, null);
    try {
      Object value = GenericData.get().getDefaultValue(field);
      new GenericDatumWriter<Object>(field.schema()).write(value, encoder);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }
}
