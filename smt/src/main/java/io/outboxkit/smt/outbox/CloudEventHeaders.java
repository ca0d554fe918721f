package io.outboxkit.smt.outbox;

import java.util.Set;
import org.apache.kafka.connect.header.ConnectHeaders;

/** Headers of CloudEvents 1.0 in the binary content mode of the Kafka protocol binding. */
public record CloudEventHeaders(String source) {
  private static final String SPEC_VERSION = "ce_specversion";
  private static final String ID = "ce_id";
  private static final String SOURCE = "ce_source";
  private static final String TYPE = "ce_type";
  private static final String TIME = "ce_time";
  private static final String SUBJECT = "ce_subject";
  private static final String CONTENT_TYPE = "content-type";

  public static final Set<String> NAMES =
      Set.of(SPEC_VERSION, ID, SOURCE, TYPE, TIME, SUBJECT, CONTENT_TYPE);

  /** Add the headers. {@code contentType} is the value's media type, or null for a tombstone. */
  public void addTo(ConnectHeaders headers, OutboxRow row, String contentType) {
    RecordHeaders.add(headers, SPEC_VERSION, "1.0");
    RecordHeaders.add(headers, ID, row.id());
    RecordHeaders.add(headers, SOURCE, source);
    RecordHeaders.add(headers, TYPE, row.eventType());
    RecordHeaders.add(headers, TIME, row.eventTime());
    RecordHeaders.add(headers, SUBJECT, row.key());
    RecordHeaders.add(headers, CONTENT_TYPE, contentType);
  }
}
