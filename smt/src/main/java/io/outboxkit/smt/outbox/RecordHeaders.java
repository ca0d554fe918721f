package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.Utf8;
import java.util.Set;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;

/** Headers that docs/contract.md specifies. All headers have schema STRING. */
public final class RecordHeaders {
  public static final String DEAD_LETTER_REASON = "dead_letter_reason";
  public static final String DEAD_LETTER_MESSAGE = "dead_letter_message";
  public static final String SOURCE_SEQUENCE = "source_sequence";

  private static final String EVENT_ID = "event_id";
  private static final String EVENT_TYPE = "event_type";
  private static final String AGGREGATE_TYPE = "aggregate_type";
  private static final String EVENT_TIME = "event_time";

  public static final Set<String> NAMES =
      Set.of(EVENT_ID, EVENT_TYPE, AGGREGATE_TYPE, EVENT_TIME, SOURCE_SEQUENCE);

  /** Maximum size, in bytes, of two varints: the length of a name and the length of its value. */
  private static final int MAX_FRAMING_BYTES = 10;

  private RecordHeaders() {}

  static boolean isReserved(String name) {
    return NAMES.contains(name)
        || name.equals(DEAD_LETTER_REASON)
        || name.equals(DEAD_LETTER_MESSAGE);
  }

  /** Return the headers of docs/contract.md whose values are not null. */
  public static ConnectHeaders of(
      String id, String eventType, String aggregateType, String eventTime, String sequence) {
    ConnectHeaders headers = new ConnectHeaders();
    add(headers, EVENT_ID, id);
    add(headers, EVENT_TYPE, eventType);
    add(headers, AGGREGATE_TYPE, aggregateType);
    add(headers, EVENT_TIME, eventTime);
    add(headers, SOURCE_SEQUENCE, sequence);
    return headers;
  }

  public static ConnectHeaders of(OutboxRow row) {
    return of(row.id(), row.eventType(), row.aggregateType(), row.eventTime(), row.sequence());
  }

  /** Add a header unless its value is null. */
  public static void add(ConnectHeaders headers, String name, String value) {
    if (value != null) {
      headers.add(name, value, Schema.STRING_SCHEMA);
    }
  }

  /** Return the number of chars of all names and values, plus the framing of each header. */
  public static long countChars(ConnectHeaders headers) {
    long chars = 0;
    for (Header header : headers) {
      chars += MAX_FRAMING_BYTES + header.key().length() + ((String) header.value()).length();
    }
    return chars;
  }

  /** Return the size, in bytes, of all names and values, plus the framing of each header. */
  public static long sizeOf(ConnectHeaders headers) {
    long size = 0;
    for (Header header : headers) {
      size += MAX_FRAMING_BYTES + Utf8.length(header.key()) + Utf8.length((String) header.value());
    }
    return size;
  }
}
