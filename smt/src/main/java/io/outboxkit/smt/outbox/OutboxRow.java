package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * An inserted row of the outbox table, or a logical decoding message with the same columns. Texts
 * are null for SQL NULL; they are validated when the row is routed.
 *
 * @param key aggregate id
 * @param schemaVersion label of the payload's schema version; null if the row has none
 * @param payload text, byte array or ByteBuffer; null for SQL NULL and for JSON null of a message;
 *     the whole content of a message that is not a JSON object
 * @param headers JSON text
 * @param eventTime UTC with six fraction digits; null if the column is not a valid time
 * @param sequence the header source_sequence
 * @param lsn LSN of the event; null if the source has none
 * @param commitMillis commit time in milliseconds since 1970; null if the source has none
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

  /** Placeholder for a change of the outbox table that is not routed. */
  public static final OutboxRow SKIPPED =
      new OutboxRow(null, null, null, null, null, null, null, null, null, null, null, null);

  /** All columns of the row, or all members of the message. */
  public interface Columns {
    /** Throw if the source is not a valid event, whatever its columns contain. */
    void requireValid() throws InvalidRowException;

    /** Return the partition column as text or null; throw DataException if there is none. */
    String partitionText(String column, String aggregateType);

    /** Add the columns of {@code table.fields.additional.placement} that are not null. */
    void addPlacedTo(ConnectHeaders headers);

    /** Return whether the type of the payload column is JSON. */
    boolean payloadIsJson();

    /** Write all columns as fields of the generator's current object. */
    void writeFields(JsonGenerator json) throws IOException;
  }
}
