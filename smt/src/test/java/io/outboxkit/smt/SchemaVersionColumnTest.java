package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.NOTE_V1;
import static io.outboxkit.smt.Routers.NOTE_V1_ID;
import static io.outboxkit.smt.Routers.NOTE_V2;
import static io.outboxkit.smt.Routers.NOTE_V2_ID;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static io.outboxkit.smt.Routers.twoVersions;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** table.field.event.schema.version: column with the schema version of the row's payload. */
class SchemaVersionColumnTest {
  /** Version 2 of the schema, if both versions must accept the same payload. */
  private static final String OPTIONAL_STARS =
      "{\"type\":\"record\",\"name\":\"Note\",\"fields\":["
          + "{\"name\":\"text\",\"type\":\"string\"},"
          + "{\"name\":\"stars\",\"type\":\"int\",\"default\":3}]}";

  private final OutboxRouter<SourceRecord> router =
      router(
          twoVersions(
              "aggregate.note.schema.2",
              OPTIONAL_STARS,
              "table.field.event.schema.version",
              "version"));

  private static OutboxEvents row(Schema schema, Object version) {
    return OutboxEvents.insert().column("version", schema, version);
  }

  static Stream<Arguments> versions() {
    return Stream.of(
        arguments(Schema.STRING_SCHEMA, "1", NOTE_V1, NOTE_V1_ID, "{\"text\": \"hello\"}"),
        arguments(Schema.INT32_SCHEMA, 1, NOTE_V1, NOTE_V1_ID, "{\"text\": \"hello\"}"),
        arguments(
            Schema.INT64_SCHEMA,
            2L,
            OPTIONAL_STARS,
            NOTE_V2_ID,
            "{\"text\": \"hello\", \"stars\": 3}"),
        arguments(
            Schema.OPTIONAL_STRING_SCHEMA,
            null,
            OPTIONAL_STARS,
            NOTE_V2_ID,
            "{\"text\": \"hello\", \"stars\": 3}"));
  }

  @ParameterizedTest
  @MethodSource("versions")
  void encodesWithTheVersionOfTheRow(
      Schema column, Object version, String schema, int id, String decoded) throws Exception {
    SourceRecord out = router.apply(row(column, version).record());
    assertEquals(decoded, Routers.decode(out, schema, id).toString());
  }

  static Stream<Arguments> rejected() {
    return Stream.of(
        arguments(
            "3",
            "{\"text\": \"a\"}",
            "schema-version-unknown",
            "schema version \"3\" is not one of the versions of aggregate type note (2, 1)"),
        arguments(
            "",
            "{\"text\": \"a\"}",
            "schema-version-unknown",
            "schema version (a name of 0 characters) is not one of the versions of aggregate type"
                + " note (2, 1)"),
        arguments(
            "alice@example.org",
            "{\"text\": \"a\"}",
            "schema-version-unknown",
            "schema version (a name of 17 characters) is not one of the versions of aggregate type"
                + " note (2, 1)"),
        arguments(
            "1",
            "{\"text\": \"a\", \"stars\": 1}",
            "payload-invalid",
            "the payload does not fit the row's schema version of aggregate type note; the error"
                + " with version 1 is: payload: unknown field \"stars\" of record Note"));
  }

  @ParameterizedTest
  @MethodSource("rejected")
  void invalidVersionOrPayloadBecomesADeadLetter(
      String version, String payload, String reason, String message) {
    SourceRecord out = router.apply(row(Schema.STRING_SCHEMA, version).payload(payload).record());
    assertEquals("library.dead-letter", out.topic());
    assertEquals(reason, headers(out).get("dead_letter_reason"));
    assertEquals(message, headers(out).get("dead_letter_message"));
  }

  @Test
  void tombstonesHaveNoVersion() {
    SourceRecord out = router.apply(row(Schema.STRING_SCHEMA, "3").payload(null).record());
    assertEquals("library.note", out.topic());
    assertNull(out.value());
  }

  @Test
  void tableWithoutTheColumnFails() {
    assertFails(
        router, OutboxEvents.insert().record(), "version", "table.field.event.schema.version");
  }

  static Stream<Arguments> messages() {
    return Stream.of(
        arguments("", NOTE_V2_ID, null),
        arguments(", \"version\": null", NOTE_V2_ID, null),
        arguments(", \"version\": 1", NOTE_V1_ID, null),
        arguments(", \"version\": \"1\"", NOTE_V1_ID, null),
        arguments(
            ", \"version\": [1]", 0, "message: \"version\" must be a string, integer or boolean"),
        arguments(
            ", \"version\": 7",
            0,
            "schema version \"7\" is not one of the versions of aggregate type note (2, 1)"));
  }

  @ParameterizedTest
  @MethodSource("messages")
  void messagesCanHaveAVersion(String member, int id, String error) {
    SourceRecord out =
        router(
                twoVersions(
                    "aggregate.note.schema.2", OPTIONAL_STARS,
                    "table.field.event.schema.version", "version",
                    "message.prefix", "outbox"))
            .apply(OutboxEvents.message("{\"text\": \"a\"}", member));
    assertEquals(error, headers(out).get("dead_letter_message"));
    if (error == null) {
      assertEquals(id, java.nio.ByteBuffer.wrap((byte[]) out.value()).getInt(1));
    }
  }

  /** Version 2 does not accept the rows of version 1. */
  @Test
  void backlogOfAnOlderVersionIsRouted() throws Exception {
    OutboxRouter<SourceRecord> required =
        router(twoVersions("table.field.event.schema.version", "version"));
    SourceRecord older = required.apply(row(Schema.STRING_SCHEMA, "1").record());
    SourceRecord newer =
        required.apply(
            row(Schema.STRING_SCHEMA, "2").payload("{\"stars\": 1, \"text\": \"a\"}").record());
    assertEquals("{\"text\": \"hello\"}", Routers.decode(older, NOTE_V1, NOTE_V1_ID).toString());
    assertEquals(
        "{\"text\": \"a\", \"stars\": 1}", Routers.decode(newer, NOTE_V2, NOTE_V2_ID).toString());
  }
}
