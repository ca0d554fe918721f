package io.outboxkit.smt.routing;

import com.fasterxml.jackson.core.JsonGenerator;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RecordHeaders;
import io.outboxkit.smt.outbox.RowHeaders;
import io.outboxkit.smt.util.Bytes;
import io.outboxkit.smt.util.Json;
import io.outboxkit.smt.util.Utf8;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * Key, value and headers of a dead letter. The value is a JSON object with all columns of the row
 * and {@code source_sequence}. If the row or this object is too large, the value contains only the
 * row's coordinates: the columns that identify the event, WAL positions and a payload hash.
 *
 * @param key aggregate id or its hash, or null if the row does not have an aggregate id
 */
record DeadLetter(String key, byte[] value, ConnectHeaders headers) {
  /** Maximum length of a text in the coordinates, in chars. Longer text is replaced by its hash. */
  private static final int MAX_COORDINATE_LENGTH = 255;

  static DeadLetter withAllColumns(
      OutboxRow row, RowHeaders headerParser, InvalidRowException error) {
    byte[] value =
        jsonObject(
            json -> {
              row.columns().writeFields(json);
              json.writeStringField(RecordHeaders.SOURCE_SEQUENCE, row.sequence());
            });
    return of(row.key(), value, headers(row, headerParser), error);
  }

  static DeadLetter withCoordinates(OutboxRow row, InvalidRowException error) {
    String id = hashIfLong(row.id());
    String key = hashIfLong(row.key());
    String aggregateType = hashIfLong(row.aggregateType());
    String eventType = hashIfLong(row.eventType());
    byte[] value =
        jsonObject(
            json -> {
              json.writeStringField("id", id);
              json.writeStringField("aggregate_type", aggregateType);
              json.writeStringField("aggregate_id", key);
              json.writeStringField("event_type", eventType);
              json.writeStringField(RecordHeaders.SOURCE_SEQUENCE, row.sequence());
              json.writeObjectField("lsn", row.lsn());
              writePayloadHash(json, row.payload());
            });
    ConnectHeaders headers =
        RecordHeaders.of(id, eventType, aggregateType, row.eventTime(), row.sequence());
    return of(key, value, headers, error);
  }

  /** Return the size, in bytes, of key, value and headers. */
  long size() {
    return (long) Utf8.length(key) + value.length + RecordHeaders.sizeOf(headers);
  }

  private static DeadLetter of(
      String key, byte[] value, ConnectHeaders headers, InvalidRowException error) {
    // A row that was created from a dead letter can already have these headers.
    headers.remove(RecordHeaders.DEAD_LETTER_REASON).remove(RecordHeaders.DEAD_LETTER_MESSAGE);
    RecordHeaders.add(headers, RecordHeaders.DEAD_LETTER_REASON, error.reason().code());
    RecordHeaders.add(headers, RecordHeaders.DEAD_LETTER_MESSAGE, error.getMessage());
    return new DeadLetter(key, value, headers);
  }

  private interface FieldsWriter {
    void write(JsonGenerator json) throws IOException;
  }

  private static byte[] jsonObject(FieldsWriter writer) {
    // Write text first, because Jackson's generator for bytes fails on an unpaired surrogate.
    StringWriter text = new StringWriter();
    try (JsonGenerator json = Json.FACTORY.createGenerator(text)) {
      json.writeStartObject();
      writer.write(json);
      json.writeEndObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return encodeUtf8(text.toString());
  }

  private static void writePayloadHash(JsonGenerator json, Object payload) throws IOException {
    byte[] bytes = payload instanceof String text ? encodeUtf8(text) : Bytes.of(payload);
    json.writeStringField("payload_sha256", bytes == null ? null : Bytes.sha256(bytes));
    json.writeNumberField("payload_bytes", bytes == null ? 0 : bytes.length);
  }

  private static ConnectHeaders headers(OutboxRow row, RowHeaders headerParser) {
    ConnectHeaders headers = RecordHeaders.of(row);
    row.columns().addColumnHeaders(headers);
    try {
      ConnectHeaders allHeaders = headers.duplicate();
      headerParser.addTo(allHeaders, row.headers());
      return allHeaders;
    } catch (InvalidRowException e) {
      return headers;
    }
  }

  private static byte[] encodeUtf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String hashIfLong(String text) {
    return text == null || text.length() <= MAX_COORDINATE_LENGTH
        ? text
        : "sha256:" + Bytes.sha256(encodeUtf8(text));
  }
}
