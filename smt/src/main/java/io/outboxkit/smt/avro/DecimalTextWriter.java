package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigDecimal;

/** What the two decimal types share: a JSON number or a string that holds one. */
abstract class DecimalTextWriter extends ValueWriter {
  /** Parsing takes time in the square of the length; Jackson has the same limit for numbers. */
  private static final int MAX_TEXT = 1000;

  DecimalTextWriter(String expected) {
    super(expected);
  }

  @Override
  final boolean takes(JsonToken token) {
    return token.isNumeric() || token == JsonToken.VALUE_STRING;
  }

  final BigDecimal decimal(JsonParser json) throws IOException, PayloadException {
    JsonToken token = json.currentToken();
    if (token == null || !takes(token)) {
      throw mismatch(json);
    }
    return token == JsonToken.VALUE_STRING ? parse(json.getText()) : json.getDecimalValue();
  }

  private BigDecimal parse(String text) throws PayloadException {
    // BigDecimal itself also takes digits of other scripts.
    boolean plain = !text.isEmpty() && text.length() <= MAX_TEXT;
    for (int i = 0; plain && i < text.length(); i++) {
      plain = "0123456789+-.eE".indexOf(text.charAt(i)) >= 0;
    }
    try {
      if (plain) {
        return new BigDecimal(text);
      }
    } catch (NumberFormatException e) {
      // Falls through to the same answer.
    }
    throw mismatch("a string that is no number");
  }
}
