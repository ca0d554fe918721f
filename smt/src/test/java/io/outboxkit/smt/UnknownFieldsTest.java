package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.NOTE_V1;
import static io.outboxkit.smt.Routers.NOTE_V1_ID;
import static io.outboxkit.smt.Routers.NOTE_V2;
import static io.outboxkit.smt.Routers.NOTE_V2_ID;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static io.outboxkit.smt.Routers.twoVersions;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** aggregate.T.unknown.fields. */
class UnknownFieldsTest {
  private static final String OPTION = "aggregate.note.unknown.fields";

  @ParameterizedTest
  @ValueSource(strings = {"", "refuse"})
  void unknownFieldsAreRejectedByDefault(String option) {
    SourceRecord out =
        router(OPTION, option)
            .apply(OutboxEvents.insert().payload("{\"text\": \"a\", \"stars\": 1}").record());
    assertEquals(
        "the payload fits no schema version of aggregate type note (1); the error with version 1"
            + " is: payload: unknown field \"stars\" of record Note",
        headers(out).get("dead_letter_message"));
  }

  static Stream<String> unknown() {
    return Stream.of(
        "{\"stars\": 1, \"text\": \"hello\"}",
        "{\"text\": \"hello\", \"x\": {\"text\": [1, {\"text\": 2}]}}",
        "{\"x\": [], \"text\": \"hello\", \"y\": \"\\ud83d\", \"z\": 1e999999999}",
        "{\"x\": 1, \"x\": 2, \"text\": \"hello\"}",
        "{\"text\": \"hello\", \"Text\": null, \"\": true}");
  }

  @ParameterizedTest
  @MethodSource("unknown")
  void unknownFieldsAreSkippedWithIgnore(String payload) throws Exception {
    SourceRecord out =
        router(OPTION, "ignore").apply(OutboxEvents.insert().payload(payload).record());
    assertEquals("{\"text\": \"hello\"}", Routers.decode(out, NOTE_V1, NOTE_V1_ID).toString());
  }

  static Stream<Arguments> stillInvalid() {
    return Stream.of(
        arguments("{\"x\": 1}", "text: expected string, found neither the field nor a default"),
        arguments("{\"x\": 1, \"text\": 2}", "text: expected string, found number"),
        arguments(
            "{\"text\": \"a\", \"text\": \"b\", \"x\": 1}", "payload: duplicate field \"text\""),
        arguments(
            "{\"text\": \"a\", \"x\": {\"y\"}}", "payload: not valid JSON at line 1, column 24"));
  }

  @ParameterizedTest
  @MethodSource("stillInvalid")
  void otherErrorsRemainWithIgnore(String payload, String message) {
    SourceRecord out =
        router(OPTION, "ignore").apply(OutboxEvents.insert().payload(payload).record());
    assertEquals(
        "the payload fits no schema version of aggregate type note (1); the error with version 1"
            + " is: "
            + message,
        headers(out).get("dead_letter_message"));
  }

  /** An older version that has the field is preferred to the latest one, which ignores it. */
  @Test
  void versionWithTheFieldIsPreferred() throws Exception {
    String removed =
        "{\"type\":\"record\",\"name\":\"Note\",\"fields\":["
            + "{\"name\":\"text\",\"type\":\"string\"}]}";
    OutboxRouter<SourceRecord> router =
        router(
            twoVersions(
                OPTION,
                "ignore",
                "aggregate.note.schema.2",
                removed,
                "aggregate.note.schema.1",
                NOTE_V2));
    SourceRecord older =
        router.apply(OutboxEvents.insert().payload("{\"text\": \"a\", \"stars\": 1}").record());
    assertEquals(
        "{\"text\": \"a\", \"stars\": 1}", Routers.decode(older, NOTE_V2, NOTE_V1_ID).toString());
    SourceRecord newer =
        router.apply(OutboxEvents.insert().payload("{\"text\": \"a\", \"x\": 1}").record());
    assertEquals("{\"text\": \"a\"}", Routers.decode(newer, removed, NOTE_V2_ID).toString());
  }

  static Stream<Arguments> versionsThatIgnore() {
    String v1 = "{\"id\": \"x\", \"shelf\": \"S1\"}";
    String v2 = "{\"id\": \"x\", \"branch\": \"main\"}";
    return Stream.of(
        arguments("{\"id\":\"x\",\"shelf\":\"S1\",\"colour\":\"blue\"}", 1, v1),
        arguments("{\"id\":\"x\",\"shelf\":\"S1\"}", 1, v1),
        arguments("{\"id\":\"x\",\"colour\":\"blue\"}", 2, v2),
        arguments("{\"id\":\"x\",\"branch\":\"main\",\"colour\":\"blue\"}", 2, v2),
        // Both skip one field: the latest version is used.
        arguments("{\"id\":\"x\",\"branch\":\"main\",\"shelf\":\"S1\"}", 2, v2));
  }

  @ParameterizedTest
  @MethodSource("versionsThatIgnore")
  void versionThatSkipsTheFewestFieldsIsPreferred(String payload, int version, String decoded)
      throws Exception {
    String v1 = book("{\"name\":\"shelf\",\"type\":\"string\"}");
    String v2 = book("{\"name\":\"branch\",\"type\":\"string\",\"default\":\"main\"}");
    SourceRecord out =
        router(
                twoVersions(
                    OPTION, "ignore", "aggregate.note.schema.2", v2, "aggregate.note.schema.1", v1))
            .apply(OutboxEvents.insert().payload(payload).record());
    assertEquals(
        decoded,
        Routers.decode(out, version == 1 ? v1 : v2, version == 1 ? NOTE_V1_ID : NOTE_V2_ID)
            .toString());
  }

  private static String book(String field) {
    return "{\"type\":\"record\",\"name\":\"Book\",\"fields\":["
        + "{\"name\":\"id\",\"type\":\"string\"},"
        + field
        + "]}";
  }
}
