package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import io.outboxkit.smt.util.Bytes;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Values that the service put into Confluent wire format itself, passed on as they are once they
 * decode by the version whose id they carry; SQL NULL as a tombstone.
 */
final class ConfluentAvroPayloads implements PayloadEncoder {
  private static final int FRAME = 1 + Integer.BYTES;

  private final SchemaVersions<AvroBodyChecker> versions;

  ConfluentAvroPayloads(SchemaVersions<AvroBodyChecker> versions) {
    this.versions = versions;
  }

  @Override
  public byte[] encode(OutboxRow row) throws InvalidRowException {
    byte[] value = Bytes.of(row.payload());
    if (value == null) {
      return null;
    }
    if (value.length < FRAME || value[0] != 0) {
      throw invalid("is not in Confluent wire format: 0x00 and 4 bytes of schema id in front");
    }
    Version<AvroBodyChecker> version = versionOf(ByteBuffer.wrap(value).getInt(1), row);
    try {
      version.codec().check(value, FRAME);
      return value;
    } catch (PayloadException e) {
      throw invalid(
          "does not fit schema version "
              + version.label()
              + ", whose id it has; "
              + e.getMessage());
    }
  }

  private Version<AvroBodyChecker> versionOf(int id, OutboxRow row) throws InvalidRowException {
    List<Version<AvroBodyChecker>> candidates = versions.candidates(row);
    for (Version<AvroBodyChecker> version : candidates) {
      if (version.id() == id) {
        return version;
      }
    }
    throw invalid(
        // Not the id: if the value is not framed it is a part of what the row holds.
        (row.schemaVersion() == null
                ? "has the schema id of no configured version"
                : "has not the schema id of the version that the row names")
            + ", expected "
            + candidates.stream()
                .map(version -> version.id() + " (version " + version.label() + ")")
                .collect(Collectors.joining(" or ")));
  }

  private static InvalidRowException invalid(String problem) {
    return new InvalidRowException(Reason.PAYLOAD_INVALID, "the payload " + problem);
  }
}
