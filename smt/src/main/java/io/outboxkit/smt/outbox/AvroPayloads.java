package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import io.outboxkit.smt.util.Bytes;
import java.nio.ByteBuffer;

/**
 * Avro bodies, put into Confluent wire format with the id of the version that the row names, or of
 * the only one, once they decode by it to their last byte; SQL NULL as a tombstone. No other
 * version is tried: bytes that decode by it may mean something else.
 */
final class AvroPayloads implements PayloadEncoder {
  private static final int FRAME = 1 + Integer.BYTES;

  private final SchemaVersions<AvroBodyChecker> versions;

  AvroPayloads(SchemaVersions<AvroBodyChecker> versions) {
    this.versions = versions;
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
      return framed(version.id(), body);
    } catch (PayloadException e) {
      throw versions.misfit(row, e);
    }
  }

  private static byte[] framed(int id, byte[] body) {
    return ByteBuffer.allocate(FRAME + body.length).put((byte) 0).putInt(id).put(body).array();
  }

  @Override
  public String contentType(OutboxRow row) {
    return JsonPayloads.CONTENT_TYPE;
  }
}
