package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.Arrays;
import org.apache.avro.LogicalTypes;

/**
 * JSON numbers, or strings that hold one, as decimals on bytes or fixed. Digits that the scale or
 * the precision has no room for are refused, never rounded; nothing passes through a double.
 */
final class DecimalWriter extends DecimalTextWriter {
  private final int precision;
  private final int scale;
  private final int fixedSize;

  /**
   * @param fixedSize number of bytes of a fixed type; -1 for bytes
   */
  DecimalWriter(LogicalTypes.Decimal type, int fixedSize) {
    super("decimal(" + type.getPrecision() + "," + type.getScale() + ")");
    this.precision = type.getPrecision();
    this.scale = type.getScale();
    this.fixedSize = fixedSize;
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    byte[] unscaled = atScale(decimal(json)).unscaledValue().toByteArray();
    if (fixedSize < 0) {
      out.writeBytes(unscaled);
      return;
    }
    byte[] padded = new byte[fixedSize];
    Arrays.fill(padded, (byte) (unscaled[0] < 0 ? -1 : 0));
    // The precision bounds the length: Avro checks it against the size when it parses the schema.
    System.arraycopy(unscaled, 0, padded, fixedSize - unscaled.length, unscaled.length);
    out.writeFixed(padded);
  }

  private BigDecimal atScale(BigDecimal value) throws PayloadException {
    BigDecimal shortest = value.scale() == scale ? value : shortest(value);
    if (shortest.signum() == 0) {
      return BigDecimal.ZERO;
    }
    if (shortest.scale() > scale) {
      throw mismatch("a number with more fraction digits");
    }
    // Before setScale, which would write out all the zeros of 1e999999999.
    if ((long) shortest.precision() - shortest.scale() + scale > precision) {
      throw mismatch("a number with more digits");
    }
    return shortest.setScale(scale);
  }

  private BigDecimal shortest(BigDecimal value) throws PayloadException {
    try {
      return value.stripTrailingZeros();
    } catch (ArithmeticException e) {
      // The exponent of 100e2147483647 does not fit once its zeros are part of it.
      throw mismatch("a number with more digits");
    }
  }
}
