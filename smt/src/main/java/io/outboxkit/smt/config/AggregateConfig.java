package io.outboxkit.smt.config;

import static org.apache.kafka.common.config.ConfigDef.NO_DEFAULT_VALUE;

import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.JsonAvroEncoder.UnknownFields;
import io.outboxkit.smt.config.AggregateKeys.SchemaVersion;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.PayloadEncoder;
import io.outboxkit.smt.outbox.PayloadEncoders.AvroEncoder;
import io.outboxkit.smt.outbox.PayloadEncoders.BytesEncoder;
import io.outboxkit.smt.outbox.PayloadEncoders.ConfluentAvroEncoder;
import io.outboxkit.smt.outbox.PayloadEncoders.JsonEncoder;
import io.outboxkit.smt.outbox.PayloadEncoders.TextEncoder;
import io.outboxkit.smt.outbox.PayloadEncoders.TombstoneEncoder;
import io.outboxkit.smt.outbox.PayloadFormat;
import io.outboxkit.smt.outbox.SchemaVersions;
import io.outboxkit.smt.outbox.SchemaVersions.Version;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.apache.avro.Schema;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;

/** Parser of OutboxRouter's {@code aggregate.T.*} keys. */
final class AggregateConfig {
  // Suffixes of the keys. They follow "aggregate." and the aggregate type.
  static final String TOPIC = ".topic";
  static final String PARTITIONS = ".partitions";
  static final String FORMAT = ".payload.format";

  private static final String PARTITION_FIELD = ".partition.field";
  private static final String UNKNOWN_FIELDS = ".unknown.fields";
  private static final String TOMBSTONE_TYPES = ".tombstone.event.types";
  private static final String REFUSE = "refuse";
  private static final String IGNORE = "ignore";
  private static final String LABEL_PATTERN = "[A-Za-z0-9_-]+";
  private static final String SUPPORTED_KEYS =
      "aggregate.T.topic, .partitions, .partition.field, .payload.format, .unknown.fields,"
          + " .tombstone.event.types, and, unless payload.format is text or bytes,"
          + " .schema.versions, .schema.V and .schema.V.id for each version V";

  private final AggregateKeys keys;
  private final boolean hasVersionColumn;
  private final Map<Integer, SchemaVersion> schemasById = new HashMap<>();
  private final Map<String, AggregateRoute> routesByTopic = new HashMap<>();

  /** Buffer that all encoders share. A router encodes only one payload at a time. */
  private final AvroOutput out = new AvroOutput();

  AggregateConfig(AbstractConfig config) {
    this.keys = new AggregateKeys(config);
    this.hasVersionColumn = config.getString(ConfigName.SCHEMA_VERSION_FIELD) != null;
  }

  Map<String, AggregateRoute> routes(List<String> types) {
    Map<String, AggregateRoute> routes = new LinkedHashMap<>();
    for (String type : types) {
      AggregateRoute route = route(type);
      requireSamePartitionCount(route);
      routes.put(type, route);
    }
    keys.rejectUndefined(types, SUPPORTED_KEYS);
    return routes;
  }

  private AggregateRoute route(String type) {
    String prefix = AggregateKeys.PREFIX + type;
    AbstractConfig config = keys.parse(definition(prefix));
    PayloadFormat format = PayloadFormat.of(config.getString(prefix + FORMAT));
    PayloadEncoder encoder = encoder(format, type, config);
    Set<String> tombstoneTypes = Set.copyOf(config.getList(prefix + TOMBSTONE_TYPES));
    return new AggregateRoute(
        type,
        config.getString(prefix + TOPIC),
        config.getInt(prefix + PARTITIONS),
        config.getString(prefix + PARTITION_FIELD),
        format,
        tombstoneTypes.isEmpty() ? encoder : new TombstoneEncoder(tombstoneTypes, encoder));
  }

