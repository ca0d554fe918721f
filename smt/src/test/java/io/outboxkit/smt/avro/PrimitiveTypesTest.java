package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.stream.Stream;
import org.apache.avro.generic.GenericFixed;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Types without a logical type: accepted values and errors. */
class PrimitiveTypesTest {
  private static final String FIXED = "{\"type\":\"fixed\",\"name\":\"F\",\"size\":2}";
  private static final String ENUM =
      "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"B\"],\"default\":\"A\"}";

  static Stream<Arguments> accepted() {
    return Stream.of(
        arguments("\"null\"", "null", null),
        arguments("\"boolean\"", "true", true),
        arguments("\"boolean\"", " false ", false),
        arguments("\"int\"", "0", 0),
        arguments("\"int\"", "-2147483648", Integer.MIN_VALUE),
        arguments("\"int\"", "2147483647", Integer.MAX_VALUE),
        arguments("\"int\"", "1.0", 1),
        arguments("\"int\"", "12e2", 1200),
        arguments("\"long\"", "-9223372036854775808", Long.MIN_VALUE),
        arguments("\"long\"", "9223372036854775807", Long.MAX_VALUE),
        arguments("\"long\"", "9223372036854775807.000", Long.MAX_VALUE),
        arguments("\"long\"", "-0", 0L),
        arguments("\"float\"", "1.5", 1.5f),
        arguments("\"float\"", "7", 7f),
        arguments("\"float\"", "-0.0", -0f),
        arguments("\"float\"", "-0", 0f),
        arguments("\"double\"", "-0", 0.0),
        arguments("\"double\"", "0.1", 0.1),
        arguments("\"double\"", "-1e300", -1e300),
        arguments("\"double\"", "12345678901234567890", 1.2345678901234567E19),
        arguments("\"string\"", "\"\"", ""),
        arguments("\"string\"", "\"a\\u00e9\\u20ac\\ud83d\\ude00\\n\"", "aé€😀\n"),
        arguments("\"string\"", "\"" + "ü".repeat(5000) + "\"", "ü".repeat(5000)),
        arguments("\"bytes\"", "\"\\\\xDEADbeef\"", "deadbeef"),
        arguments("\"bytes\"", "\"3q2+7w==\"", "deadbeef"),
        arguments("\"bytes\"", "\"\"", ""),
        arguments("\"bytes\"", "\"\\\\x\"", ""),
        arguments(FIXED, "\"\\\\x0001\"", "0001"),
        arguments(FIXED, "\"AAE=\"", "0001"),
        arguments(ENUM, "\"B\"", "B"));
  }

  @ParameterizedTest
  @MethodSource("accepted")
  void acceptedValuesAreEncoded(String schema, String json, Object expected) throws Exception {
    assertEquals(expected, comparable(Encoding.roundTrip(schema, json)));
  }

  static Stream<Arguments> rejected() {
    return Stream.of(
        arguments("\"null\"", "0", "expected null, found number"),
        arguments("\"boolean\"", "\"true\"", "expected boolean, found string"),
        arguments("\"boolean\"", "1", "expected boolean, found number"),
        arguments("\"int\"", "\"1\"", "expected int, found string"),
        arguments("\"int\"", "null", "expected int, found null"),
        arguments("\"int\"", "[1]", "expected int, found array"),
        arguments("\"int\"", "2147483648", "expected int, found a number out of range"),
        arguments(
            "\"int\"",
            "1.5",
            "expected int, found a number that is out of range or not an integer"),
        arguments("\"long\"", "9223372036854775808", "expected long, found a number out of range"),
        arguments(
            "\"long\"",
            "1e999999999",
            "expected long, found a number that is out of range or not an integer"),
        arguments(
            "\"long\"",
            "1e-999999999",
            "expected long, found a number that is out of range or not an integer"),
        arguments("\"float\"", "1e39", "expected float, found a number out of range"),
        arguments("\"float\"", "\"NaN\"", "expected float, found string"),
        arguments("\"double\"", "1e400", "expected double, found a number out of range"),
        arguments("\"double\"", "{}", "expected double, found object"),
        arguments("\"string\"", "1", "expected string, found number"),
        arguments("\"string\"", "true", "expected string, found boolean"),
        arguments(
            "\"string\"",
            "\"a\\ud83d\"",
            "expected string, found a string with an unpaired surrogate"),
        arguments(
            "\"bytes\"",
            "\"\\\\x0\"",
            "expected bytes in base64 or \\x hexadecimal, found a string in a different format"),
        arguments("\"bytes\"", "1", "expected bytes in base64 or \\x hexadecimal, found number"),
        arguments(
            "\"bytes\"",
            "\"a b\"",
            "expected bytes in base64 or \\x hexadecimal, found a string in a different format"),
        arguments(
            FIXED, "\"\\\\x00\"", "expected fixed(2) in base64 or \\x hexadecimal, found 1 bytes"),
        arguments(ENUM, "\"C\"", "expected enum E [A, B], found a string that is not a symbol"),
        arguments(ENUM, "0", "expected enum E [A, B], found number"),
        arguments("\"int\"", "1 2", "there is text after the end of the JSON value"),
        arguments("\"int\"", "", "expected int, found no value"),
        arguments("[\"null\",\"int\"]", "", "expected null or int, found no value"),
        arguments("[\"null\",\"string\"]", " ", "expected null or string, found no value"),
        arguments(
            "\"long\"",
            "100e2147483647",
            "expected long, found a number that is out of range or not an integer"),
        arguments("\"int\"", "01", "not valid JSON at line 1, column 2"),
        arguments("\"int\"", "NaN", "not valid JSON at line 1, column 4"),
        arguments("\"string\"", "\"a", "not valid JSON at line 1, column 3"));
  }

  @ParameterizedTest
  @MethodSource("rejected")
  void otherValuesAreRejected(String schema, String json, String message) {
    assertEquals("payload: " + message, Encoding.rejection(schema, json));
  }

  private static Object comparable(Object value) {
    if (value instanceof ByteBuffer buffer) {
      return HexFormat.of().formatHex(buffer.array(), buffer.position(), buffer.limit());
    }
    if (value instanceof GenericFixed fixed) {
      return HexFormat.of().formatHex(fixed.bytes());
    }
    return value instanceof Number || value instanceof Boolean || value == null
        ? value
        : value.toString();
  }
}
