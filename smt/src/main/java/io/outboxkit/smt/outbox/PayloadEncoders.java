package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.InvalidRowException.Reason;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import io.outboxkit.smt.util.Bytes;
import io.outboxkit.smt.util.Json;
import io.outboxkit.smt.util.Utf8;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/** One encoder for each {@link PayloadFormat}. SQL NULL becomes a tombstone in every format. */
public final class PayloadEncoders {
  private PayloadEncoders() {}

  /** Encodes JSON text as Avro in Confluent wire format. JSON null also becomes a tombstone. */
  public record JsonEncoder(SchemaVersions<JsonAvroEncoder> versions, AvroOutput out)
      implements PayloadEncoder {
    /**
     * Encode with the row's schema version or, if the row names no version, with the latest version
     * that accepts the payload, because a backlog can contain rows from before a schema change. If
     * unknown fields are ignored, encode with the version that skips the fewest fields, so that a
     * field that only an older version has is not lost.
     */
    @Override
    public byte[] encode(OutboxRow row) throws InvalidRowException {
      String payload = (String) row.payload();
      if (payload == null || Json.isNull(payload)) {
        return null;
      }
      PayloadException latestVersionError = null;
      byte[] bestValue = null;
      int fewestSkipped = 0;
      for (Version<JsonAvroEncoder> version : versions.candidates(row)) {
        try {
          out.startFramed(version.id());
          version.codec().encode(payload, out);
          if (out.skippedFields() == 0) {
            return out.toByteArray();
          }
          if (bestValue == null || out.skippedFields() < fewestSkipped) {
            bestValue = out.toByteArray();
            fewestSkipped = out.skippedFields();
          }
        } catch (PayloadException e) {
          latestVersionError = latestVersionError == null ? e : latestVersionError;
        }
      }
      if (bestValue != null) {
        return bestValue;
      }
      throw versions.mismatch(row, latestVersionError);
    }
  }

  /**
   * Adds the header of the Confluent wire format to Avro bodies. A body must be valid for the row's
   * schema version, or for the only version. Other versions are not tried, because the bytes could
   * decode to different values without an error.
   */
  public record AvroEncoder(SchemaVersions<AvroBodyChecker> versions, AvroOutput out)
      implements PayloadEncoder {
    @Override
    public byte[] encode(OutboxRow row) throws InvalidRowException {
      byte[] body = Bytes.of(row.payload());
      if (body == null) {
        return null;
      }
      Version<AvroBodyChecker> version = versions.single(row);
      try {
        version.codec().check(body, 0);
        out.startFramed(version.id());
        out.writeFixed(body);
        return out.toByteArray();
      } catch (PayloadException e) {
        throw versions.mismatch(row, e);
      }
    }
  }

  /** Returns values in Confluent wire format unchanged if they are valid for their schema id. */
  public record ConfluentAvroEncoder(SchemaVersions<AvroBodyChecker> versions)
      implements PayloadEncoder {
    private static final int HEADER_SIZE = 1 + Integer.BYTES;

    @Override
    public byte[] encode(OutboxRow row) throws InvalidRowException {
      byte[] value = Bytes.of(row.payload());
      if (value == null) {
        return null;
      }
      if (value.length < HEADER_SIZE || value[0] != 0) {
        throw invalid("is not in Confluent wire format: byte 0x00 and 4 bytes of schema id");
      }
      Version<AvroBodyChecker> version = versionOf(ByteBuffer.wrap(value).getInt(1), row);
      try {
        version.codec().check(value, HEADER_SIZE);
        return value;
      } catch (PayloadException e) {
        throw invalid(
            "has the schema id of version "
                + version.label()
                + " but does not fit the schema of this version: "
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
      String expected =
          candidates.stream()
              .map(version -> version.id() + " (version " + version.label() + ")")
              .collect(Collectors.joining(" or "));
      // Omit the actual id from the message, because these bytes can be data of the payload.
      throw invalid(
          (row.schemaVersion() == null
                  ? "does not have the schema id of a configured version"
                  : "does not have the schema id of the row's schema version")
              + ", expected "
              + expected);
    }

    private static InvalidRowException invalid(String problem) {
      return new InvalidRowException(Reason.PAYLOAD_INVALID, "the payload " + problem);
    }
  }

  /** Encodes text as UTF-8, without a schema. */
  public record TextEncoder() implements PayloadEncoder {
    @Override
    public byte[] encode(OutboxRow row) throws InvalidRowException {
      String payload = (String) row.payload();
      if (payload == null) {
        return null;
      }
      if (Utf8.hasUnpairedSurrogate(payload)) {
        throw new InvalidRowException(
            Reason.PAYLOAD_INVALID, "the payload has an unpaired surrogate");
      }
      return payload.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public String contentType(OutboxRow row) {
      return row.columns().payloadIsJson() ? "application/json" : "text/plain; charset=utf-8";
    }
  }

  /** Encodes rows of the given event types as tombstones, without reading their payloads. */
  public record TombstoneEncoder(Set<String> eventTypes, PayloadEncoder delegate)
      implements PayloadEncoder {
    @Override
    public byte[] encode(OutboxRow row) throws InvalidRowException {
      return eventTypes.contains(row.eventType()) ? null : delegate.encode(row);
    }

    @Override
    public String contentType(OutboxRow row) {
      return delegate.contentType(row);
    }
  }
}
