package io.outboxkit.smt.util;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

class UtilTest {

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "abc",
        "é",
        "€",
        "😀",
        "a\u0000b",
        "mixed é € 😀 end",
        "\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff",
        "\ud800\udc00\udbff\udfff"
      })
  void utf8EqualsThatOfTheJdk(String text) {
    byte[] expected = text.getBytes(StandardCharsets.UTF_8);
    char[] padded = ("<" + text + ">").toCharArray();
    assertEquals(expected.length, Utf8.length(text));
    assertEquals(expected.length, Utf8.length(padded, 1, text.length()));
    byte[] actual = new byte[expected.length];
    Utf8.encode(padded, 1, text.length(), actual, 0);
    assertArrayEquals(expected, actual);
  }

  @ParameterizedTest
  @ValueSource(strings = {"\ud83d", "\ude00", "a\ud83db", "\ud83d\ud83d", "\ude00\ud83d"})
  void unpairedSurrogatesAreDetected(String text) {
    assertEquals(-1, Utf8.length(text.toCharArray(), 0, text.length()));
    assertTrue(Utf8.hasUnpairedSurrogate(text));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "a", "é€", "😀", "a😀😀b"})
  void validTextHasNoUnpairedSurrogate(String text) {
    assertFalse(Utf8.hasUnpairedSurrogate(text));
  }

  /** All sequences of up to four bytes with values at the limits of UTF-8's ranges. */
  @Test
  void validUtf8IsAlsoValidForTheJdk() {
    int[] edges = {
      0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1,
      0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF
    };
    int count = edges.length * edges.length * edges.length * edges.length;
    for (int i = 0; i < count; i++) {
      byte[] bytes = new byte[4];
      int remaining = i;
      for (int k = 0; k < bytes.length; k++) {
        bytes[k] = (byte) edges[remaining % edges.length];
        remaining /= edges.length;
      }
      int to = 1 + i % bytes.length;
      byte[] part = java.util.Arrays.copyOf(bytes, to);
      assertEquals(isUtf8(part), Utf8.isValid(bytes, 0, to), () -> java.util.Arrays.toString(part));
    }
  }

  private static boolean isUtf8(byte[] bytes) {
    try {
      StandardCharsets.UTF_8.newDecoder().decode(java.nio.ByteBuffer.wrap(bytes));
      return true;
    } catch (java.nio.charset.CharacterCodingException e) {
      return false;
    }
  }

  @Test
  void nullTakesNoBytes() {
    assertEquals(0, Utf8.length((String) null));
  }

  @ParameterizedTest
  @CsvSource({
    "order_line.v-2, '\"order_line.v-2\"'",
    "a b, (a name of 3 characters)",
    "'', (a name of 0 characters)",
    "é, (a name of 1 characters)",
    "azAZ09, '\"azAZ09\"'",
    "a`, (a name of 2 characters)",
    "a{, (a name of 2 characters)",
    "a@, (a name of 2 characters)",
    "a[, (a name of 2 characters)",
    "a/, (a name of 2 characters)",
    "'a:', (a name of 2 characters)"
  })
  void onlyIdentifiersAreQuoted(String name, String shown) {
    assertEquals(shown, MessageText.quote(name));
  }

  @Test
  void identifiersAreQuotedUpToSixtyFourCharacters() {
    assertEquals("\"" + "a".repeat(64) + "\"", MessageText.quote("a".repeat(64)));
    assertEquals("(a name of 65 characters)", MessageText.quote("a".repeat(65)));
  }

  static Stream<Object> keys() {
    return Stream.of(
        "é",
        UUID.fromString("6f1c1f0e-3c1b-4d8e-9a53-0d6a2f9b7c11"),
        7L,
        7,
        (short) 7,
        0.7,
        0.7f,
        true,
        false,
        new byte[] {1, 2},
        org.apache.kafka.common.utils.Bytes.wrap(new byte[] {1, 2}));
  }

  /** PartitionPropertyTest tests other values of each type. */
  @ParameterizedTest
  @MethodSource("keys")
  @SuppressWarnings("unchecked")
  void keysAreSerializedAsKafkaDoes(Object key) {
    try (Serde<Object> kafka = (Serde<Object>) Serdes.serdeFrom(key.getClass())) {
      assertArrayEquals(kafka.serializer().serialize("t", key), KeyPartitioner.serialize(key));
    }
  }

  @Test
  void otherKeysHaveNoSerializer() {
    assertNull(KeyPartitioner.serialize((byte) 7));
    assertNull(KeyPartitioner.serialize(new StringBuilder("7")));
    ByteBuffer buffer = ByteBuffer.wrap(new byte[] {0, 1, 2}, 1, 2);
    assertArrayEquals(new byte[] {1, 2}, KeyPartitioner.serialize(buffer));
    assertEquals(2, buffer.remaining());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "2026-11-20T18:31:38.123456Z",
        "2026-11-20T18:31:38.123456z",
        "2026-11-20t18:31:38.123456+00:00",
        "2026-11-20 18:31:38.123456+00",
        "2026-11-20T19:31:38.123456000+0100",
        "2026-11-21T12:31:38.123456+18:00",
        "2026-11-20T14:01:38.123456-04:30"
      })
  void timestampsAreRead(String text) {
    IsoDateTimeParser iso = new IsoDateTimeParser();
    assertTrue(iso.parseTimestamp(text));
    assertEquals(1_795_199_498L, iso.epochSecond());
    assertEquals(123_456_000, iso.nano());
    assertEquals(20_777, iso.epochDay());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "infinity",
        "2026-11-20",
        "2026-11-20T18:31",
        "2026-11-20T18:31:38",
        "2026-11-20T18:31:38.Z",
        "2026-11-20T18:31:38.1234567890Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T18:60:00Z",
        "2026-11-20T18:31:60Z",
        "2026-13-20T18:31:38Z",
        "2026-02-30T18:31:38Z",
        "26-11-20T18:31:38Z",
        "1234567-11-20T18:31:38Z",
        "2026-11-20T18:31:38+19:00",
        "2026-11-20T18:31:38+01:60",
        "2026-11-20T18:31:38+01:",
        "2026-11-20T18:31:38+1",
        "2026-11-20T18:31:38Z ",
        "2026-11-20T18:31:38+00:00 BC",
        "-2026-11-20T18:31:38Z",
        "2026-1-20T18:31:38Z",
        "2026-11-20T8:31:38Z"
      })
  void otherTextIsNoTimestamp(String text) {
    assertFalse(new IsoDateTimeParser().parseTimestamp(text));
  }

  @Test
  void sha256IsHexadecimal() {
    assertEquals(
        // printf abc | sha256sum
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        Bytes.sha256("abc".getBytes(StandardCharsets.UTF_8)));
  }
}
