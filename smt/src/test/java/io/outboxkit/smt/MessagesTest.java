package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.headers;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.outboxkit.smt.util.Json;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Outbox events from logical decoding messages instead of rows. */
class MessagesTest {
  private static final String MESSAGE =
      "{\"id\": \""
          + OutboxEvents.ID
          + "\", \"aggregate_type\": \"note\", \"aggregate_id\":"
          + " \"note-1\", \"event_type\": \"NoteWritten\", \"payload\": {\"text\": \"hello\"},"
          + " \"created_at\": \""
          + OutboxEvents.CREATED_AT
          + "\"}";

  private static OutboxRouter<SourceRecord> router(String... more) {
    Map<String, String> props = Routers.props(more);
    props.remove("table");
    props.put("message.prefix", "outbox");
    return Routers.configured(props);
  }

  private static SourceRecord event(String content) {
    return OutboxEvents.message("outbox", content.getBytes(StandardCharsets.UTF_8), true);
  }

  private static String with(String member, String json) {
    return MESSAGE.replaceFirst(
        "\"" + member + "\": (\"[^\"]*\"|\\{[^}]*})", "\"" + member + "\": " + json);
  }

  /** A row and a message with the same columns give equal records. */
  @Test
  void messageGivesTheRecordOfTheRow() {
    SourceRecord ofRow = Routers.router().apply(OutboxEvents.insert().record());
    SourceRecord ofMessage = router().apply(event(MESSAGE));
    assertEquals(ofRow.topic(), ofMessage.topic());
    assertEquals(ofRow.key(), ofMessage.key());
    assertEquals(ofRow.keySchema(), ofMessage.keySchema());
    assertEquals(ofRow.kafkaPartition(), ofMessage.kafkaPartition());
    assertEquals(ofRow.timestamp(), ofMessage.timestamp());
    assertEquals(headers(ofRow), headers(ofMessage));
    assertEquals(ofRow.valueSchema(), ofMessage.valueSchema());
    assertArrayEquals((byte[]) ofRow.value(), (byte[]) ofMessage.value());
  }

  @Test
  void contentCanBeABuffer() {
    byte[] bytes = ("12345" + MESSAGE).getBytes(StandardCharsets.UTF_8);
    ByteBuffer buffer = ByteBuffer.wrap(bytes, 5, bytes.length - 5).slice();
    SourceRecord record = router().apply(OutboxEvents.message("outbox", buffer, true));
    assertEquals("note-1", record.key());
  }

  @Test
  void rowsAndMessagesCanBothBeRouted() {
    OutboxRouter<SourceRecord> router = Routers.router("message.prefix", "outbox");
    assertEquals("library.note", router.apply(event(MESSAGE)).topic());
    assertEquals("library.note", router.apply(OutboxEvents.insert().record()).topic());
  }

  @Test
  void rowsAreRejectedIfOnlyMessagesAreRouted() {
    assertFails(
        router(), OutboxEvents.insert().record(), "add table:public.outbox_event to pass.through");
  }

  @ParameterizedTest
  @ValueSource(strings = {"null", " null "})
  void jsonNullIsATombstone(String payload) {
    SourceRecord record = router().apply(event(with("payload", payload)));
    assertNull(record.value());
    assertNull(record.valueSchema());
    assertEquals("note-1", record.key());
  }

  @Test
  void headersAreCopied() {
    String message =
        MESSAGE.replace("{\"id\"", "{\"headers\": {\"a\": \"b\", \"n\": [1, 2]}, \"id\"");
    Map<String, String> headers = headers(router().apply(event(message)));
    assertEquals("b", headers.get("a"));
    assertEquals("[1,2]", headers.get("n"));
  }

  /** Members are read in any order, with white space, escapes and nested values around them. */
  @Test
  void membersAreCopiedExactly() throws Exception {
    String schema =
        "{\"type\":\"record\",\"name\":\"N\",\"fields\":[{\"name\":\"n\",\"type\":\"long\"},"
            + "{\"name\":\"s\",\"type\":\"string\"}]}";
    String message =
        "{ \"x\" : [1.50 ,{\"id\":\"no\"}] ,\"payload\":\n"
            + "{\"n\" : 9223372036854775807 ,\"s\":\"ü}\\\"\"} ,"
            + MESSAGE.replace("\"payload\": {\"text\": \"hello\"},", "").substring(1)
            + "\n";
    SourceRecord record = router("aggregate.note.schema.1", schema).apply(event(message));
    Object decoded = Routers.decode(record, schema, Routers.NOTE_V1_ID);
    assertEquals("{\"n\": 9223372036854775807, \"s\": \"ü}\\\"\"}", decoded.toString());
  }

