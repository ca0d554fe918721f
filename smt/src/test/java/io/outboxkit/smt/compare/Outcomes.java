package io.outboxkit.smt.compare;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.outboxkit.smt.CapturedLog;
import io.outboxkit.smt.Routers;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/** What can become of a record. */
final class Outcomes {
  private Outcomes() {}

  /** The transform throws, which stops the task; its message has the words. */
  static void assertStops(
      Class<? extends Exception> type,
      String words,
      UnaryOperator<SourceRecord> transform,
      SourceRecord record) {
    String message = assertThrows(type, () -> transform.apply(record)).getMessage();
    assertTrue(message.contains(words), message);
  }

  /** EventRouter's answer, given with one warning in the log. */
  static SourceRecord warned(UnaryOperator<SourceRecord> transform, SourceRecord record) {
    try (CapturedLog log = new CapturedLog("io.debezium.transforms.outbox")) {
      SourceRecord after = transform.apply(record);
      assertEquals(1, log.warnings());
      return after;
    }
  }

  static void assertDeadLetter(String reason, SourceRecord record) {
    assertEquals("library.dead-letter", record.topic());
    assertEquals(reason, header(record, "dead_letter_reason"));
  }

  static void assertTombstone(SourceRecord record) {
    assertNull(record.value());
    assertNull(record.valueSchema());
  }

  /** The value of the header, null if there is none. */
  static Object header(SourceRecord record, String name) {
    Header header = record.headers().lastWithName(name);
    return header == null ? null : header.value();
  }

  /** The value as JsonConverter writes it, without schemas. */
  static String json(SourceRecord record) {
    byte[] bytes = converter(false).fromConnectData(null, record.valueSchema(), record.value());
    return bytes == null ? null : new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
  }

  static JsonConverter converter(boolean withSchemas) {
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("schemas.enable", Boolean.toString(withSchemas)), false);
    return converter;
  }

  /** The value of ours as Avro's reader reads it by the schema. */
  static String avro(String schema, SourceRecord record) throws Exception {
    return Routers.decode(record, schema, Routers.NOTE_V1_ID).toString();
  }
}
