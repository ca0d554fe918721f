package io.outboxkit.smt;

import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.config.FieldPath;
import io.outboxkit.smt.config.ParseConfig;
import io.outboxkit.smt.config.ParseConfig.ConfigName;
import io.outboxkit.smt.util.MessageText;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Struct;

/**
 * Replaces the value with a Struct that is parsed from the JSON text of a field. The Struct has the
 * latest declared schema version that accepts the text, and its Connect schema contains the number
 * of this version. Tombstones are returned unchanged.
 */
public final class ParsePayload<R extends ConnectRecord<R>> extends BaseTransform<R> {
  public static final String OVERVIEW_DOC =
      "Parse the JSON text of a field to a Struct. The Avro schema of the Struct is declared for"
          + " each aggregate type.";

  /** All options, except the keys {@code aggregate.T.*} of each aggregate type T. */
  public static final ConfigDef CONFIG_DEF = ParseConfig.CONFIG_DEF;

  private FieldPath payloadField;
  private FieldPath typeField;
  private Map<String, List<ParseConfig.Version>> versionsByType;

  public ParsePayload() {
    super(CONFIG_DEF);
  }

  @Override
  void initialize(Map<String, ?> props) {
    ParseConfig config = new ParseConfig(props);
    payloadField = FieldPath.of(config, ConfigName.FIELD);
    typeField = FieldPath.of(config, ConfigName.TYPE_FIELD);
    versionsByType = config.versionsByType();
  }

  @Override
  public R apply(R record) {
    if (record.value() == null) {
      return record;
    }
    Struct payload = parse(record);
    return withValue(record, payload.schema(), payload);
  }

  private Struct parse(R record) {
    List<ParseConfig.Version> candidates = candidates(record);
    String json = readJson(record);
    PayloadException latestVersionError = null;
    for (ParseConfig.Version version : candidates) {
      try {
        return version.parser().parse(json);
      } catch (PayloadException e) {
        latestVersionError = latestVersionError == null ? e : latestVersionError;
      }
    }
    throw payloadField.error(
        record,
        ("fits none of the schema versions %s of its aggregate type; the error with"
                + " version %d is: %s")
            .formatted(
                candidates.stream().map(ParseConfig.Version::number).toList(),
                candidates.get(0).number(),
                latestVersionError.getMessage()));
  }

  private List<ParseConfig.Version> candidates(R record) {
    String aggregateType = typeField.readText(record);
    List<ParseConfig.Version> candidates =
        aggregateType == null ? null : versionsByType.get(aggregateType);
    if (candidates == null) {
      throw typeField.error(
          record,
          "is " + MessageText.quote(aggregateType) + ", which is not in the option aggregates");
    }
    return candidates;
  }

  private String readJson(R record) {
    Object value = payloadField.read(record);
    if (value instanceof String text) {
      return text;
    }
    throw payloadField.error(
        record,
        value == null
            ? "is null; apply SetTombstone before ParsePayload"
            : "is of type " + FieldPath.typeOf(value) + ", not JSON text");
  }
}
