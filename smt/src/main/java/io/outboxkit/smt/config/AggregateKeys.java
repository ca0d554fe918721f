package io.outboxkit.smt.config;

import static org.apache.kafka.common.config.ConfigDef.NO_DEFAULT_VALUE;

import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.util.MessageText;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.avro.Schema;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.Validator;
import org.apache.kafka.common.config.ConfigException;

/**
 * Parser of {@code aggregate.T.*} keys. Keys are defined by their full names and not split at dots,
 * because an aggregate type T can contain dots. A key with a blank value is treated as not set.
 */
final class AggregateKeys {
  static final String PREFIX = "aggregate.";

  private static final String VERSIONS = "versions";

  private final Map<String, Object> values;
  private final Set<String> parsedKeys = new HashSet<>();

  AggregateKeys(AbstractConfig config) {
    this.values = new TreeMap<>(config.originals());
    values.keySet().removeIf(name -> !name.startsWith(PREFIX));
  }

  /** Parse the keys. Throw ConfigException if a value is invalid or a key was parsed before. */
  AbstractConfig parse(ConfigDef definition) {
    for (String name : definition.names()) {
      if (!parsedKeys.add(name)) {
        throw new ConfigException(
            name,
            MessageText.abbreviate(values.get(name)),
            "two aggregate types or schema versions have this key; rename or remove one of them");
      }
    }
    Map<String, Object> nonBlank = new TreeMap<>(values);
    nonBlank.values().removeIf(value -> value == null || value.toString().isBlank());
    return new AbstractConfig(definition, nonBlank, false);
  }

  /** Parse one required key in the same way as {@link #parse(ConfigDef)}. */
  AbstractConfig parse(String key, Type type, Validator validator) {
    return parse(new OptionDefinitions().aggregateKey(key, type, NO_DEFAULT_VALUE, validator));
  }

  /** A schema version of an aggregate type, and the key that declares this version. */
  record SchemaVersion(String label, String key, Schema schema) {
    ConfigException invalidSchema(String reason) {
      return new ConfigException(
          key, MessageText.abbreviate(schema), "must be a supported Avro schema: " + reason);
    }
  }

  /** Return a type's schema versions, latest first. Require that their labels match the pattern. */
  List<SchemaVersion> schemaVersions(String type, String labelPattern) {
    String prefix = PREFIX + type + ".schema.";
    String key = prefix + VERSIONS;
    List<SchemaVersion> versions = new ArrayList<>();
    List<String> labels = parse(key, Type.LIST, null).getList(key);
    for (String label : labels) {
      // If labels had dots, schema.1.id could be version 1's id or the schema of version "1.id".
      if (!label.matches(labelPattern) || label.equals(VERSIONS)) {
        throw new ConfigException(
            key, labels, "labels must match " + labelPattern + " and differ from " + VERSIONS);
      }
      versions.add(schemaVersion(prefix + label, label));
    }
    return versions;
  }

  private SchemaVersion schemaVersion(String key, String label) {
    String json = parse(key, Type.STRING, null).getString(key);
    try {
      Schema schema = new Schema.Parser().parse(json);
      // Create an encoder only to reject logical types that are not valid for their Avro type.
      new JsonAvroEncoder(schema);
      return new SchemaVersion(label, key, schema);
    } catch (RuntimeException e) {
      // For undefined names, Avro 1.12.2 throws NullPointerException, not AvroRuntimeException.
      throw new ConfigException(
          key, MessageText.abbreviate(json), "must be an Avro schema as JSON: " + e.getMessage());
    }
  }

  /** Throw ConfigException, naming the valid keys, if an {@code aggregate.*} key was not parsed. */
  void rejectUndefined(List<String> types, String supportedKeys) {
    for (Map.Entry<String, Object> entry : values.entrySet()) {
      if (!parsedKeys.contains(entry.getKey())) {
        throw new ConfigException(
            entry.getKey(),
            MessageText.abbreviate(entry.getValue()),
            "not a key of the aggregate types %s; the keys of an aggregate type T are %s"
                .formatted(types, supportedKeys));
      }
    }
  }
}
