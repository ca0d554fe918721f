package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.InvalidRowException.Reason;
import io.outboxkit.smt.util.MessageText;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Schema versions of one aggregate type, starting with the latest version.
 *
 * @param <C> encoder or checker for the payloads of one version
 */
public final class SchemaVersions<C> {
  /** A schema version with its id in the schema registry. */
  public record Version<C>(String label, int id, C codec) {}

  private final String aggregateType;
  private final List<Version<C>> versions;
  private final Map<String, List<Version<C>>> versionsByLabel = new HashMap<>();

  public SchemaVersions(String aggregateType, List<Version<C>> versions) {
    this.aggregateType = aggregateType;
    this.versions = List.copyOf(versions);
    for (Version<C> version : versions) {
      versionsByLabel.put(version.label(), List.of(version));
    }
  }

  /** Return the version that the row names, or all versions if the row does not name a version. */
  List<Version<C>> candidates(OutboxRow row) throws InvalidRowException {
    if (row.schemaVersion() == null) {
      return versions;
    }
    List<Version<C>> labeledVersions = versionsByLabel.get(row.schemaVersion());
    if (labeledVersions == null) {
      throw new InvalidRowException(
          Reason.SCHEMA_VERSION_UNKNOWN,
          "schema version %s is not one of the versions of aggregate type %s (%s)"
              .formatted(MessageText.quote(row.schemaVersion()), aggregateType, joinedLabels()));
    }
    return labeledVersions;
  }

  /** Return the version that the row names, or else the only version. Throw if several exist. */
  Version<C> singleVersion(OutboxRow row) throws InvalidRowException {
    List<Version<C>> candidates = candidates(row);
    if (candidates.size() > 1) {
      throw new InvalidRowException(
          Reason.SCHEMA_VERSION_UNKNOWN,
          "the row names no schema version, but aggregate type %s has several versions (%s)"
              .formatted(aggregateType, joinedLabels()));
    }
    return candidates.get(0);
  }

  public int size() {
    return versions.size();
  }

  /** Return an exception for a payload that does not fit any of the {@link #candidates}. */
  InvalidRowException mismatch(OutboxRow row, PayloadException firstError) {
    String problem =
        row.schemaVersion() == null
            ? "fits no schema version of aggregate type %s (%s)"
                .formatted(aggregateType, joinedLabels())
            : "does not fit the row's schema version of aggregate type %s".formatted(aggregateType);
    String label = row.schemaVersion() == null ? versions.get(0).label() : row.schemaVersion();
    return new InvalidRowException(
        Reason.PAYLOAD_INVALID,
        "the payload %s; the error with version %s is: %s"
            .formatted(problem, label, firstError.getMessage()));
  }

  public String joinedLabels() {
    return versions.stream().map(Version::label).collect(Collectors.joining(", "));
  }
}
