package io.outboxkit.smt.source;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import io.outboxkit.smt.util.Bytes;
import io.outboxkit.smt.util.Json;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/** Writes Structs as JSON. Columns of type json or jsonb are embedded; bytes become base64. */
final class StructJsonWriter {
  private static final String JSON_SCHEMA_NAME = "io.debezium.data.Json";

  private StructJsonWriter() {}

  /** Write the Struct's fields as fields of the generator's current JSON object. */
  static void writeFields(JsonGenerator json, Struct struct) throws IOException {
    for (Field field : struct.schema().fields()) {
      json.writeFieldName(field.name());
      Object value = struct.getWithoutDefault(field.name());
      if (value instanceof String text && isJson(field.schema()) && isValidJson(text)) {
        json.writeRawValue(text);
      } else {
        writeValue(json, value);
      }
    }
  }

  private static void writeValue(JsonGenerator json, Object value) throws IOException {
    if (value instanceof Struct struct) {
      json.writeStartObject();
      writeFields(json, struct);
      json.writeEndObject();
    } else if (value instanceof Collection<?> items) {
      json.writeStartArray();
      for (Object item : items) {
        writeValue(json, item);
      }
      json.writeEndArray();
    } else if (value instanceof Map<?, ?> map) {
      json.writeStartObject();
      for (Map.Entry<?, ?> entry : map.entrySet()) {
        json.writeFieldName(String.valueOf(entry.getKey()));
        writeValue(json, entry.getValue());
      }
      json.writeEndObject();
    } else if (value instanceof ByteBuffer) {
      json.writeBinary(Bytes.of(value));
    } else if (value instanceof Float number) {
      json.writeNumber(number.doubleValue());
    } else if (value instanceof java.util.Date date) {
      json.writeString(date.toInstant().toString());
    } else {
      // The value is null, a string, a boolean, another number or a byte array.
      json.writeObject(value);
    }
  }

  /** Return whether a column with this schema has the type json or jsonb. */
  static boolean isJson(Schema schema) {
    return JSON_SCHEMA_NAME.equals(schema.name());
  }

  private static boolean isValidJson(String text) throws IOException {
    try (JsonParser parser = Json.FACTORY.createParser(text)) {
      if (parser.nextToken() == null) {
        return false;
      }
      parser.skipChildren();
      return parser.nextToken() == null;
    } catch (JsonProcessingException e) {
      return false;
    }
  }
}
