package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.util.TopicNames;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.avro.Schema;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/**
 * Reads the {@code aggregate.T.*} keys. Each key is looked up by its whole name, so that T may hold
 * dots; whatever starts with {@code aggregate.} and was not looked up is a mistake.
 */
final class AggregateConfig {
  static final String PREFIX = "aggregate.";

  /** No dots: {@code schema.V.id} has to stay apart from {@code schema.V}. */
  private static final String VERSION_LABEL = "[A-Za-z0-9_-]+";

  private static final String VERSIONS = "versions";
  private static final int MAX_SHOWN = 60;

  private final Map<String, Object> props;
  private final Set<String> used = new TreeSet<>();

  AggregateConfig(Map<String, Object> props) {
    this.props = props;
  }

  Map<String, AggregateRoute> routes(List<String> types) {
    Map<String, AggregateRoute> routes = new LinkedHashMap<>();
    for (String type : types) {
      routes.put(type, route(type));
    }
    refuseUnusedKeys(types);
    return routes;
  }

  private AggregateRoute route(String type) {
    String prefix = PREFIX + type + ".";
    String partitionField = text(prefix + "partition.field", null);
    return new AggregateRoute(
        type,
        topic(prefix + "topic"),
        number(prefix + "partitions", 1, "the partition count of the topic, an integer above 0"),
        partitionField,
        versions(prefix + "schema."));
  }

  private String topic(String name) {
    return TopicNames.require(name, required(name, "name the topic of this aggregate type"));
  }

  private List<AggregateRoute.SchemaVersion> versions(String prefix) {
    String name = prefix + VERSIONS;
    String value = required(name, "list the schema versions, newest first, such as 2,1");
    List<AggregateRoute.SchemaVersion> versions = new ArrayList<>();
    Set<String> labels = new TreeSet<>();
    for (Object item : (List<?>) ConfigDef.parseType(name, value, ConfigDef.Type.LIST)) {
      String label = (String) item;
      if (!label.matches(VERSION_LABEL) || label.equals(VERSIONS)) {
        throw new ConfigException(
            name, value, "a label may have letters, digits, _ and - only, and not be " + VERSIONS);
      }
      if (!labels.add(label)) {
        throw new ConfigException(name, value, "must list each version once");
      }
      versions.add(version(prefix, label));
    }
    return versions;
  }

  private AggregateRoute.SchemaVersion version(String prefix, String label) {
    String name = prefix + label;
    String json = required(name, "set the Avro schema of this version as JSON text");
    int id = number(name + ".id", 0, "the registry's id of this schema, an integer of 0 or more");
    try {
      Schema schema = new Schema.Parser().parse(json);
      return new AggregateRoute.SchemaVersion(label, id, new JsonAvroEncoder(schema));
    } catch (RuntimeException e) {
      // Not only AvroRuntimeException: a name that is defined nowhere is a NullPointerException
      // (1.12.2).
      throw new ConfigException(
          name, shortened(json), "must be an Avro schema as JSON text: " + e.getMessage());
    }
  }

  private int number(String name, int least, String allowed) {
    String value = required(name, "set " + allowed);
    try {
      int number = Integer.parseInt(value.trim());
      if (number >= least) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Falls through to the same answer.
    }
    throw new ConfigException(name, value, "must be " + allowed);
  }

  private String required(String name, String remedy) {
    String value = text(name, null);
    if (value == null) {
      throw new ConfigException(name, props.get(name), "required; " + remedy);
    }
    return value;
  }

  private String text(String name, String defaultValue) {
    if (!used.add(name)) {
      throw new ConfigException(
          name, props.get(name), "belongs to two of the aggregates; rename one of them");
    }
    Object value = props.get(name);
    return value == null || value.toString().isBlank() ? defaultValue : value.toString().trim();
  }

  private void refuseUnusedKeys(List<String> types) {
    for (String name : new TreeSet<>(props.keySet())) {
      if (name.startsWith(PREFIX) && !used.contains(name)) {
        throw new ConfigException(
            name,
            shortened(String.valueOf(props.get(name))),
            "not an option of any of the aggregates "
                + types
                + "; theirs are aggregate.T.topic, .partitions, .partition.field, .schema.versions,"
                + " .schema.V and .schema.V.id with V one of their versions");
      }
    }
  }

  private static String shortened(String value) {
    return value.length() <= MAX_SHOWN ? value : value.substring(0, MAX_SHOWN) + "...";
  }
}
