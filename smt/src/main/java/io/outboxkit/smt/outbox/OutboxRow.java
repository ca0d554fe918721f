package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * An inserted row of the outbox table, or a logical decoding message with the same columns. SQL
 * NULL is a null string. The values are validated when the row is routed.
 *
 * @param key aggregate id
 * @param schemaVersion label of the payload's schema version, or null if the row does not name one
 * @param payload text, byte array or ByteBuffer, or null for SQL NULL and for JSON null in a
 *     message. If a message is not a JSON object, the payload is its entire content
 * @param headers JSON text of the headers column
 * @param eventTime time in UTC with six fraction digits, or null if the column is not a valid time
 * @param sequence value of the header source_sequence
 * @param lsn LSN of the event, or null if the source does not contain an LSN
 * @param commitMillis commit time in milliseconds since the Unix epoch, or null if unknown
 */
public record OutboxRow(
    Columns columns,
    String id,
    String key,
    String aggregateType,
    String eventType,
    String schemaVersion,
    Object payload,
    String headers,
    String eventTime,
    String sequence,
    Long lsn,
    Long commitMillis) {

  /** Placeholder for a change of the outbox table, if the change is not routed. */
  public static final OutboxRow SKIPPED =
      new OutboxRow(null, null, null, null, null, null, null, null, null, null, null, null);

  /** All columns of the row, or all members of the message. */
  public interface Columns {
    /** Throw InvalidRowException if the row comes from a message that is not valid. */
    void requireValid() throws InvalidRowException;

    /** Return a column's text, or null for SQL NULL. Throw DataException if it does not exist. */
    String partitionText(String column, String aggregateType);

    /** Add the columns of {@code table.fields.additional.placement} that are not null. */
    void addColumnHeaders(ConnectHeaders headers);

    /** Return whether the payload comes from a message or from a json or jsonb column. */
    boolean payloadIsJson();

    /** Write all columns as fields of the generator's current JSON object. */
    void writeFields(JsonGenerator json) throws IOException;
  }
}
