package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import org.apache.kafka.connect.errors.DataException;

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

  /** Writes all of it into a JSON object that is open in the generator. */
  void writeFields(JsonGenerator json, JsonFactory factory) throws IOException;
}
