package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import io.outboxkit.smt.util.Bytes;

/**
 * Avro bodies, put into Confluent wire format with the id of the version that the row names, or of
 * the only one, once they decode by it to their last byte; SQL NULL as a tombstone. No other
 * version is tried: bytes that decode by it may mean something else.
 */
final class AvroPayloads implements PayloadEncoder {
  private final SchemaVersions<AvroBodyChecker> versions;
  private final AvroOutput out;

  /**
   * @param out scratch space, which encoders of the same thread may share
   */
  AvroPayloads(SchemaVersions<AvroBodyChecker> versions, AvroOutput out) {
    this.versions = versions;
    this.out = out;
  }

  @Override
  public byte[] encode(OutboxRow row) throws InvalidRowException {
    byte[] body = Bytes.of(row.payload());
    if (body == null) {
      return null;
    }
    Version<AvroBodyChecker> version = versions.one(row);
    try {
      version.codec().check(body, 0);
      out.startFramed(version.id());
      out.writeFixed(body);
      return out.toByteArray();
    } catch (PayloadException e) {
      throw versions.misfit(row, e);
    }
  }
}
