package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.Utf8;
import java.util.EnumSet;
import java.util.Set;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What becomes of rows that cannot be routed: a record for the dead letter topic, or a failure. */
public final class InvalidRows {
  static final String REASON_HEADER = "dead_letter_reason";
  static final String MESSAGE_HEADER = "dead_letter_message";

  private static final Logger LOG = LoggerFactory.getLogger(InvalidRows.class);

  private final boolean deadLetters;
  private final String topic;
  private final int maxRecordBytes;
  private final RowHeaders rowHeaders;
  private final Set<Reason> warned = EnumSet.noneOf(Reason.class);

  public InvalidRows(RouterConfig config) {
    this.deadLetters = config.deadLetters();
    this.topic = config.deadLetterTopic();
    this.maxRecordBytes = config.maxRecordBytes();
    this.rowHeaders = new RowHeaders(config.takenHeaders());
  }

  /**
   * The dead letter of a row.
   *
   * @throws DataException instead, with {@code invalid.rows=fail}
   */
  public <R extends ConnectRecord<R>> R handle(R record, OutboxRow row, InvalidRowException why) {
    if (!deadLetters) {
      throw new DataException(
          "Outbox row at "
              + row.sequence()
              + " refused ("
              + why.reason().code()
              + "): "
              + why.getMessage()
              + ". Set invalid.rows=dead-letter to move on past such rows.");
    }
    log(row, why);
    boolean tooLarge = why.reason() == Reason.RECORD_TOO_LARGE;
    DeadLetter whole = tooLarge ? null : DeadLetter.whole(row, rowHeaders);
    // What is wrong with a row must not keep its dead letter from being too large as well.
    return whole != null && sizeOf(whole, row, why) <= maxRecordBytes
        ? newRecord(record, whole, row, why)
        : newRecord(record, DeadLetter.coordinates(row), row, why);
  }

  private <R extends ConnectRecord<R>> R newRecord(
      R record, DeadLetter letter, OutboxRow row, InvalidRowException why) {
    return record.newRecord(
        topic,
        null,
        letter.key() == null ? Schema.OPTIONAL_STRING_SCHEMA : Schema.STRING_SCHEMA,
        letter.key(),
        Schema.BYTES_SCHEMA,
        letter.value(),
        row.commitMillis(),
        headers(letter, why));
  }

  private static long sizeOf(DeadLetter letter, OutboxRow row, InvalidRowException why) {
    return Utf8.length(letter.key())
        + (long) letter.value().length
        + RecordHeaders.sizeOf(headers(letter, why));
  }

  private static ConnectHeaders headers(DeadLetter letter, InvalidRowException why) {
    ConnectHeaders headers = letter.headers().duplicate();
    // A row may bring headers of these names: it may be one that was a dead letter before.
    headers.remove(REASON_HEADER).remove(MESSAGE_HEADER);
    RecordHeaders.add(headers, REASON_HEADER, why.reason().code());
    RecordHeaders.add(headers, MESSAGE_HEADER, why.getMessage());
    return headers;
  }

  /**
   * Warns once per reason: a service that writes nothing but bad rows must not fill the log too.
   */
  private void log(OutboxRow row, InvalidRowException why) {
    String reason = why.reason().code();
    if (warned.add(why.reason())) {
      LOG.warn(
          "Outbox row at {} goes to {} ({}): {}. Further rows with this reason are logged at"
              + " debug.",
          row.sequence(),
          topic,
          reason,
          why.getMessage());
    } else {
      LOG.debug(
          "Outbox row at {} goes to {} ({}): {}", row.sequence(), topic, reason, why.getMessage());
    }
  }
}
