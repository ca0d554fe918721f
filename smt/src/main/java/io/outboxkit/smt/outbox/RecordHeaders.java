package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.Utf8;
import java.util.Set;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;

/** The headers that every record has. All are strings. */
final class RecordHeaders {
  static final String EVENT_ID = "event_id";
  static final String EVENT_TYPE = "event_type";
  static final String AGGREGATE_TYPE = "aggregate_type";
  static final String EVENT_TIME = "event_time";
  static final String SOURCE_SEQUENCE = "source_sequence";

  static final Set<String> NAMES =
      Set.of(EVENT_ID, EVENT_TYPE, AGGREGATE_TYPE, EVENT_TIME, SOURCE_SEQUENCE);

  /** Names that nothing else may take, whatever it comes from. */
  static final Set<String> RESERVED =
      Set.of(
          EVENT_ID,
          EVENT_TYPE,
          AGGREGATE_TYPE,
          EVENT_TIME,
          SOURCE_SEQUENCE,
          InvalidRows.REASON_HEADER,
          InvalidRows.MESSAGE_HEADER);

  /** Kafka puts the lengths of name and value in front of them, as varints of up to 5 bytes. */
  private static final int FRAMING = 10;

  private RecordHeaders() {}

  /** The five headers, without those whose value is null. */
  static ConnectHeaders of(
      String id, String eventType, String aggregateType, String eventTime, String sequence) {
    ConnectHeaders headers = new ConnectHeaders();
    add(headers, EVENT_ID, id);
    add(headers, EVENT_TYPE, eventType);
    add(headers, AGGREGATE_TYPE, aggregateType);
    add(headers, EVENT_TIME, eventTime);
    add(headers, SOURCE_SEQUENCE, sequence);
    return headers;
  }

  static ConnectHeaders of(OutboxRow row) {
    return of(row.id(), row.eventType(), row.aggregateType(), row.eventTime(), row.sequence());
  }

  static void add(ConnectHeaders headers, String name, String value) {
    if (value != null) {
      headers.add(name, value, Schema.STRING_SCHEMA);
    }
  }

  /** Chars of all names and values, and what frames them. */
  static long charsOf(ConnectHeaders headers) {
    long chars = 0;
    for (Header header : headers) {
      chars += FRAMING + header.key().length() + ((String) header.value()).length();
    }
    return chars;
  }

  /** Bytes of all names and values in UTF-8, and of what frames them. */
  static long sizeOf(ConnectHeaders headers) {
    long size = 0;
    for (Header header : headers) {
      size += FRAMING + Utf8.length(header.key()) + Utf8.length((String) header.value());
    }
    return size;
  }
}
