package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/**
 * Rows as JSON, whatever columns they have: json and jsonb columns as the JSON they hold, bytes in
 * base64, everything else by its own kind.
 */
final class RowJson {
  private static final String JSON_COLUMN = "io.debezium.data.Json";

  private RowJson() {}

  /** Writes the fields of an object that is open in the generator. */
  static void writeColumns(JsonGenerator json, Struct row, JsonFactory factory) throws IOException {
    for (Field column : row.schema().fields()) {
      json.writeFieldName(column.name());
      Object value = row.getWithoutDefault(column.name());
      if (value instanceof String text && isJson(column.schema(), text, factory)) {
        json.writeRawValue(text);
      } else {
        write(json, value, factory);
      }
    }
  }

  private static void write(JsonGenerator json, Object value, JsonFactory factory)
      throws IOException {
    if (value == null) {
      json.writeNull();
    } else if (value instanceof Struct struct) {
      json.writeStartObject();
      writeColumns(json, struct, factory);
      json.writeEndObject();
    } else if (value instanceof Collection<?> items) {
      json.writeStartArray();
      for (Object item : items) {
        write(json, item, factory);
      }
      json.writeEndArray();
    } else if (value instanceof Map<?, ?> map) {
      json.writeStartObject();
      for (Map.Entry<?, ?> entry : map.entrySet()) {
        json.writeFieldName(String.valueOf(entry.getKey()));
        write(json, entry.getValue(), factory);
      }
      json.writeEndObject();
    } else {
      writeScalar(json, value);
    }
  }

  private static void writeScalar(JsonGenerator json, Object value) throws IOException {
    if (value instanceof Boolean bool) {
      json.writeBoolean(bool);
    } else if (value instanceof BigDecimal number) {
      json.writeNumber(number);
    } else if (value instanceof Double || value instanceof Float) {
      json.writeNumber(((Number) value).doubleValue());
    } else if (value instanceof Number number) {
      json.writeNumber(number.longValue());
    } else if (value instanceof byte[] bytes) {
      json.writeBinary(bytes);
    } else if (value instanceof ByteBuffer buffer) {
      byte[] bytes = new byte[buffer.remaining()];
      buffer.duplicate().get(bytes);
      json.writeBinary(bytes);
    } else if (value instanceof java.util.Date date) {
      json.writeString(date.toInstant().toString());
    } else {
      json.writeString(value.toString());
    }
  }

  /** Whether the column is json or jsonb. */
  static boolean isJson(Schema schema) {
    return JSON_COLUMN.equals(schema.name());
  }

  private static boolean isJson(Schema schema, String text, JsonFactory factory)
      throws IOException {
    if (!isJson(schema)) {
      return false;
    }
    try (JsonParser parser = factory.createParser(text)) {
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