  @ParameterizedTest
  @ValueSource(strings = {"7", "\"7\""})
  void numbersCanBeIds(String id) {
    assertEquals("7", router().apply(event(with("aggregate_id", id))).key());
  }

  @Test
  void memberCanBeAsDeepAsAColumn() {
    String schema =
        "{\"type\":\"record\",\"name\":\"N\",\"fields\":[{\"name\":\"next\","
            + "\"type\":[\"null\",\"N\"]}]}";
    String[] option = {"aggregate.note.schema.1", schema};
    String payload = nested(Json.MAX_DEPTH);
    SourceRecord ofRow =
        Routers.router(option).apply(OutboxEvents.insert().payload(payload).record());
    SourceRecord ofMessage = router(option).apply(event(with("payload", payload)));
    assertEquals("library.note", ofRow.topic());
    assertEquals("library.note", ofMessage.topic());
    assertArrayEquals((byte[]) ofRow.value(), (byte[]) ofMessage.value());
    SourceRecord tooDeep = router(option).apply(event(with("payload", nested(Json.MAX_DEPTH + 1))));
    assertEquals("message-invalid", headers(tooDeep).get("dead_letter_reason"));
  }

  private static String nested(int depth) {
    return "{\"next\": ".repeat(depth) + "null" + "}".repeat(depth);
  }

  @Test
  void memberCanDetermineThePartition() {
    String message = MESSAGE.replace("{\"id\"", "{\"region\": \"eu\", \"id\"");
    SourceRecord ofMessage =
        router("aggregate.note.partition.field", "region").apply(event(message));
    SourceRecord ofRow =
        Routers.router("aggregate.note.partition.field", "region")
            .apply(OutboxEvents.insert().column("region", Schema.STRING_SCHEMA, "eu").record());
    assertEquals(ofRow.kafkaPartition(), ofMessage.kafkaPartition());
  }

  static Stream<Arguments> deadLetters() {
    return Stream.of(
        arguments("", "message-invalid", "message: the content is not a JSON object"),
        arguments("secret", "message-invalid", "message: the content is not valid JSON"),
        arguments("[{}]", "message-invalid", "message: the content is not a JSON object"),
        arguments("\"secret\"", "message-invalid", "message: the content is not a JSON object"),
        arguments(MESSAGE + "x", "message-invalid", "message: the content is not valid JSON"),
        arguments(
            MESSAGE + "{}", "message-invalid", "message: there is text after the JSON object"),
        arguments(
            MESSAGE.replace("{\"id\"", "{\"id\": \"1\", \"id\""),
            "message-invalid",
            "message: the object has a duplicate member"),
        arguments("{}", "message-invalid", "message: the object has no member \"id\""),
        lacking("id"),
        lacking("aggregate_type"),
        lacking("aggregate_id"),
        lacking("event_type"),
        lacking("created_at"),
        lacking("payload"),
        arguments(
            with("aggregate_id", "[1]"),
            "message-invalid",
            "message: \"aggregate_id\" must be a string, integer or boolean"),
        arguments(
            with("aggregate_id", "1.5"),
            "message-invalid",
            "message: \"aggregate_id\" must be a string, integer or boolean"),
        arguments(
            with("aggregate_id", "\"\\\\ud83d\""),
            "message-invalid",
            "message: \"aggregate_id\" has an unpaired surrogate"),
        arguments(with("id", "null"), "empty-event-id", "the event id is null or empty"),
        arguments(with("aggregate_id", "\"\""), "empty-key", "the aggregate id is null or empty"),
        arguments(
            with("aggregate_type", "\"other\""),
            "unknown-aggregate-type",
            "aggregate type \"other\" is not in the option aggregates"),
        arguments(
            with("created_at", "\"secret\""),
            "event-time-invalid",
            "the event time is null or not a timestamp of the years 0 to 9999"),
        arguments(
            with("payload", "\"{}\""),
            "payload-invalid",
            "the payload fits no schema version of aggregate type note (1); the error with version"
                + " 1 is: payload: expected record Note, found string"));
  }

