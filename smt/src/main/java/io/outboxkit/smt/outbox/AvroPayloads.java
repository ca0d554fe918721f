package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import io.outboxkit.smt.util.Bytes;
import java.nio.ByteBuffer;

/**
 * Avro bodies, put into Confluent wire format with the id of the newest version that they decode by
 * to their last byte, or of the one that the row names; SQL NULL as a tombstone.
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
    PayloadException newestRefusal = null;
    for (Version<AvroBodyChecker> version : versions.candidates(row)) {
      try {
        version.codec().check(body, 0);
        return framed(version.id(), body);
      } catch (PayloadException e) {
        newestRefusal = newestRefusal == null ? e : newestRefusal;
      }
    }
    throw versions.misfit(row, newestRefusal);
  }

  private static byte[] framed(int id, byte[] body) {
    return ByteBuffer.allocate(FRAME + body.length).put((byte) 0).putInt(id).put(body).array();
  }

  @Override
  public String contentType(OutboxRow row) {
    return JsonPayloads.CONTENT_TYPE;
  }
}
