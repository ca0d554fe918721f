package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.UnknownFields;
import io.outboxkit.smt.outbox.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import io.outboxkit.smt.util.Names;
import io.outboxkit.smt.util.TopicNames;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
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

  /** Last part of the key of the payload's format. */
  static final String FORMAT = "payload.format";

  private static final String REFUSE = "refuse";
  private static final String IGNORE = "ignore";
  private static final String OPTIONS =
      "aggregate.T.topic, .partitions, .partition.field, .payload.format, .unknown.fields,"
          + " .tombstone.event.types, .schema.versions, .schema.V and .schema.V.id with V one of"
          + " their versions";

  private final Map<String, Object> props;
  private final boolean rowsNameVersions;
  private final Set<String> used = new TreeSet<>();
  private final Set<String> withoutSchemas = new TreeSet<>();
  private final Conflicts conflicts = new Conflicts();

  /** One for all: a router encodes one payload at a time. */
  private final AvroOutput out = new AvroOutput();

  /**
   * @param rowsNameVersions whether there is a column of the schema version
   */
  AggregateConfig(Map<String, Object> props, boolean rowsNameVersions) {
    this.props = props;
    this.rowsNameVersions = rowsNameVersions;
  }

  Map<String, AggregateRoute> routes(List<String> types) {
    Map<String, AggregateRoute> routes = new LinkedHashMap<>();
    for (String type : types) {
      AggregateRoute route = route(type);
      conflicts.requireOnePartitionCount(route);
      routes.put(type, route);
    }
    refuseUnusedKeys(types);
    return routes;
  }

  private AggregateRoute route(String type) {
    String prefix = PREFIX + type + ".";
    String partitionField = text(prefix + "partition.field", null);
    PayloadFormat format = format(prefix + FORMAT);
    PayloadEncoder payloads = encoder(format, prefix, type);
    Set<String> tombstones = tombstoneTypes(prefix + "tombstone.event.types");
    return new AggregateRoute(
        type,
        topic(prefix + "topic"),
        number(prefix + "partitions", 1, "the partition count of the topic, an integer above 0"),
        partitionField,
        format,
        tombstones.isEmpty() ? payloads : new TombstoneTypes(tombstones, payloads));
  }

  private PayloadFormat format(String name) {
    String code = text(name, PayloadFormat.JSON.code());
    PayloadFormat format = PayloadFormat.of(code);
    if (format == null) {
      throw new ConfigException(name, code, "must be one of: " + PayloadFormat.ALL);
    }
    return format;
  }

  private PayloadEncoder encoder(PayloadFormat format, String prefix, String type) {
    if (!format.hasSchemas()) {
      withoutSchemas.add(prefix + "schema.");
    }
    UnknownFields unknown = unknownFields(prefix + "unknown.fields", format);
    return switch (format) {
      case JSON -> jsonPayloads(versions(prefix + "schema."), type, unknown);
      case AVRO -> avroPayloads(prefix, type);
      case CONFLUENT_AVRO -> new ConfluentAvroPayloads(checkers(prefix, type));
      case TEXT -> new TextPayloads();
    };
  }

  private UnknownFields unknownFields(String name, PayloadFormat format) {
    String value = text(name, null);
    if (value == null) {
      return UnknownFields.REFUSE;
    }
    if (format != PayloadFormat.JSON) {
      throw new ConfigException(
          name, value, "only payload.format=json has fields to look for; leave it out");
    }
    if (!value.equals(IGNORE) && !value.equals(REFUSE)) {
      throw new ConfigException(name, value, "must be one of: " + REFUSE + ", " + IGNORE);
    }
    return value.equals(IGNORE) ? UnknownFields.IGNORE : UnknownFields.REFUSE;
  }

  private PayloadEncoder jsonPayloads(
      List<Version<Schema>> versions, String type, UnknownFields unknown) {
    return new JsonPayloads(
        with(versions, type, schema -> new JsonAvroEncoder(schema, unknown)), out);
  }

  /** A body may decode by a version that it was not written by, and mean something else. */
  private PayloadEncoder avroPayloads(String prefix, String type) {
    SchemaVersions<AvroBodyChecker> checkers = checkers(prefix, type);
    if (checkers.size() > 1 && !rowsNameVersions) {
      String name = prefix + "schema." + VERSIONS;
      throw new ConfigException(
          name,
          props.get(name),
          "an Avro body does not say which version it is of; with payload.format=avro list one"
              + " version, or set "
              + ConfigName.SCHEMA_VERSION_FIELD);
    }
    return new AvroPayloads(checkers, out);
  }

  private SchemaVersions<AvroBodyChecker> checkers(String prefix, String type) {
    return with(versions(prefix + "schema."), type, AvroBodyChecker::new);
  }

  private static <C> SchemaVersions<C> with(
      List<Version<Schema>> versions, String type, Function<Schema, C> codec) {
    return new SchemaVersions<>(
        type,
        versions.stream()
            .map(v -> new Version<>(v.label(), v.id(), codec.apply(v.codec())))
            .toList());
  }

  private Set<String> tombstoneTypes(String name) {
    String value = text(name, "");
    Set<String> types = new TreeSet<>();
    for (Object type : (List<?>) ConfigDef.parseType(name, value, ConfigDef.Type.LIST)) {
      if (((String) type).isEmpty() || !types.add((String) type)) {
        throw new ConfigException(name, value, "must be a list of event types, each once");
      }
    }
    return types;
  }

  private String topic(String name) {
    return TopicNames.require(name, required(name, "name the topic of this aggregate type"));
  }

  private List<Version<Schema>> versions(String prefix) {
    String name = prefix + VERSIONS;
    String value = required(name, "list the schema versions, newest first, such as 2,1");
    List<Version<Schema>> versions = new ArrayList<>();
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

  private Version<Schema> version(String prefix, String label) {
    String name = prefix + label;
    String json = required(name, "set the Avro schema of this version as JSON text");
    int id = number(name + ".id", 0, "the registry's id of this schema, an integer of 0 or more");
    Schema schema = schema(name, json);
    conflicts.requireOwnId(name + ".id", id, schema);
    return new Version<>(label, id, schema);
  }

  private static Schema schema(String name, String json) {
    try {
      Schema schema = new Schema.Parser().parse(json);
      requireValid(schema);
      return schema;
    } catch (RuntimeException e) {
      // Not only AvroRuntimeException: a name that is defined nowhere is a NullPointerException
      // (1.12.2).
      throw new ConfigException(
          name, Names.shortened(json), "must be an Avro schema as JSON text: " + e.getMessage());
    }
  }

  /** In every format: a logical type that is not valid where it stands is a mistake. */
  private static void requireValid(Schema schema) {
    new JsonAvroEncoder(schema);
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
        boolean textHasNone = withoutSchemas.stream().anyMatch(name::startsWith);
        throw new ConfigException(
            name,
            Names.shortened(props.get(name)),
            textHasNone
                ? "payload.format=text has no schema; leave it out, or set payload.format=json"
                : "not an option of any of the aggregates " + types + "; theirs are " + OPTIONS);
      }
    }
  }
}
