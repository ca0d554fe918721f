package io.outboxkit.smt.config;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Syntax of paths, the values that they return, and the errors. */
class FieldPathTest {
  private static final Schema INNER =
      SchemaBuilder.struct()
          .optional()
          .field("n", Schema.OPTIONAL_INT32_SCHEMA)
          .field("d", SchemaBuilder.string().optional().defaultValue("default").build())
          .build();
  private static final Schema OUTER =
      SchemaBuilder.struct().name("Outer").field("in", INNER).field("none", INNER).build();

  private static SourceRecord record(Object key, Object value) {
    SourceRecord record = new SourceRecord(Map.of(), Map.of(), "t", null, null, key, null, value);
    record.headers().addString("a.b", "first").addString("a.b", "last").addInt("i", 5);
    return record;
  }

  private static Struct struct() {
    return new Struct(OUTER).put("in", new Struct(INNER).put("n", 3));
  }

  static Stream<Arguments> readable() {
    return Stream.of(
        arguments("key", record("k", null), "k"),
        arguments("key", record(null, null), null),
        arguments("key.in.n", record(struct(), null), 3),
        arguments("value", record(null, "v"), "v"),
        arguments("value.in.n", record(null, struct()), 3),
        arguments("value.none.n", record(null, struct()), null),
        // Null, not the field's default.
        arguments("value.in.d", record(null, struct()), null),
        arguments("value.a.b", record(null, Map.of("a", Map.of("b", 1L))), 1L),
        arguments("value.in.n", record(null, Map.of("in", struct().get("in"))), 3),
        arguments("header.a.b", record(null, null), "last"),
        arguments("header.none", record(null, null), null));
  }

  @ParameterizedTest
  @MethodSource("readable")
  void valueIsRead(String path, SourceRecord record, Object expected) {
    assertEquals(expected, FieldPath.parse("field", path).read(record));
  }

  static Stream<Arguments> unreadable() {
    return Stream.of(
        arguments("value.a", record("k", null), "tombstone"),
        arguments("value.in.x", record(null, struct()), "at \"x\""),
        arguments("value.x", record(null, Map.of()), "at \"x\""),
        arguments("key.x", record("secret", null), "String has no fields"));
  }

  @ParameterizedTest
  @MethodSource("unreadable")
  void errorHasThePathAndTheTopic(String path, SourceRecord record, String detail) {
    FieldPath parsed = FieldPath.parse("field", path);
    String message = assertThrows(DataException.class, () -> parsed.read(record)).getMessage();
    assertTrue(message.startsWith("Field " + path + " on topic t "), message);
    assertTrue(message.contains(detail), message);
    assertFalse(message.contains("secret"), message);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "payload",
        "values.a",
        "value.",
        "value..a",
        "value.a.",
        ".a",
        "header",
        "header.",
        "Key"
      })
  void otherPathsAreRejected(String path) {
    String message =
        assertThrows(ConfigException.class, () -> FieldPath.parse("field", path)).getMessage();
    assertTrue(message.startsWith("Invalid value " + path + " for configuration field: "), message);
  }

  @Test
  void integersBooleansAndUuidsAreText() {
    UUID uuid = UUID.randomUUID();
    for (Object value : List.of("x", 1, 2L, (short) 3, (byte) 4, true, uuid)) {
      assertEquals(
          value.toString(), FieldPath.parse("field", "value").readText(record(null, value)));
    }
    assertNull(FieldPath.parse("field", "key").readText(record(null, 1)));
    DataException error =
        assertThrows(
            DataException.class,
            () -> FieldPath.parse("field", "value").readText(record(null, struct())));
    assertTrue(error.getMessage().contains("Struct Outer"), error.getMessage());
  }
}
