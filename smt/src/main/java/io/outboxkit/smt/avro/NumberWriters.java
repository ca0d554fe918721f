package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.Arrays;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;

/** Writers of the numeric types. Only the writers of float and double round numbers. */
final class NumberWriters {
  private NumberWriters() {}

  /** Base class of writers that accept JSON numbers and, optionally, strings. */
  abstract static class NumberWriter extends ValueWriter {
    NumberWriter(String expected) {
      super(expected, JsonToken.VALUE_NUMBER_INT, JsonToken.VALUE_NUMBER_FLOAT);
    }

    NumberWriter(String expected, JsonToken stringToken) {
      super(expected, JsonToken.VALUE_NUMBER_INT, JsonToken.VALUE_NUMBER_FLOAT, stringToken);
    }

    final int readExactInt(JsonParser parser) throws IOException, PayloadException {
      long value = readExactLong(parser);
      if (value != (int) value) {
        throw mismatch("a number out of range");
      }
      return (int) value;
    }

    /** Return the number as a long. {@code 1.0} and {@code 1e3} are accepted as integers. */
    final long readExactLong(JsonParser parser) throws IOException, PayloadException {
      if (parser.currentToken() == JsonToken.VALUE_NUMBER_INT) {
        if (parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER) {
          throw mismatch("a number out of range");
        }
        return parser.getLongValue();
      }
      requireAcceptedToken(parser);
      try {
        return parser.getDecimalValue().longValueExact();
      } catch (ArithmeticException e) {
        throw mismatch("a number that is out of range or not an integer");
      }
    }
  }

  static final class IntWriter extends NumberWriter {
    IntWriter() {
      super("int");
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      out.writeInt(readExactInt(parser));
    }
  }

  static final class LongWriter extends NumberWriter {
    LongWriter() {
      super("long");
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      out.writeLong(readExactLong(parser));
    }
  }

  static final class FloatWriter extends NumberWriter {
    FloatWriter() {
      super("float");
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireAcceptedToken(parser);
      // getFloatValue() is not used, because the parser caches the float. If this union branch then
      // rejected a number as too large, the next branch would get the float or an internal error.
      float value = Float.parseFloat(parser.getText());
      if (value == 0 && parser.currentToken() == JsonToken.VALUE_NUMBER_INT) {
        // Write the integer -0 as 0.0 instead of -0.0, like DoubleWriter.
        value = 0;
      }
      if (!Float.isFinite(value)) {
        throw mismatch("a number out of range");
      }
      out.writeFloat(value);
    }
  }

  static final class DoubleWriter extends NumberWriter {
    DoubleWriter() {
      super("double");
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireAcceptedToken(parser);
      double value = parser.getDoubleValue();
      if (!Double.isFinite(value)) {
        throw mismatch("a number out of range");
      }
      out.writeDouble(value);
    }
  }

  /** Base class of the decimal writers, which accept JSON numbers and numbers in strings. */
  abstract static class DecimalTextWriter extends NumberWriter {
    /** Maximum string length, like Jackson's for numbers, because parsing takes quadratic time. */
    private static final int MAX_TEXT_LENGTH = 1000;

    DecimalTextWriter(String expected) {
      super(expected, JsonToken.VALUE_STRING);
    }

    final BigDecimal readDecimal(JsonParser parser) throws IOException, PayloadException {
      requireAcceptedToken(parser);
      return parser.currentToken() == JsonToken.VALUE_STRING
          ? parseText(parser.getText())
          : parser.getDecimalValue();
    }

    private BigDecimal parseText(String text) throws PayloadException {
      // Check the characters, because BigDecimal also accepts digits of other scripts.
      boolean isPlain = !text.isEmpty() && text.length() <= MAX_TEXT_LENGTH;
      for (int i = 0; isPlain && i < text.length(); i++) {
        isPlain = "0123456789+-.eE".indexOf(text.charAt(i)) >= 0;
      }
      try {
        if (isPlain) {
          return new BigDecimal(text);
        }
      } catch (NumberFormatException e) {
        // The text is rejected below, like text with other characters.
      }
      throw mismatch("a string that is not a number of up to " + MAX_TEXT_LENGTH + " characters");
    }
  }

  /** Writes decimals as bytes or fixed. Rejects values that exceed the scale or precision. */
  static final class DecimalWriter extends DecimalTextWriter {
    private final int precision;
    private final int scale;

    /** Size, in bytes, of a fixed type, or -1 for the type bytes. */
    private final int fixedSize;

    DecimalWriter(LogicalTypes.Decimal type, int fixedSize) {
      super("decimal(" + type.getPrecision() + "," + type.getScale() + ")");
      this.precision = type.getPrecision();
      this.scale = type.getScale();
      this.fixedSize = fixedSize;
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      byte[] unscaled = rescale(readDecimal(parser)).unscaledValue().toByteArray();
      if (fixedSize < 0) {
        out.writeBytes(unscaled);
        return;
      }
      byte[] padded = new byte[fixedSize];
      Arrays.fill(padded, (byte) (unscaled[0] < 0 ? -1 : 0));
      // Avro checks the precision against the size when it parses the schema, so the value fits.
      System.arraycopy(unscaled, 0, padded, fixedSize - unscaled.length, unscaled.length);
      out.writeFixed(padded);
    }

    private BigDecimal rescale(BigDecimal value) throws PayloadException {
      BigDecimal stripped = value.scale() == scale ? value : stripTrailingZeros(value);
      if (stripped.signum() == 0) {
        return BigDecimal.ZERO;
      }
      if (stripped.scale() > scale) {
        throw mismatch("a number with more than " + scale + " fraction digits");
      }
      // Check the digits before setScale, which would write out all zeros of 1e999999999.
      if ((long) stripped.precision() - stripped.scale() + scale > precision) {
        throw mismatch("a number with more than " + (precision - scale) + " integer digits");
      }
      return stripped.setScale(scale);
    }

    private BigDecimal stripTrailingZeros(BigDecimal value) throws PayloadException {
      try {
        return value.stripTrailingZeros();
      } catch (ArithmeticException e) {
        // For 100e2147483647, stripTrailingZeros increases the exponent beyond the range of int.
        throw mismatch("a number with more than " + (precision - scale) + " integer digits");
      }
    }
  }

  /** Writes big-decimals. The encoded bytes of each value contain its scale. */
  static final class BigDecimalWriter extends DecimalTextWriter {
    private static final Schema BYTES_SCHEMA = Schema.create(Schema.Type.BYTES);

    private final Conversions.BigDecimalConversion conversion =
        new Conversions.BigDecimalConversion();

    BigDecimalWriter() {
      super("big-decimal");
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      BigDecimal value = readDecimal(parser);
      out.writeBytes(conversion.toBytes(value, BYTES_SCHEMA, LogicalTypes.bigDecimal()).array());
    }
  }
}