  private static Arguments lacking(String name) {
    String message = MESSAGE.replace("\"" + name + "\":", "\"other\":");
    return arguments(
        message, "message-invalid", "message: the object has no member \"" + name + "\"");
  }

  @ParameterizedTest
  @MethodSource("deadLetters")
  void invalidMessageBecomesADeadLetter(String content, String reason, String message) {
    SourceRecord letter = router().apply(event(content));
    assertEquals("library.dead-letter", letter.topic());
    assertEquals(reason, headers(letter).get("dead_letter_reason"));
    assertEquals(message, headers(letter).get("dead_letter_message"));
    assertEquals(OutboxEvents.SEQUENCE, headers(letter).get("source_sequence"));
    assertFalse(headers(letter).toString().contains("secret"));
  }

  @ParameterizedTest
  @MethodSource("deadLetters")
  void invalidMessageStopsTheTaskWithFail(String content, String reason, String message) {
    assertFails(
        router("invalid.rows", "fail"), event(content), OutboxEvents.SEQUENCE, reason, message);
  }

  /** PostgreSQL sends such a message even if the transaction is rolled back. */
  @Test
  void messageOutsideATransactionBecomesADeadLetter() {
    byte[] content = MESSAGE.getBytes(StandardCharsets.UTF_8);
    SourceRecord letter = router().apply(OutboxEvents.message("outbox", content, false));
    assertEquals("message-not-transactional", headers(letter).get("dead_letter_reason"));
    assertEquals("note-1", letter.key());
  }

  @Test
  void deadLetterHasTheMembersUnchanged() throws Exception {
    String message = with("payload", "{\"text\": 12345678901234567890.10}");
    JsonNode letter = valueOf(router().apply(event(message)));
    assertEquals("note-1", letter.get("aggregate_id").asText());
    assertEquals(OutboxEvents.SEQUENCE, letter.get("source_sequence").asText());
    byte[] value = (byte[]) router().apply(event(message)).value();
    assertEquals(
        message
                .substring(0, message.length() - 1)
                .replaceAll("(\"|\\}|\\d): ", "$1:")
                .replaceAll("(\"|\\}), \"", "$1,\"")
                .replace("{\"text\":", "{\"text\": ")
            + ",\"source_sequence\":\""
            + OutboxEvents.SEQUENCE
            + "\"}",
        new String(value, StandardCharsets.UTF_8));
  }

  @ParameterizedTest
  @ValueSource(bytes = {'x', (byte) 0xFF})
  void deadLetterOfInvalidJsonHasItsBytes(byte content) throws Exception {
    byte[] bytes = {content};
    JsonNode letter = valueOf(router().apply(OutboxEvents.message("outbox", bytes, true)));
    assertArrayEquals(bytes, letter.get("content").binaryValue());
  }

  @Test
  void largeMessagesBecomeCoordinates() throws Exception {
    String message = with("payload", "{\"text\": \"" + "x".repeat(900) + "\"}");
    SourceRecord letter = router("max.record.bytes", "800").apply(event(message));
    assertEquals("record-too-large", headers(letter).get("dead_letter_reason"));
    assertEquals(64, valueOf(letter).get("payload_sha256").asText().length());
    SourceRecord noJson = router("max.record.bytes", "800").apply(event("x".repeat(900)));
    assertEquals(900, valueOf(noJson).get("payload_bytes").asInt());
  }

  @Test
  void messagesWithOtherPrefixesAreRejected() {
    SourceRecord other = OutboxEvents.message("outbox-heartbeat", new byte[0], true);
    assertFails(router(), other, "topic library.message", "add messages to pass.through");
    assertEquals(other, router("pass.through", "messages").apply(other));
  }

  @Test
  void contentAsTextIsRejectedWithTheSettingToChange() {
    SourceRecord record = OutboxEvents.message("outbox", "c2VjcmV0", true);
    assertFails(router(), record, "binary.handling.mode=bytes");
  }

  private static JsonNode valueOf(SourceRecord letter) throws Exception {
    return new ObjectMapper().readTree((byte[]) letter.value());
  }
}
