package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HexFormat;

/** JSON strings in the form 8-4-4-4-12 as uuid: on string as they are, on fixed(16) as bytes. */
final class UuidWriter extends ValueWriter {
  private static final int LENGTH = 36;

  /** HexFormat.isHexDigit costs a check of its table per character. */
  private static final boolean[] HEX = new boolean['f' + 1];

  static {
    for (char c = 0; c < HEX.length; c++) {
      HEX[c] = HexFormat.isHexDigit(c);
    }
  }

  private final boolean binary;

  private UuidWriter(boolean binary) {
    super("uuid");
    this.binary = binary;
  }

  static UuidWriter text() {
    return new UuidWriter(false);
  }

  static UuidWriter binary() {
    return new UuidWriter(true);
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
    char[] text = json.getTextCharacters();
    int offset = json.getTextOffset();
    if (!isUuid(text, offset, json.getTextLength())) {
      throw mismatch("another string");
    }
    if (binary) {
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
      if (dash ? c != '-' : c >= HEX.length || !HEX[c]) {
        return false;
      }
    }
    return true;
  }
}
