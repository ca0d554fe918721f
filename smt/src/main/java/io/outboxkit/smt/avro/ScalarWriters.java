package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** Writers of the primitive types without a logical type. */
final class ScalarWriters {
  private ScalarWriters() {}

  static ValueWriter nullWriter() {
    return new ValueWriter("null") {
      @Override
      boolean takes(JsonToken token) {
        return token == JsonToken.VALUE_NULL;
      }

      @Override
      void write(JsonParser json, AvroOutput out) throws PayloadException {
        if (json.currentToken() != JsonToken.VALUE_NULL) {
          throw mismatch(json);
        }
      }
    };
  }

  static ValueWriter booleanWriter() {
    return new ValueWriter("boolean") {
      @Override
      boolean takes(JsonToken token) {
        return token == JsonToken.VALUE_TRUE || token == JsonToken.VALUE_FALSE;
      }

      @Override
      void write(JsonParser json, AvroOutput out) throws PayloadException {
        if (!takes(json.currentToken())) {
          throw mismatch(json);
        }
        out.writeBoolean(json.currentToken() == JsonToken.VALUE_TRUE);
      }
    };
  }

  static ValueWriter stringWriter() {
    return new ValueWriter("string") {
      @Override
      boolean takes(JsonToken token) {
        return token == JsonToken.VALUE_STRING;
      }

      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        if (json.currentToken() != JsonToken.VALUE_STRING) {
          throw mismatch(json);
        }
        char[] text = json.getTextCharacters();
        if (!out.writeString(text, json.getTextOffset(), json.getTextLength())) {
          throw mismatch("a string with half a surrogate pair");
        }
      }
    };
  }

  static ValueWriter intWriter() {
    return new NumberWriter("int") {
      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        out.writeInt(exactInt(json));
      }
    };
  }

  static ValueWriter longWriter() {
    return new NumberWriter("long") {
      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        out.writeLong(exactLong(json));
      }
    };
  }

  static ValueWriter floatWriter() {
    return new NumberWriter("float") {
      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        requireNumber(json);
        // Not getFloatValue: the parser would keep the float, and hand it, or an internal error, to
        // the next branch of a union when this one refuses the number as too large.
        float value = Float.parseFloat(json.getText());
        if (!Float.isFinite(value)) {
          throw mismatch("a number out of range");
        }
        out.writeFloat(value);
      }
    };
  }

  static ValueWriter doubleWriter() {
    return new NumberWriter("double") {
      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        requireNumber(json);
        double value = json.getDoubleValue();
        if (!Double.isFinite(value)) {
          throw mismatch("a number out of range");
        }
        out.writeDouble(value);
      }
    };
  }
}
