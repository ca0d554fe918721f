package io.outboxkit.smt.routing;

import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.InvalidRowException.Reason;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RecordHeaders;
import io.outboxkit.smt.outbox.RowHeaders;
import io.outboxkit.smt.util.Utf8;
import java.util.EnumSet;
import java.util.Set;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Converts rows that cannot be routed to dead letters, or stops the task. */
public final class InvalidRowHandler {
  private static final Logger LOG = LoggerFactory.getLogger(InvalidRowHandler.class);

  private final boolean deadLetters;
  private final String topic;
  private final int maxRecordBytes;
  private final RowHeaders rowHeaders;
  private final Set<Reason> warned = EnumSet.noneOf(Reason.class);

  public InvalidRowHandler(RouterConfig config) {
    this.deadLetters = config.deadLetters();
    this.topic = config.getString(ConfigName.DEAD_LETTER_TOPIC);
    this.maxRecordBytes = config.getInt(ConfigName.MAX_RECORD_BYTES);
    this.rowHeaders = new RowHeaders(config.reservedHeaders());
  }

  /**
   * Return the dead letter of a row.
   *
   * @throws DataException with {@code invalid.rows=fail}
   */
  public <R extends ConnectRecord<R>> R handle(R record, OutboxRow row, InvalidRowException error) {
    if (!deadLetters) {
      throw new DataException(
          String.format(
              "Outbox row at %s is invalid (%s): %s; set invalid.rows=dead-letter to write such"
                  + " rows to a dead letter topic",
              row.sequence(), error.reason().code(), error.getMessage()));
    }
    log(row, error);
    boolean tooLarge = error.reason() == Reason.RECORD_TOO_LARGE;
    DeadLetter whole = tooLarge ? null : DeadLetter.whole(row, rowHeaders);
    // A row that is invalid for another reason can be too large as well.
    return whole != null && sizeOf(whole, row, error) <= maxRecordBytes
        ? newRecord(record, whole, row, error)
        : newRecord(record, DeadLetter.coordinates(row), row, error);
  }

  private <R extends ConnectRecord<R>> R newRecord(
      R record, DeadLetter letter, OutboxRow row, InvalidRowException error) {
    return record.newRecord(
        topic,
        null,
        letter.key() == null ? Schema.OPTIONAL_STRING_SCHEMA : Schema.STRING_SCHEMA,
        letter.key(),
        Schema.BYTES_SCHEMA,
        letter.value(),
        row.commitMillis(),
        headers(letter, error));
  }

  private static long sizeOf(DeadLetter letter, OutboxRow row, InvalidRowException error) {
    return Utf8.length(letter.key())
        + (long) letter.value().length
        + RecordHeaders.sizeOf(headers(letter, error));
  }

  private static ConnectHeaders headers(DeadLetter letter, InvalidRowException error) {
    ConnectHeaders headers = letter.headers().duplicate();
    // The row itself can have these headers if it was a dead letter before.
    headers.remove(RecordHeaders.DEAD_LETTER_REASON).remove(RecordHeaders.DEAD_LETTER_MESSAGE);
    RecordHeaders.add(headers, RecordHeaders.DEAD_LETTER_REASON, error.reason().code());
    RecordHeaders.add(headers, RecordHeaders.DEAD_LETTER_MESSAGE, error.getMessage());
    return headers;
  }

  /** Log the first row of each reason, and the others at debug only, to limit the log's size. */
  private void log(OutboxRow row, InvalidRowException error) {
    String reason = error.reason().code();
    if (warned.add(error.reason())) {
      LOG.warn(
          "Writing invalid outbox row at {} to {} ({}): {}. Further rows with this reason are"
              + " logged at debug.",
          row.sequence(),
          topic,
          reason,
          error.getMessage());
    } else {
      LOG.debug(
          "Writing invalid outbox row at {} to {} ({}): {}",
          row.sequence(),
          topic,
          reason,
          error.getMessage());
    }
  }
}
