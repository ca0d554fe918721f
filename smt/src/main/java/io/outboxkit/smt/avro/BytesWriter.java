package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.Base64;
import java.util.HexFormat;

/**
 * JSON strings as bytes or fixed: {@code \x} and hexadecimal digits, as PostgreSQL writes bytea
 * into JSON, or else base64. Avro's own JSON form, one character per byte, cannot be used: jsonb
 * refuses the character 0.
 */
final class BytesWriter extends ValueWriter {
  private static final String HEX_PREFIX = "\\x";

  private final int fixedSize;

  /**
   * @param fixedSize number of bytes of a fixed type; -1 for bytes
   */
  BytesWriter(int fixedSize) {
    super((fixedSize < 0 ? "bytes" : "fixed(" + fixedSize + ")") + " in base64 or \\x hexadecimal");
    this.fixedSize = fixedSize;
  }

  @Override
  boolean takes(JsonToken token) {
    return token == JsonToken.VALUE_STRING;
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    if (json.currentToken() != JsonToken.VALUE_STRING) {
      throw mismatch(json);
    }
    byte[] value = decode(json.getText());
    if (fixedSize < 0) {
      out.writeBytes(value);
    } else if (value.length == fixedSize) {
      out.writeFixed(value);
    } else {
      throw mismatch(value.length + " bytes");
    }
  }

  private byte[] decode(String text) throws PayloadException {
    try {
      return text.startsWith(HEX_PREFIX)
          ? HexFormat.of().parseHex(text, HEX_PREFIX.length(), text.length())
          : Base64.getDecoder().decode(text);
    } catch (IllegalArgumentException e) {
      throw mismatch("another string");
    }
  }
}
