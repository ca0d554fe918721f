package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.util.Names;
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
 * JSON objects as records. Fields come in any order; missing ones take the schema's default;
 * unknown ones are refused or skipped.
 */
final class RecordWriter extends ValueWriter {
  /**
   * @param defaultBytes the default in Avro binary; null if the field has none
   */
  private record Field(int index, String name, ValueWriter writer, byte[] defaultBytes) {}

  private final Map<String, Field> byName = new HashMap<>();
  private final List<Field> inOrder = new ArrayList<>();
  private final UnknownFields unknownFields;

  RecordWriter(Schema schema, UnknownFields unknownFields) {
    super("record " + schema.getFullName());
    this.unknownFields = unknownFields;
  }

  void addField(Schema.Field field, ValueWriter writer) {
    Field added = new Field(field.pos(), field.name(), writer, defaultOf(field));
    byName.put(added.name(), added);
    inOrder.add(added);
  }

  @Override
  boolean takes(JsonToken token) {
    return token == JsonToken.START_OBJECT;
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    if (json.currentToken() != JsonToken.START_OBJECT) {
      throw mismatch(json);
    }
    int start = out.position();
    int frame = out.openRecord(inOrder.size());
    if (!writeAsTheyCome(json, out, frame)) {
      putInSchemaOrder(out, frame, start);
    }
    out.closeRecord(frame);
  }

  /** Returns whether every field was there, in the order of the schema. */
  private boolean writeAsTheyCome(JsonParser json, AvroOutput out, int frame)
      throws IOException, PayloadException {
    int written = 0;
    boolean ordered = true;
    for (String name = json.nextFieldName(); name != null; name = json.nextFieldName()) {
      Field field = byName.get(name);
      if (field == null) {
        skipUnknown(name, json, out);
        continue;
      }
      if (out.hasField(frame, field.index())) {
        throw new PayloadException("field \"" + field.name() + "\" is there twice");
      }
      int start = out.position();
      json.nextToken();
      try {
        field.writer().write(json, out);
      } catch (PayloadException e) {
        throw e.within(field.name());
      }
      out.fieldWritten(frame, field.index(), start);
      ordered &= field.index() == written++;
    }
    return ordered && written == inOrder.size();
  }

  private void skipUnknown(String name, JsonParser json, AvroOutput out)
      throws IOException, PayloadException {
    if (unknownFields == UnknownFields.REFUSE) {
      throw new PayloadException(
          "unknown field " + Names.shown(name) + ", " + expected() + " has none of that name");
    }
    json.nextToken();
    json.skipChildren();
    out.skipFields(1);
  }

  private void putInSchemaOrder(AvroOutput out, int frame, int start) throws PayloadException {
    int reordered = out.position();
    for (Field field : inOrder) {
      if (out.hasField(frame, field.index())) {
        out.repeatField(frame, field.index());
      } else if (field.defaultBytes() != null) {
        out.writeFixed(field.defaultBytes());
      } else {
        throw new PayloadException(
                "expected "
                    + field.writer().expected()
                    + ", the field is missing and has no default")
            .within(field.name());
      }
    }
    out.replace(start, reordered);
  }

  private static byte[] defaultOf(Schema.Field field) {
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
