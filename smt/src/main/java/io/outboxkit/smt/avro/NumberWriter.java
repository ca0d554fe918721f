package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** What the writers of numbers share: reading a JSON number without losing any of it. */
abstract class NumberWriter extends ValueWriter {
  NumberWriter(String expected) {
    super(expected);
  }

  @Override
  boolean takes(JsonToken token) {
    return token.isNumeric();
  }

  final void requireNumber(JsonParser json) throws PayloadException {
    JsonToken token = json.currentToken();
    if (token == null || !token.isNumeric()) {
      throw mismatch(json);
    }
  }

  final int exactInt(JsonParser json) throws IOException, PayloadException {
    long value = exactLong(json);
    if (value != (int) value) {
      throw mismatch("a number out of range");
    }
    return (int) value;
  }

  /** The number as a long; {@code 1.0} and {@code 1e3} are whole numbers too. */
  final long exactLong(JsonParser json) throws IOException, PayloadException {
    requireNumber(json);
    if (json.currentToken() == JsonToken.VALUE_NUMBER_INT) {
      if (json.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
        throw mismatch("a number out of range");
      }
      return json.getLongValue();
    }
    try {
      return json.getDecimalValue().longValueExact();
    } catch (ArithmeticException e) {
      throw mismatch("a number that is out of range or not whole");
    }
  }
}
