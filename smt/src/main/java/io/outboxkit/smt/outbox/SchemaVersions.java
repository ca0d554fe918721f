package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.util.Names;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * The versions of the value schema of one aggregate type, newest first, at least one.
 *
 * @param <C> what writes or checks payloads by one version
 */
final class SchemaVersions<C> {
  /**
   * One version.
   *
   * @param label the version in words of the subject
   * @param id the registry's id of the schema, as written into each record
   */
  record Version<C>(String label, int id, C codec) {}

  private final String type;
  private final List<Version<C>> all;
  private final Map<String, List<Version<C>>> byLabel = new HashMap<>();

  SchemaVersions(String type, List<Version<C>> versions) {
    this.type = type;
    this.all = List.copyOf(versions);
    for (Version<C> version : all) {
      byLabel.put(version.label(), List.of(version));
    }
  }

  /**
   * The versions to try on the row's payload, in this order: the one that the row names, or all.
   *
   * @throws InvalidRowException if the row names one that there is not
   */
  List<Version<C>> candidates(OutboxRow row) throws InvalidRowException {
    if (row.schemaVersion() == null) {
      return all;
    }
    List<Version<C>> named = byLabel.get(row.schemaVersion());
    if (named == null) {
      throw new InvalidRowException(
          Reason.SCHEMA_VERSION_UNKNOWN,
          "schema version "
              + Names.shown(row.schemaVersion())
              + " is none of those configured for "
              + type
              + " ("
              + labels()
              + ")");
    }
    return named;
  }

  /**
   * The version of a payload that does not say itself: the one that the row names, or the only one.
   *
   * @throws InvalidRowException if the row names one that there is not, or none of several
   */
  Version<C> one(OutboxRow row) throws InvalidRowException {
    List<Version<C>> candidates = candidates(row);
    if (candidates.size() > 1) {
      throw new InvalidRowException(
          Reason.SCHEMA_VERSION_UNKNOWN,
          "the row names no schema version; those configured for "
              + type
              + " are "
              + labels()
              + ", and an Avro body does not say which it is of");
    }
    return candidates.get(0);
  }

  int size() {
    return all.size();
  }

  /**
   * What to throw when none of the candidates fits.
   *
   * @param first why the first of them does not
   */
  InvalidRowException misfit(OutboxRow row, PayloadException first) {
    String tried =
        row.schemaVersion() == null
            ? "fits no schema version of "
                + type
                + " ("
                + labels()
                + "); by version "
                + all.get(0).label()
                + ", "
            : "does not fit schema version "
                + row.schemaVersion()
                + " of "
                + type
                + ", which the row names; ";
    return new InvalidRowException(
        Reason.PAYLOAD_INVALID, "the payload " + tried + first.getMessage());
  }

  private String labels() {
    return all.stream().map(Version::label).collect(Collectors.joining(", "));
  }
}
