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

/** Encoders for each {@link PayloadFormat} and for tombstones. SQL NULL becomes a tombstone. */
public final class PayloadEncoders {
  private PayloadEncoders() {}

  /** Encodes JSON text as Avro in Confluent wire format. JSON null also becomes a tombstone. */
  public record JsonEncoder(SchemaVersions<JsonAvroEncoder> versions, AvroOutput out)
      implements PayloadEncoder {
    /**
     * Encode with the row's schema version. If the row names no version, use the latest version
     * that accepts the payload, because a backlog can contain rows from before a schema change. If
     * unknown fields are ignored, use the version that skips the fewest fields, so that fields of
     * older versions are not lost.
     */
    @Override
    public byte[] encode(OutboxRow row) throws InvalidRowException {
      String payload = (String) row.payload();
      if (payload == null || Json.isNull(payload)) {
        return null;
      }
      PayloadException firstError = null;
      byte[] bestValue = null;
      int fewestSkipped = 0;
      for (Version<JsonAvroEncoder> version : versions.candidates(row)) {
        try {
          out.startWireFormat(version.id());
          version.codec().encode(payload, out);
          if (out.skippedFieldCount() == 0) {
            return out.toByteArray();
          }
          if (bestValue == null || out.skippedFieldCount() < fewestSkipped) {
            bestValue = out.toByteArray();
            fewestSkipped = out.skippedFieldCount();
          }
        } catch (PayloadException e) {
          firstError = firstError == null ? e : firstError;
        }
      }
      if (bestValue != null) {
        return bestValue;
      }
      throw versions.mismatch(row, firstError);
    }
  }

  /**
   * Adds the header of the Confluent wire format to Avro bodies. A body must be valid for the row's
   * schema version or, if the row does not name a version, for the only declared version. Other
   * versions are not tried, because they could decode the bytes to different values without an
   * error.
   */
  public record AvroEncoder(SchemaVersions<AvroBodyChecker> versions, AvroOutput out)
      implements PayloadEncoder {
    @Override
    public byte[] encode(OutboxRow row) throws InvalidRowException {
      byte[] body = Bytes.of(row.payload());
      if (body == null) {
        return null;
      }
      Version<AvroBodyChecker> version = versions.singleVersion(row);
      try {
        version.codec().check(body, 0);
        out.startWireFormat(version.id());
        out.writeFixed(body);
        return out.toByteArray();
      } catch (PayloadException e) {
        throw versions.mismatch(row, e);
      }
    }
  }

  /** Returns values in Confluent wire format unchanged if they fit the schema of their id. */
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
        throw invalidPayload("is not in Confluent wire format (byte 0x00, schema id, Avro body)");
      }
      Version<AvroBodyChecker> version = versionOf(ByteBuffer.wrap(value).getInt(1), row);
      try {
        version.codec().check(value, HEADER_SIZE);
        return value;
      } catch (PayloadException e) {
        throw invalidPayload(
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
      // The message does not contain the actual id, because these bytes can be payload data.
      throw invalidPayload(
          (row.schemaVersion() == null
                  ? "does not have the schema id of a configured version"
                  : "does not have the schema id of the row's schema version")
              + ", expected "
              + expected);
    }

    private static InvalidRowException invalidPayload(String problem) {
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

  /** Returns the bytes unchanged, without a schema and without validation. */
  public record BytesEncoder() implements PayloadEncoder {
    @Override
    public byte[] encode(OutboxRow row) {
      return Bytes.of(row.payload());
    }

    @Override
    public String contentType(OutboxRow row) {
      return "application/octet-stream";
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
