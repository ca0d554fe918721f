package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.Schema;

/** Writers of null, boolean, string, enum, uuid, bytes and fixed. */
final class ScalarWriters {
  private ScalarWriters() {}

  static final class NullWriter extends ValueWriter {
    NullWriter() {
      super("null", JsonToken.VALUE_NULL);
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws PayloadException {
      requireToken(parser, JsonToken.VALUE_NULL);
    }
  }

  static final class BooleanWriter extends ValueWriter {
    BooleanWriter() {
      super("boolean", JsonToken.VALUE_TRUE, JsonToken.VALUE_FALSE);
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws PayloadException {
      requireAcceptedToken(parser);
      out.writeBoolean(parser.currentToken() == JsonToken.VALUE_TRUE);
    }
  }

  static final class StringWriter extends ValueWriter {
    StringWriter() {
      super("string", JsonToken.VALUE_STRING);
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireToken(parser, JsonToken.VALUE_STRING);
      char[] text = parser.getTextCharacters();
      if (!out.writeString(text, parser.getTextOffset(), parser.getTextLength())) {
        throw mismatch("a string with an unpaired surrogate");
      }
    }
  }

  /** Writes enum symbols. Unknown symbols are rejected, because only readers use the default. */
  static final class EnumWriter extends ValueWriter {
    private final Map<String, Integer> ordinals = new HashMap<>();

    EnumWriter(Schema schema) {
      super("enum " + schema.getFullName() + " " + schema.getEnumSymbols(), JsonToken.VALUE_STRING);
      for (String symbol : schema.getEnumSymbols()) {
        ordinals.put(symbol, schema.getEnumOrdinal(symbol));
      }
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireToken(parser, JsonToken.VALUE_STRING);
      Integer ordinal = ordinals.get(parser.getText());
      if (ordinal == null) {
        throw mismatch("a string that is not a symbol");
      }
      out.writeInt(ordinal);
    }
  }

  /** Writes UUIDs of the form 8-4-4-4-12 as string or fixed(16). */
  static final class UuidWriter extends ValueWriter {
    private static final int LENGTH = 36;

    /** Whether each character is a hexadecimal digit. This is faster than HexFormat.isHexDigit. */
    private static final boolean[] IS_HEX_DIGIT = new boolean['f' + 1];

    static {
      for (char c = 0; c < IS_HEX_DIGIT.length; c++) {
        IS_HEX_DIGIT[c] = HexFormat.isHexDigit(c);
      }
    }

    private final boolean isFixed;

    UuidWriter(boolean isFixed) {
      super("uuid", JsonToken.VALUE_STRING);
      this.isFixed = isFixed;
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireToken(parser, JsonToken.VALUE_STRING);
      char[] text = parser.getTextCharacters();
      int offset = parser.getTextOffset();
      if (!isUuid(text, offset, parser.getTextLength())) {
        throw mismatch("a string in a different format");
      }
      if (isFixed) {
        out.writeFixed(HexFormat.of().parseHex(new String(text, offset, LENGTH).replace("-", "")));
      } else {
        out.writeString(text, offset, LENGTH);
      }
    }

    private static boolean isUuid(char[] text, int offset, int length) {
      if (length != LENGTH) {
        return false;
      }
      for (int i = 0; i < LENGTH; i++) {
        char c = text[offset + i];
        boolean dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? c != '-' : c >= IS_HEX_DIGIT.length || !IS_HEX_DIGIT[c]) {
          return false;
        }
      }
      return true;
    }
  }

  /**
   * Writes bytes and fixed. The input is base64, or hexadecimal digits after {@code \x}, as in
   * PostgreSQL's bytea output. Avro's JSON encoding, with one character per byte, is not supported,
   * because jsonb cannot store U+0000.
   */
  static final class BytesWriter extends ValueWriter {
    private static final String HEX_PREFIX = "\\x";

    /** Size, in bytes, of a fixed type, or -1 for the type bytes. */
    private final int fixedSize;

    BytesWriter(int fixedSize) {
      super(
          (fixedSize < 0 ? "bytes" : "fixed(" + fixedSize + ")") + " in base64 or \\x hexadecimal",
          JsonToken.VALUE_STRING);
      this.fixedSize = fixedSize;
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireToken(parser, JsonToken.VALUE_STRING);
      byte[] value = decodeText(parser.getText());
      if (fixedSize < 0) {
        out.writeBytes(value);
      } else if (value.length == fixedSize) {
        out.writeFixed(value);
      } else {
        throw mismatch(value.length + " bytes");
      }
    }

    private byte[] decodeText(String text) throws PayloadException {
      try {
        return text.startsWith(HEX_PREFIX)
            ? HexFormat.of().parseHex(text, HEX_PREFIX.length(), text.length())
            : Base64.getDecoder().decode(text);
      } catch (IllegalArgumentException e) {
        throw mismatch("a string in a different format");
      }
    }
  }
}
