package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Bytes that are a value of a schema, and bytes that are not. */
class AvroBodyCheckerTest {
  private static final String ENUM = "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"B\"]}";
  private static final String FIXED = "{\"type\":\"fixed\",\"name\":\"F\",\"size\":3}";
  private static final String INTS = "{\"type\":\"array\",\"items\":\"int\"}";
  private static final String MAP = "{\"type\":\"map\",\"values\":\"boolean\"}";
  private static final String NULLS = "{\"type\":\"array\",\"items\":\"null\"}";
  private static final String LIST =
      "{\"type\":\"record\",\"name\":\"L\",\"fields\":[{\"name\":\"next\","
          + "\"type\":[\"null\",\"L\"]}]}";

  private static void check(Schema schema, byte[] body) throws PayloadException {
    new AvroBodyChecker(schema).check(body, 0);
  }

  static Stream<Arguments> accepted() {
    return Stream.of(
        arguments("\"null\"", ""),
        arguments("\"boolean\"", "01"),
        arguments("\"int\"", "feffffff0f"),
        arguments("\"int\"", "ffffffff0f"),
        arguments("\"long\"", "ffffffffffffffffff01"),
        // Longer than necessary, which Avro's readers accept.
        arguments("\"long\"", "8000"),
        arguments("\"int\"", "8080808000"),
        arguments(ENUM, "8280808000"),
        arguments("[\"null\",\"int\"]", "8080808000"),
        arguments("\"string\"", "8280808080800061"),
        arguments(INTS, "82808080800002808080808000"),
        arguments("\"float\"", "00000000"),
        arguments("\"double\"", "0000000000000000"),
        arguments("\"string\"", "04c3a9"),
        arguments("\"bytes\"", "02ff"),
        arguments(FIXED, "010203"),
        arguments(ENUM, "02"),
        arguments("[\"null\",\"int\"]", "0202"),
        arguments(INTS, "00"),
        arguments(INTS, "04020400"),
        // Several blocks, one with its size in bytes.
        arguments(INTS, "02020304040600"),
        arguments(MAP, "02026b0100"),
        arguments(NULLS, "0a00"),
        arguments(LIST, "020200"));
  }

  @ParameterizedTest
  @MethodSource("accepted")
  void validValuesAreAccepted(String schema, String hex) throws Exception {
    check(Encoding.schema(schema), HexFormat.of().parseHex(hex));
  }

  static Stream<Arguments> rejected() {
    String truncated = "payload: the bytes end before the end of the value";
    return Stream.of(
        arguments("\"null\"", "00", "payload: 1 bytes after the end of the Avro value"),
        arguments("\"boolean\"", "", truncated),
        arguments("\"boolean\"", "02", "payload: expected boolean, found a number out of range"),
        arguments("\"int\"", "80", truncated),
        arguments("\"int\"", "8080808010", "payload: expected int, found a number out of range"),
        arguments("\"long\"", "80808080808080808080", "payload: a varint has more than 10 bytes"),
        // For int, enum and union, Avro's readers accept at most five bytes.
        arguments("\"int\"", "808080808000", "payload: a varint has more than 5 bytes"),
        arguments(ENUM, "828080808000", "payload: a varint has more than 5 bytes"),
        arguments("[\"null\",\"int\"]", "808080808000", "payload: a varint has more than 5 bytes"),
        arguments("\"float\"", "000000", truncated),
        arguments("\"double\"", "00000000000000", truncated),
        arguments("\"string\"", "04c3", truncated),
        arguments("\"string\"", "01", "payload: a length is negative"),
        arguments("\"string\"", "feffffffffffffffff01", truncated),
        arguments("\"string\"", "02c3", "payload: expected string, found bytes that are not UTF-8"),
        arguments("\"bytes\"", "03", "payload: a length is negative"),
        arguments(FIXED, "0102", truncated),
        arguments(ENUM, "04", "payload: expected enum, found a number out of range"),
        arguments(ENUM, "01", "payload: expected enum, found a number out of range"),
        arguments(
            "[\"null\",\"int\"]", "04", "payload: expected union, found a number out of range"),
        arguments(INTS, "0402", "[1]: the bytes end before the end of the value"),
        arguments(INTS, "04020202", "[2]: the bytes end before the end of the value"),
        arguments(
            INTS,
            "03060204",
            "payload: the size of a block of items differs from its declared size"),
        arguments(MAP, "02026b02", "{}: expected boolean, found a number out of range"),
        arguments(MAP, "0202ff01", "{}: expected string, found bytes that are not UTF-8"),
        arguments(LIST, "0204", "next.next: expected union, found a number out of range"));
  }

  @ParameterizedTest
  @MethodSource("rejected")
  void otherBytesAreRejected(String schema, String hex, String message) {
    Schema parsed = Encoding.schema(schema);
    byte[] body = HexFormat.of().parseHex(hex.length() % 2 == 0 ? hex : hex + "0");
    assertEquals(
        message, assertThrows(PayloadException.class, () -> check(parsed, body)).getMessage());
  }

  /** A small body must not cause a stack overflow or a very long loop. */
  @Test
  void smallBodiesOfLargeValuesAreRejected() {
    byte[] deep = new byte[1_000_000];
    Arrays.fill(deep, (byte) 2);
    PayloadException e =
        assertThrows(PayloadException.class, () -> check(Encoding.schema(LIST), deep));
    assertEquals("nested over 200 levels deep", e.getMessage().replaceAll(".*: ", ""));

    byte[] maxCount = HexFormat.of().parseHex("feffffffffffffffff0100");
    byte[] minCount = HexFormat.of().parseHex("ffffffffffffffffff01");
    for (byte[] body : new byte[][] {maxCount, minCount}) {
      assertTimeoutPreemptively(
          Duration.ofMinutes(2),
          () -> assertThrows(PayloadException.class, () -> check(Encoding.schema(NULLS), body)));
    }
  }

  @Test
  void startsAtTheOffset() throws Exception {
    new AvroBodyChecker(Encoding.schema("\"int\"")).check(new byte[] {9, 9, 2}, 2);
  }
}
