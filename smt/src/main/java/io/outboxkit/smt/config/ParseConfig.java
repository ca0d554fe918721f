package io.outboxkit.smt.config;

import static org.apache.kafka.common.config.ConfigDef.NO_DEFAULT_VALUE;

import io.outboxkit.smt.avro.JsonStructParser;
import io.outboxkit.smt.config.AggregateKeys.SchemaVersion;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;

/** Options of ParsePayload. */
public final class ParseConfig extends AbstractConfig {
  public interface ConfigName {
    String FIELD = "field";
    String TYPE_FIELD = "type.field";
    String AGGREGATES = "aggregates";
  }

  public static final ConfigDef CONFIG_DEF =
      new OptionDefinitions()
          .high(ConfigName.FIELD, Type.STRING, "value.payload", FieldPath.VALIDATOR)
          .doc("Field with the JSON text. The parsed Struct becomes the record's value.")
          .high(ConfigName.TYPE_FIELD, Type.STRING, "header.aggregate_type", FieldPath.VALIDATOR)
          .doc("Field with the aggregate type, which determines the schema.")
          .high(ConfigName.AGGREGATES, Type.LIST, NO_DEFAULT_VALUE, Validators.AGGREGATE_TYPES)
          .doc("Aggregate types to parse. Each type T requires the keys aggregate.T.schema.*.");

  private static final String LABEL_PATTERN = "[1-9][0-9]{0,8}";

  public ParseConfig(Map<String, ?> props) {
    super(CONFIG_DEF, props, false);
  }

  /** A schema version of an aggregate type, and the parser for this version. */
  public record Version(int number, JsonStructParser parser) {}

  /**
   * Return the schema versions of each aggregate type, latest first.
   *
   * @throws ConfigException if an {@code aggregate.*} key is missing, unknown or not valid
   */
  public Map<String, List<Version>> versionsByType() {
    AggregateKeys keys = new AggregateKeys(this);
    Map<String, List<Version>> versionsByType = new LinkedHashMap<>();
    List<String> types = getList(ConfigName.AGGREGATES);
    for (String type : types) {
      List<Version> versionsOfType = new ArrayList<>();
      for (SchemaVersion version : keys.schemaVersions(type, LABEL_PATTERN)) {
        int number = Integer.parseInt(version.label());
        try {
          versionsOfType.add(new Version(number, new JsonStructParser(version.schema(), number)));
        } catch (IllegalArgumentException e) {
          throw version.invalidSchema(e.getMessage());
        }
      }
      versionsByType.put(type, versionsOfType);
    }
    keys.rejectUndefined(types, "aggregate.T.schema.versions and .schema.V for each version V");
    return versionsByType;
  }
}
