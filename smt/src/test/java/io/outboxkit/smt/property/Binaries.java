package io.outboxkit.smt.property;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericFixed;

/** Reads bytes and fixed for ReferenceReader, with the JDK's decoders and Avro's conversions. */
final class Binaries {
  private static final String UUID =
      "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  private static final String NUMBER = "[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?";

  private Binaries() {}

  static boolean isUuid(String text) {
    return text.matches(UUID);
  }

  /**
   * @param number whether the text is a JSON number, not a string
   */
  static byte[] read(Schema schema, String text, boolean number) {
    LogicalType type = schema.getLogicalType();
    if (type instanceof LogicalTypes.Decimal decimal) {
      return decimal(schema, decimal, text);
    }
    if (type instanceof LogicalTypes.BigDecimal) {
      ReferenceReader.require(text.matches(NUMBER), text);
      return new Conversions.BigDecimalConversion()
          .toBytes(new BigDecimal(text), schema, type)
          .array();
    }
    ReferenceReader.require(!number, text);
    if (type != null) {
      ReferenceReader.require(isUuid(text), text);
      return HexFormat.of().parseHex(text.replace("-", ""));
    }
    byte[] bytes = bytes(text);
    ReferenceReader.require(
        schema.getType() == Schema.Type.BYTES || bytes.length == schema.getFixedSize(), text);
    return bytes;
  }

  private static byte[] bytes(String text) {
    try {
      return text.startsWith("\\x")
          ? HexFormat.of().parseHex(text.substring(2))
          : Base64.getDecoder().decode(text);
    } catch (IllegalArgumentException e) {
      throw new ReferenceReader.Rejected(text);
    }
  }

  private static byte[] decimal(Schema schema, LogicalTypes.Decimal type, String text) {
    ReferenceReader.require(text.matches(NUMBER), text);
    BigDecimal value;
    try {
      value = new BigDecimal(text).setScale(type.getScale(), RoundingMode.UNNECESSARY);
    } catch (ArithmeticException e) {
      throw new ReferenceReader.Rejected(text);
    }
    ReferenceReader.require(value.signum() == 0 || value.precision() <= type.getPrecision(), text);
    Conversions.DecimalConversion conversion = new Conversions.DecimalConversion();
    if (schema.getType() == Schema.Type.BYTES) {
      return conversion.toBytes(value, schema, type).array();
    }
    GenericFixed fixed = conversion.toFixed(value, schema, type);
    return Arrays.copyOf(fixed.bytes(), fixed.bytes().length);
  }
}
