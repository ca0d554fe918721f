package io.outboxkit.smt.routing;

import com.fasterxml.jackson.core.JsonGenerator;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RecordHeaders;
import io.outboxkit.smt.outbox.RowHeaders;
import io.outboxkit.smt.util.Bytes;
import io.outboxkit.smt.util.Json;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * Key, value and headers of a dead letter. The value is a JSON object: all columns of the row and
 * {@code source_sequence}, or, for a row that is too large, its coordinates and a payload hash.
 *
 * @param key aggregate id, or null
 */
record DeadLetter(String key, byte[] value, ConnectHeaders headers) {
  /** Longer texts are replaced by a hash in coordinates, to limit the size of the record. */
  private static final int MAX_COORDINATE = 255;

  static DeadLetter whole(OutboxRow row, RowHeaders rowHeaders) {
    // Not as bytes, because that generator fails on an unpaired surrogate.
    StringWriter value = new StringWriter();
    try (JsonGenerator json = Json.FACTORY.createGenerator(value)) {
      json.writeStartObject();
      row.columns().writeFields(json);
      json.writeStringField(RecordHeaders.SOURCE_SEQUENCE, row.sequence());
      json.writeEndObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new DeadLetter(row.key(), utf8(value.toString()), headers(row, rowHeaders));
  }

  static DeadLetter coordinates(OutboxRow row) {
    String id = limited(row.id());
    String key = limited(row.key());
    String aggregateType = limited(row.aggregateType());
    String eventType = limited(row.eventType());
    StringWriter value = new StringWriter();
    try (JsonGenerator json = Json.FACTORY.createGenerator(value)) {
      json.writeStartObject();
      json.writeStringField("id", id);
      json.writeStringField("aggregate_type", aggregateType);
      json.writeStringField("aggregate_id", key);
      json.writeStringField("event_type", eventType);
      json.writeStringField(RecordHeaders.SOURCE_SEQUENCE, row.sequence());
      json.writeObjectField("lsn", row.lsn());
      writePayloadHash(json, row.payload());
      json.writeEndObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return new DeadLetter(
        key,
        utf8(value.toString()),
        RecordHeaders.of(id, eventType, aggregateType, row.eventTime(), row.sequence()));
  }

  private static void writePayloadHash(JsonGenerator json, Object payload) throws IOException {
    byte[] bytes = payload instanceof String text ? utf8(text) : Bytes.of(payload);
    json.writeStringField("payload_sha256", bytes == null ? null : Bytes.sha256(bytes));
    json.writeNumberField("payload_bytes", bytes == null ? 0 : bytes.length);
  }

  private static ConnectHeaders headers(OutboxRow row, RowHeaders rowHeaders) {
    ConnectHeaders headers = RecordHeaders.of(row);
    row.columns().addPlacedTo(headers);
    try {
      ConnectHeaders all = headers.duplicate();
      rowHeaders.addTo(all, row.headers());
      return all;
    } catch (InvalidRowException e) {
      return headers;
    }
  }

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String limited(String text) {
    return text == null || text.length() <= MAX_COORDINATE
        ? text
        : "sha256:" + Bytes.sha256(utf8(text));
  }
}
