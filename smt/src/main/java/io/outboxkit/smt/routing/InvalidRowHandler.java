package io.outboxkit.smt.routing;

import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.InvalidRowException.Reason;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RowHeaders;
import java.util.EnumSet;
import java.util.Set;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Converts invalid rows into dead letters, or stops the task. */
public final class InvalidRowHandler {
  private static final Logger LOG = LoggerFactory.getLogger(InvalidRowHandler.class);

  private final boolean writesDeadLetters;
  private final String topic;
  private final int maxRecordBytes;
  private final RowHeaders headerParser;
  private final Set<Reason> loggedReasons = EnumSet.noneOf(Reason.class);

  public InvalidRowHandler(RouterConfig config) {
    this.writesDeadLetters = config.writesDeadLetters();
    this.topic = config.getString(ConfigName.DEAD_LETTER_TOPIC);
    this.maxRecordBytes = config.getInt(ConfigName.MAX_RECORD_BYTES);
    this.headerParser = new RowHeaders(config.reservedHeaders());
  }

  /** Return the dead letter for a row. Throw DataException if {@code invalid.rows=fail}. */
  public <R extends ConnectRecord<R>> R handle(R record, OutboxRow row, InvalidRowException error) {
    if (!writesDeadLetters) {
      throw new DataException(
          String.format(
              "Outbox row with source_sequence %s is invalid (%s): %s; set invalid.rows=dead-letter"
                  + " and dead.letter.topic to write such rows to a dead letter topic",
              row.sequence(), error.reason().code(), error.getMessage()));
    }
    log(row, error);
    // A row with any other error can also be too large for a dead letter with all columns.
    DeadLetter letter =
        error.reason() == Reason.RECORD_TOO_LARGE
            ? null
            : DeadLetter.withAllColumns(row, headerParser, error);
    if (letter == null || letter.size() > maxRecordBytes) {
      letter = DeadLetter.withCoordinates(row, error);
    }
    return record.newRecord(
        topic,
        null,
        letter.key() == null ? Schema.OPTIONAL_STRING_SCHEMA : Schema.STRING_SCHEMA,
        letter.key(),
        Schema.BYTES_SCHEMA,
        letter.value(),
        row.commitMillis(),
        letter.headers());
  }

  /** Log the first row with each reason at WARN, and later rows at DEBUG to limit the log. */
  private void log(OutboxRow row, InvalidRowException error) {
    String format = "Writing invalid outbox row with source_sequence {} to topic {} ({}): {}";
    Object[] arguments = {row.sequence(), topic, error.reason().code(), error.getMessage()};
    if (loggedReasons.add(error.reason())) {
      LOG.warn(format + ". Further rows with this reason are logged at DEBUG.", arguments);
    } else {
      LOG.debug(format, arguments);
    }
  }
}
