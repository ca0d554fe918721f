package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import io.outboxkit.smt.util.JsonNull;

/** JSON text as Avro in Confluent wire format; SQL NULL and JSON null as tombstones. */
final class JsonPayloads implements PayloadEncoder {
  private final SchemaVersions<JsonAvroEncoder> versions;
  private final AvroOutput out;

  /**
   * @param out scratch space, which encoders of the same thread may share
   */
  JsonPayloads(SchemaVersions<JsonAvroEncoder> versions, AvroOutput out) {
    this.versions = versions;
    this.out = out;
  }

  /**
   * Encodes by the newest version of the schema that accepts the payload, for rows written before a
   * schema change are still on their way when it is deployed; or by the one that the row names.
   * Where unknown fields are ignored, it is the version that leaves out the fewest, the newest of
   * them: a field that some version has must not vanish because of one that none has.
   */
  @Override
  public byte[] encode(OutboxRow row) throws InvalidRowException {
    String payload = (String) row.payload();
    if (payload == null || JsonNull.is(payload)) {
      return null;
    }
    PayloadException newestRefusal = null;
    byte[] best = null;
    int fewest = 0;
    for (Version<JsonAvroEncoder> version : versions.candidates(row)) {
      try {
        out.startFramed(version.id());
        version.codec().encode(payload, out);
        if (out.skippedFields() == 0) {
          return out.toByteArray();
        }
        if (best == null || out.skippedFields() < fewest) {
          best = out.toByteArray();
          fewest = out.skippedFields();
        }
      } catch (PayloadException e) {
        newestRefusal = newestRefusal == null ? e : newestRefusal;
      }
    }
    if (best != null) {
      return best;
    }
    throw versions.misfit(row, newestRefusal);
  }
}
