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

/** Assertions on the results of transforms. */
final class Outcomes {
  private Outcomes() {}

  /** Assert that the transform throws an exception whose message contains the text. */
  static void assertStops(
      Class<? extends Exception> type,
      String text,
      UnaryOperator<SourceRecord> transform,
      SourceRecord record) {
    String message = assertThrows(type, () -> transform.apply(record)).getMessage();
    assertTrue(message.contains(text), message);
  }

  /** Return EventRouter's result; assert that it logs one warning. */
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

  /** Return the value of the header, null if there is none. */
  static Object header(SourceRecord record, String name) {
    Header header = record.headers().lastWithName(name);
    return header == null ? null : header.value();
  }

  /** Return the value as JsonConverter writes it without schemas. */
  static String json(SourceRecord record) {
    byte[] bytes = converter(false).fromConnectData(null, record.valueSchema(), record.value());
    return bytes == null ? null : new String(bytes, java.nio.charset.StandardCharsets.UTF_8);
  }

  static JsonConverter converter(boolean withSchemas) {
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("schemas.enable", Boolean.toString(withSchemas)), false);
    return converter;
  }

  /** Return OutboxRouter's value, decoded by Avro's reader. */
  static String avro(String schema, SourceRecord record) throws Exception {
    return Routers.decode(record, schema, Routers.NOTE_V1_ID).toString();
  }
}
