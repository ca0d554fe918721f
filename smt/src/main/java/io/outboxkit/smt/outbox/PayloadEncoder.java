package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.AggregateRoute.SchemaVersion;
import io.outboxkit.smt.util.JsonNull;
import java.util.stream.Collectors;

/** Payloads as values in Confluent wire format. Not thread-safe. */
final class PayloadEncoder {
  private final AvroOutput out = new AvroOutput();

  /**
   * Encodes by the newest version of the schema that accepts the payload: rows written before a
   * schema change are still on their way when it is deployed.
   *
   * @param payload JSON text; null for SQL NULL
   * @return an array of exactly the value's bytes; null for a tombstone, when the payload is SQL
   *     NULL or JSON null
   * @throws InvalidRowException if no version accepts it; gives the newest version's reason
   */
  byte[] encode(AggregateRoute route, String payload) throws InvalidRowException {
    if (payload == null || JsonNull.is(payload)) {
      return null;
    }
    PayloadException newestRefusal = null;
    for (SchemaVersion version : route.versions()) {
      try {
        out.startFramed(version.id());
        version.encoder().encode(payload, out);
        return out.toByteArray();
      } catch (PayloadException e) {
        newestRefusal = newestRefusal == null ? e : newestRefusal;
      }
    }
    throw new InvalidRowException(
        Reason.PAYLOAD_INVALID,
        "the payload fits no schema version of "
            + route.type()
            + " ("
            + route.versions().stream().map(SchemaVersion::label).collect(Collectors.joining(", "))
            + "); by version "
            + route.versions().get(0).label()
            + ", "
            + newestRefusal.getMessage());
  }
}
