package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;

/** Everything that an event brought, whether it came as a row or as a message. */
interface RowColumns {
  /**
   * Refuses what cannot be an event, whatever its columns hold.
   *
   * @throws InvalidRowException says what is wrong with it, never what it holds
   */
  void requireUsable() throws InvalidRowException;

  /**
   * The column that picks the partition, as text; null if the event leaves it empty.
   *
   * @param aggregateType for the message of what is thrown
   * @throws DataException if no event could have it
   */
  String partitionText(String column, String aggregateType);

  /**
   * Adds the columns that {@code table.fields.additional.placement} names, as text, but those that
   * are null.
   */
  void addPlacedTo(ConnectHeaders headers);

  /** Whether the payload is known to be JSON, because nothing else could be stored there. */
  boolean payloadIsJson();

  /** Writes all of it into a JSON object that is open in the generator. */
  void writeFields(JsonGenerator json, JsonFactory factory) throws IOException;
}
