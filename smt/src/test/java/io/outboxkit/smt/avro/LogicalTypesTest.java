package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.stream.Stream;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericFixed;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Decimals, dates, times, timestamps and uuids. */
class LogicalTypesTest {
  private static final String DECIMAL =
      "{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":6,\"scale\":2}";
  private static final String FIXED_DECIMAL =
      "{\"type\":\"fixed\",\"name\":\"D\",\"size\":5,"
          + "\"logicalType\":\"decimal\",\"precision\":6,\"scale\":2}";
  private static final String BIG_DECIMAL = "{\"type\":\"bytes\",\"logicalType\":\"big-decimal\"}";
  private static final String FIXED_UUID =
      "{\"type\":\"fixed\",\"name\":\"U\",\"size\":16,\"logicalType\":\"uuid\"}";

  private static String logical(String type, String logicalType) {
    return "{\"type\":\"" + type + "\",\"logicalType\":\"" + logicalType + "\"}";
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0.00",
    "0.00000, 0.00",
    "0e-999999999, 0.00",
    "12.5, 12.50",
    "12.50, 12.50",
    "-12.5, -12.50",
    "9999.99, 9999.99",
    "-9999.99, -9999.99",
    "1.25e1, 12.50",
    "1e3, 1000.00",
    "7.10000, 7.10",
    "'\"12.5\"', 12.50",
    "'\"-0.01\"', -0.01",
    "'\"1E+2\"', 100.00",
    "1.28, 1.28",
    "2.56, 2.56"
  })
  void decimalsKeepEveryDigit(String json, String expected) throws Exception {
    Conversions.DecimalConversion conversion = new Conversions.DecimalConversion();
    LogicalTypes.Decimal type = LogicalTypes.decimal(6, 2);
    assertEquals(
        new BigDecimal(expected),
        conversion.fromBytes((ByteBuffer) Encoding.roundTrip(DECIMAL, json), null, type));
    assertEquals(
        new BigDecimal(expected),
        conversion.fromFixed((GenericFixed) Encoding.roundTrip(FIXED_DECIMAL, json), null, type));
  }

  /** Avro's bytes are the shortest two's complement. */
  @ParameterizedTest
  @ValueSource(strings = {"0.00", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "9999.99"})
  void decimalBytesAreThoseOfAvro(String json) throws Exception {
    Schema schema = Encoding.schema(DECIMAL);
    ByteBuffer expected =
        new Conversions.DecimalConversion()
            .toBytes(new BigDecimal(json), schema, schema.getLogicalType());
    assertEquals(expected, Encoding.roundTrip(DECIMAL, json));
  }

  @ParameterizedTest
  @CsvSource({
    "0.001, a number with more than 2 fraction digits",
    "'\"12.345\"', a number with more than 2 fraction digits",
    "1e-999999999, a number with more than 2 fraction digits",
    "10000, a number with more than 4 integer digits",
    "1e999999999, a number with more than 4 integer digits",
    "100e2147483647, a number with more than 4 integer digits",
    "'\"-100e2147483647\"', a number with more than 4 integer digits",
    "-12345.67, a number with more than 4 integer digits",
    "'\"12,5\"', a string that is not a number of up to 1000 characters",
    "'\"\"', a string that is not a number of up to 1000 characters",
    "'\"1.2.3\"', a string that is not a number of up to 1000 characters",
    "'\"٣\"', a string that is not a number of up to 1000 characters",
    "'\"NaN\"', a string that is not a number of up to 1000 characters",
    "true, boolean",
    "null, null"
  })
  void decimalsThatWouldLoseDigitsAreRejected(String json, String actual) {
    assertEquals(
        "payload: expected decimal(6,2), found " + actual, Encoding.rejection(DECIMAL, json));
    assertEquals(
        "payload: expected decimal(6,2), found " + actual, Encoding.rejection(FIXED_DECIMAL, json));
  }

  @Test
  void longNumbersAsTextAreRejected() {
    assertEquals(
        "payload: expected big-decimal, found a string that is not a number of up to 1000"
            + " characters",
        Encoding.rejection(BIG_DECIMAL, "\"" + "1".repeat(1001) + "\""));
  }

  @ParameterizedTest
  @ValueSource(strings = {"0", "1.10", "-123456789012345678901234567890.1234567890", "5E+3"})
  void bigDecimalsKeepTheirScale(String json) throws Exception {
    ByteBuffer bytes = (ByteBuffer) Encoding.roundTrip(BIG_DECIMAL, json);
    assertEquals(
        new BigDecimal(json),
        new Conversions.BigDecimalConversion()
            .fromBytes(bytes, Encoding.schema(BIG_DECIMAL), LogicalTypes.bigDecimal()));
  }

  static Stream<Arguments> times() {
    return Stream.of(
        arguments("int", "date", "\"1970-01-01\"", 0L),
        arguments("int", "date", "\"1969-12-31\"", -1L),
        arguments("int", "date", "\"2024-02-29\"", 19782L),
        arguments("int", "date", "\"10000-01-01\"", 2932897L),
        arguments("int", "date", "20777", 20777L),
        arguments("int", "time-millis", "\"18:31:38.123\"", 66_698_123L),
        arguments("int", "time-millis", "\"18:31:38.123000\"", 66_698_123L),
        arguments("int", "time-millis", "86399999", 86_399_999L),
        arguments("long", "time-micros", "\"23:59:59.999999\"", 86_399_999_999L),
        arguments("long", "time-micros", "\"00:00:00\"", 0L),
        arguments("long", "timestamp-millis", "\"2026-11-20T18:31:38.123Z\"", 1795199498123L),
        arguments("long", "timestamp-millis", "\"2026-11-20T18:31:38+00:00\"", 1795199498000L),
        arguments("long", "timestamp-millis", "1795199498123", 1795199498123L),
        arguments(
            "long", "timestamp-micros", "\"2026-11-20T18:31:38.123456+00:00\"", 1795199498123456L),
        arguments(
            "long", "timestamp-micros", "\"2026-11-21T00:01:38.123456+05:30\"", 1795199498123456L),
        arguments(
            "long", "timestamp-micros", "\"2026-11-20 18:31:38.123456+00\"", 1795199498123456L),
        arguments("long", "timestamp-micros", "\"2026-11-20T11:31:38.1-0700\"", 1795199498100000L),
        arguments("long", "timestamp-micros", "\"1969-12-31T23:59:59.999999Z\"", -1L),
        arguments("long", "timestamp-micros", "-5", -5L),
        arguments(
            "long", "timestamp-nanos", "\"2026-11-20T18:31:38.123456789Z\"", 1795199498123456789L),
        arguments("int", "date", "-1", -1L),
        arguments("int", "time-millis", "0", 0L),
        arguments("long", "time-micros", "86399999999", 86_399_999_999L),
        arguments("long", "timestamp-nanos", "1795199498123456789", 1795199498123456789L),
        arguments("long", "timestamp-nanos", "-9223372036854775808", Long.MIN_VALUE),
        arguments("long", "local-timestamp-millis", "1795199498123", 1795199498123L),
        arguments("long", "local-timestamp-micros", "1795199498123456", 1795199498123456L),
        arguments("long", "local-timestamp-nanos", "-1", -1L),
        arguments("long", "timestamp-nanos", "\"1677-09-21T00:12:43.145224192Z\"", Long.MIN_VALUE),
        arguments("long", "timestamp-nanos", "\"2262-04-11T23:47:16.854775807Z\"", Long.MAX_VALUE),
        arguments("long", "local-timestamp-millis", "\"2026-11-20T18:31:38.123\"", 1795199498123L),
        arguments("long", "local-timestamp-micros", "\"2026-11-20T18:31:38\"", 1795199498000000L),
        arguments(
            "long",
            "local-timestamp-nanos",
            "\"2026-11-20T18:31:38.000000001\"",
            1795199498000000001L));
  }

  @ParameterizedTest
  @MethodSource("times")
  void timesAreEncoded(String type, String logicalType, String json, long expected)
      throws Exception {
    Number decoded = (Number) Encoding.roundTrip(logical(type, logicalType), json);
    assertEquals(expected, decoded.longValue());
  }

  private static final String DATE = "date (YYYY-MM-DD or days since 1970-01-01)";
  private static final String TIME_MILLIS =
      "time-millis (HH:MM:SS with at most 3 fraction digits, or an integer)";
  private static final String MICROS =
      "timestamp-micros (ISO-8601 with UTC offset and at most 6 fraction digits, or an integer)";
  private static final String LOCAL_MICROS =
      "local-timestamp-micros (ISO-8601 without UTC offset and at most 6 fraction digits, or an"
          + " integer)";

  static Stream<Arguments> invalidTimes() {
    return Stream.of(
        arguments(
            "int", "date", "\"2026-11-20T00:00:00Z\"", DATE, "a string in a different format"),
        arguments("int", "date", "\"2026-02-29\"", DATE, "a string in a different format"),
        arguments("int", "date", "\"infinity\"", DATE, "a string in a different format"),
        arguments("int", "date", "2147483648", DATE, "a number out of range"),
        arguments("int", "date", "true", DATE, "boolean"),
        arguments(
            "int",
            "time-millis",
            "\"18:31:38.1234\"",
            TIME_MILLIS,
            "a string in a different format"),
        arguments(
            "int", "time-millis", "\"24:00:00\"", TIME_MILLIS, "a string in a different format"),
        arguments(
            "int", "time-millis", "\"18:31:38Z\"", TIME_MILLIS, "a string in a different format"),
        arguments("int", "time-millis", "86400000", TIME_MILLIS, "a number out of range"),
        arguments("int", "time-millis", "-1", TIME_MILLIS, "a number out of range"),
        arguments(
            "long",
            "timestamp-micros",
            "\"2026-11-20T18:31:38\"",
            MICROS,
            "a string in a different format"),
        arguments(
            "long",
            "timestamp-micros",
            "\"2026-11-20T18:31:38.1234567Z\"",
            MICROS,
            "more than 6 fraction digits"),
        arguments(
            "long", "timestamp-micros", "\"infinity\"", MICROS, "a string in a different format"),
        arguments(
            "long",
            "timestamp-micros",
            "\"300000-01-01T00:00:00Z\"",
            MICROS,
            "a time out of range"),
        arguments(
            "long",
            "timestamp-micros",
            "1.5",
            MICROS,
            "a number that is out of range or not an integer"),
        arguments("long", "timestamp-micros", "[]", MICROS, "array"),
        arguments(
            "long",
            "local-timestamp-micros",
            "\"2026-11-20T18:31:38Z\"",
            LOCAL_MICROS,
            "a string in a different format"));
  }

  @ParameterizedTest
  @MethodSource("invalidTimes")
  void otherTimesAreRejected(
      String type, String logicalType, String json, String expected, String actual) {
    assertEquals(
        "payload: expected " + expected + ", found " + actual,
        Encoding.rejection(logical(type, logicalType), json));
  }

  @Test
  void uuidsAreEncoded() throws Exception {
    String uuid = "6F1C1f0e-3c1b-4d8e-9a53-0d6a2f9b7c11";
    String json = "\"" + uuid + "\"";
    assertEquals(uuid, Encoding.roundTrip(logical("string", "uuid"), json).toString());
    GenericFixed fixed = (GenericFixed) Encoding.roundTrip(FIXED_UUID, json);
    assertEquals(
        uuid.replace("-", "").toLowerCase(java.util.Locale.ROOT),
        HexFormat.of().formatHex(fixed.bytes()));
  }

  @ParameterizedTest
  @CsvSource({
    "'\"6f1c1f0e3c1b4d8e9a530d6a2f9b7c11\"', a string in a different format",
    "'\"6f1c1f0e-3c1b-4d8e-9a53-0d6a2f9b7c1g\"', a string in a different format",
    "'\"6f1c1f0e-3c1b-4d8e-9a53x0d6a2f9b7c11\"', a string in a different format",
    "1, number"
  })
  void otherUuidsAreRejected(String json, String actual) {
    String message = "payload: expected uuid, found " + actual;
    assertEquals(message, Encoding.rejection(logical("string", "uuid"), json));
    assertEquals(message, Encoding.rejection(FIXED_UUID, json));
  }

  /** Unknown logical types are ignored, as Avro requires. */
  @Test
  void unknownLogicalTypesAreIgnored() throws Exception {
    assertEquals(5L, Encoding.roundTrip(logical("long", "money"), "5"));
  }
}
