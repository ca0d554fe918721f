package io.outboxkit.smt.parse;

import io.outboxkit.smt.avro.JsonStructParser;
import io.outboxkit.smt.field.FieldPath;
import io.outboxkit.smt.util.Names;
import io.outboxkit.smt.util.UnknownOptions;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.avro.Schema;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;

/**
 * The options of ParsePayload; the {@code aggregate.*} keys are those of OutboxRouter, less ids.
 */
public final class ParseConfig extends AbstractConfig {
  /** Names of the options. */
  public interface ConfigName {
    String FIELD = "field";
    String TYPE_FIELD = "type.field";
    String AGGREGATES = "aggregates";
  }

  private static final String PREFIX = "aggregate.";
  private static final String VERSION = "[1-9][0-9]{0,8}";

  public static final ConfigDef CONFIG_DEF =
      new ConfigDef()
          .define(
              ConfigName.FIELD,
              Type.STRING,
              "value.payload",
              new FieldPath.Validator(),
              Importance.HIGH,
              "The field that holds the JSON text. What it is parsed to becomes the record's"
                  + " value.")
          .define(
              ConfigName.TYPE_FIELD,
              Type.STRING,
              "header.aggregate_type",
              new FieldPath.Validator(),
              Importance.HIGH,
              "The field that holds the aggregate's type, which picks the schema.")
          .define(
              ConfigName.AGGREGATES,
              Type.LIST,
              ConfigDef.NO_DEFAULT_VALUE,
              ConfigDef.LambdaValidator.with(
                  ParseConfig::requireAggregates, () -> "list of one or more, each once"),
              Importance.HIGH,
              "The aggregate types to parse. Each has keys of its own, see below.");

  private final Map<String, Object> props;
  private final Set<String> used = new TreeSet<>();

  /**
   * @param props the transform's properties, as Connect hands them over
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  public ParseConfig(Map<String, ?> props) {
    super(CONFIG_DEF, props, false);
    this.props = originals();
    // The aggregate.* keys depend on aggregates: versions() looks at them.
    UnknownOptions.refuse("ParsePayload", props, CONFIG_DEF.names(), PREFIX, Map.of());
  }

  public FieldPath path(String option) {
    return FieldPath.parse(option, getString(option));
  }

  /** The schema versions of each listed aggregate type, newest first. */
  public Map<String, List<SchemaVersion>> versions() {
    Map<String, List<SchemaVersion>> versions = new LinkedHashMap<>();
    List<String> types = getList(ConfigName.AGGREGATES);
    for (String type : types) {
      versions.put(type, versionsOf(PREFIX + type + ".schema."));
    }
    for (String name : new TreeSet<>(props.keySet())) {
      if (name.startsWith(PREFIX) && !used.contains(name)) {
        throw new ConfigException(
            name,
            Names.shortened(props.get(name)),
            "not an option of any of the aggregates "
                + types
                + "; theirs are aggregate.T.schema.versions and .schema.V with V one of their"
                + " versions");
      }
    }
    return versions;
  }

  private List<SchemaVersion> versionsOf(String prefix) {
    String name = prefix + "versions";
    String value = required(name, "list the schema versions, newest first, such as 2,1");
    List<SchemaVersion> versions = new ArrayList<>();
    for (Object item : (List<?>) ConfigDef.parseType(name, value, Type.LIST)) {
      String label = (String) item;
      if (!label.matches(VERSION)) {
        throw new ConfigException(name, value, "a version must be an integer above 0");
      }
      versions.add(version(prefix + label, Integer.parseInt(label)));
    }
    return versions;
  }

  private SchemaVersion version(String name, int number) {
    String json = required(name, "set the Avro schema of this version as JSON text");
    try {
      Schema schema = new Schema.Parser().parse(json);
      return new SchemaVersion(number, new JsonStructParser(schema, number));
    } catch (RuntimeException e) {
      // Not only AvroRuntimeException: a name that is defined nowhere is a NullPointerException
      // (1.12.2).
      throw new ConfigException(
          name,
          Names.shortened(json),
          "must be the Avro schema of a record as JSON text: " + e.getMessage());
    }
  }

  private String required(String name, String remedy) {
    if (!used.add(name)) {
      throw new ConfigException(
          name, Names.shortened(props.get(name)), "named twice; each version and key once");
    }
    Object value = props.get(name);
    if (value == null || value.toString().isBlank()) {
      throw new ConfigException(name, value, "required; " + remedy);
    }
    return value.toString().trim();
  }

  private static void requireAggregates(String name, Object value) {
    List<?> types = (List<?>) value;
    if (types == null || types.isEmpty() || types.contains("")) {
      throw new ConfigException(name, value, "must list one or more aggregate types");
    }
    if (types.stream().distinct().count() < types.size()) {
      throw new ConfigException(name, value, "must list each aggregate type once");
    }
  }

  /**
   * One version of an aggregate's schema.
   *
   * @param number the version in words of the subject
   */
  public record SchemaVersion(int number, JsonStructParser parser) {}
}
