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
 * Replaces the value by a Struct that is parsed from the JSON text of a field, with the latest
 * declared version of the Avro schema that accepts the text. The schema of the Struct has the
 * number of this version. Tombstones are returned unchanged.
 */
public final class ParsePayload<R extends ConnectRecord<R>> extends BaseTransform<R> {
  public static final String OVERVIEW_DOC =
      "Parse the JSON text of a field to a Struct. The Avro schema of the Struct is declared for"
          + " each aggregate type.";

  /** All options except {@code aggregate.T.*}, whose names depend on {@code aggregates}. */
  public static final ConfigDef CONFIG_DEF = ParseConfig.CONFIG_DEF;

  private FieldPath field;
  private FieldPath type;
  private Map<String, List<ParseConfig.Version>> versions;

  public ParsePayload() {
    super(CONFIG_DEF);
  }

  @Override
  void initialize(Map<String, ?> props) {
    ParseConfig config = new ParseConfig(props);
    field = FieldPath.of(config, ConfigName.FIELD);
    type = FieldPath.of(config, ConfigName.TYPE_FIELD);
    versions = config.versions();
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
    String json = json(record);
    PayloadException latestError = null;
    for (ParseConfig.Version version : candidates) {
      try {
        return version.parser().parse(json);
      } catch (PayloadException e) {
        latestError = latestError == null ? e : latestError;
      }
    }
    throw field.error(
        record,
        "fits none of the schema versions %s of its aggregate type; with version %d: %s"
            .formatted(
                candidates.stream().map(ParseConfig.Version::number).toList(),
                candidates.get(0).number(),
                latestError.getMessage()));
  }

  private List<ParseConfig.Version> candidates(R record) {
    String aggregateType = type.readText(record);
    List<ParseConfig.Version> candidates =
        aggregateType == null ? null : versions.get(aggregateType);
    if (candidates == null) {
      throw type.error(
          record, "is " + MessageText.quote(aggregateType) + ", which is not in the option aggregates");
    }
    return candidates;
  }

  private String json(R record) {
    Object value = field.read(record);
    if (value instanceof String text) {
      return text;
    }
    throw field.error(
        record,
        value == null
            ? "is null; apply SetTombstone before this transform"
            : "is of type " + FieldPath.typeOf(value) + ", not JSON text");
  }
}