  private static ConfigDef definition(String prefix) {
    String defaultFormat = PayloadFormat.JSON.code();
    ValidString formats = ValidString.in(PayloadFormat.codes());
    ValidString unknownFields = ValidString.in(REFUSE, IGNORE);
    return new OptionDefinitions()
        .aggregateKey(prefix + TOPIC, Type.STRING, NO_DEFAULT_VALUE, Validators.TOPIC_NAME)
        .aggregateKey(prefix + PARTITIONS, Type.INT, NO_DEFAULT_VALUE, Range.atLeast(1))
        .aggregateKey(prefix + PARTITION_FIELD, Type.STRING, null, null)
        .aggregateKey(prefix + FORMAT, Type.STRING, defaultFormat, formats)
        .aggregateKey(prefix + UNKNOWN_FIELDS, Type.STRING, REFUSE, unknownFields)
        .aggregateKey(prefix + TOMBSTONE_TYPES, Type.LIST, List.of(), Validators.DISTINCT_LIST);
  }

  private PayloadEncoder encoder(PayloadFormat format, String type, AbstractConfig config) {
    UnknownFields unknownFields = unknownFields(format, AggregateKeys.PREFIX + type, config);
    return switch (format) {
      case JSON ->
          new JsonEncoder(
              versions(type, schema -> new JsonAvroEncoder(schema, unknownFields)), out);
      case AVRO -> new AvroEncoder(avroVersions(type), out);
      case CONFLUENT_AVRO -> new ConfluentAvroEncoder(versions(type, AvroBodyChecker::new));
      case TEXT -> new TextEncoder();
      case BYTES -> new BytesEncoder();
    };
  }

  private static UnknownFields unknownFields(
      PayloadFormat format, String prefix, AbstractConfig config) {
    String name = prefix + UNKNOWN_FIELDS;
    String value = config.getString(name);
    if (format != PayloadFormat.JSON && config.originals().containsKey(name)) {
      throw new ConfigException(name, value, "requires payload.format=json; remove this key");
    }
    return value.equals(IGNORE) ? UnknownFields.IGNORE : UnknownFields.REJECT;
  }

  private SchemaVersions<AvroBodyChecker> avroVersions(String type) {
    SchemaVersions<AvroBodyChecker> versions = versions(type, AvroBodyChecker::new);
    if (versions.size() > 1 && !hasVersionColumn) {
      // Decoding Avro bytes with a schema other than the writer's can return different values
      // instead of an error.
      throw new ConfigException(
          AggregateKeys.PREFIX + type + ".schema.versions",
          versions.joinedLabels(),
          "an Avro body does not contain its schema version; with payload.format=avro, list only"
              + " one version, or set the column with the version in "
              + ConfigName.SCHEMA_VERSION_FIELD);
    }
    return versions;
  }

  private <C> SchemaVersions<C> versions(String type, Function<Schema, C> createCodec) {
    List<Version<C>> versions = new ArrayList<>();
    for (SchemaVersion version : keys.schemaVersions(type, LABEL_PATTERN)) {
      String name = version.key() + ".id";
      int id = keys.parse(name, Type.INT, Range.atLeast(0)).getInt(name);
      requireUniqueId(name, id, version);
      versions.add(new Version<>(version.label(), id, createCodec.apply(version.schema())));
    }
    return new SchemaVersions<>(type, versions);
  }

  /** Require that different schemas have different ids, as they do in a schema registry. */
  private void requireUniqueId(String name, int id, SchemaVersion version) {
    SchemaVersion existing = schemasById.putIfAbsent(id, version);
    if (existing != null && !existing.schema().equals(version.schema())) {
      throw new ConfigException(
          name,
          id,
          "is also the id of the different schema %s; set the ids that the registry assigned"
              .formatted(existing.key()));
    }
  }

  private void requireSamePartitionCount(AggregateRoute route) {
    AggregateRoute existing = routesByTopic.putIfAbsent(route.topic(), route);
    if (existing != null && existing.partitionCount() != route.partitionCount()) {
      throw new ConfigException(
          AggregateKeys.PREFIX + route.type() + PARTITIONS,
          route.partitionCount(),
          "%s%s%s is %d for the same topic; set both keys to the topic's partition count"
              .formatted(
                  AggregateKeys.PREFIX, existing.type(), PARTITIONS, existing.partitionCount()));
    }
  }
}
