package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.TopicNames;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/**
 * The options of the router. The {@code aggregate.*} keys, whose names depend on {@code
 * aggregates}, are read by {@link AggregateConfig}.
 */
public final class RouterConfig extends AbstractConfig {
  /** Names of the options; those of Debezium's EventRouter where they mean the same. */
  public interface ConfigName {
    String TABLE = "table";
    String MESSAGE_PREFIX = "message.prefix";
    String ID_FIELD = "table.field.event.id";
    String KEY_FIELD = "table.field.event.key";
    String TYPE_FIELD = "table.field.event.type";
    String PAYLOAD_FIELD = "table.field.event.payload";
    String TIMESTAMP_FIELD = "table.field.event.timestamp";
    String HEADERS_FIELD = "table.field.event.headers";
    String SCHEMA_VERSION_FIELD = "table.field.event.schema.version";
    String PLACEMENT = "table.fields.additional.placement";
    String PLACEMENT_MISSING = "table.field.additional.missing";
    String ROUTE_BY_FIELD = "route.by.field";
    String AGGREGATES = "aggregates";
    String SOURCE_EPOCH = "source.epoch";
    String INVALID_ROWS = "invalid.rows";
    String DEAD_LETTER_TOPIC = "dead.letter.topic";
    String SNAPSHOT_ROWS = "snapshot.rows";
    String INVALID_OPERATIONS = "table.op.invalid.behavior";
    String DELETED_ROWS = "deleted.rows";
    String MAX_RECORD_BYTES = "max.record.bytes";
    String PASS_THROUGH = "pass.through";
    String CLOUDEVENTS_SOURCE = "cloudevents.source";
  }

  public static final ConfigDef CONFIG_DEF = RouterOptions.DEFINITION;

  private final Map<String, AggregateRoute> routes;
  private final Placements placements;

  /**
   * @param props the transform's properties, as Connect hands them over
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  public RouterConfig(Map<String, ?> props) {
    super(CONFIG_DEF, props, false);
    OtherOptions.refuse(originals(), CONFIG_DEF.names());
    requireSource();
    if (deadLetters()) {
      requireDeadLetterTopic(getString(ConfigName.DEAD_LETTER_TOPIC));
    }
    if (passThrough().hasTable(table())) {
      throw new ConfigException(
          ConfigName.PASS_THROUGH,
          getList(ConfigName.PASS_THROUGH),
          "table:" + table() + " is the outbox table itself; name other tables only");
    }
    placements =
        Placements.of(
            ConfigName.PLACEMENT,
            getList(ConfigName.PLACEMENT),
            getString(ConfigName.PLACEMENT_MISSING).equals(RouterOptions.IGNORE));
    requireOtherNamesThanCloudEvents();
    routes =
        new AggregateConfig(originals(), getString(ConfigName.SCHEMA_VERSION_FIELD) != null)
            .routes(getList(ConfigName.AGGREGATES));
    requireOneColumnType();
    if (deadLetters()) {
      Conflicts.requireOwnTopic(ConfigName.DEAD_LETTER_TOPIC, deadLetterTopic(), routes.values());
    }
  }

  /** Null if only messages are events. */
  public String table() {
    return getString(ConfigName.TABLE);
  }

  /** Null if only rows are events. */
  public String messagePrefix() {
    return getString(ConfigName.MESSAGE_PREFIX);
  }

  public int sourceEpoch() {
    return getInt(ConfigName.SOURCE_EPOCH);
  }

  /** Whether invalid rows are written to {@link #deadLetterTopic}; otherwise they stop the task. */
  public boolean deadLetters() {
    return getString(ConfigName.INVALID_ROWS).equals(RouterOptions.DEAD_LETTER);
  }

  public String deadLetterTopic() {
    return getString(ConfigName.DEAD_LETTER_TOPIC);
  }

  public boolean routesSnapshotRows() {
    return getString(ConfigName.SNAPSHOT_ROWS).equals(RouterOptions.ROUTE);
  }

  public int maxRecordBytes() {
    return getInt(ConfigName.MAX_RECORD_BYTES);
  }

  public PassThrough passThrough() {
    return PassThrough.of(getList(ConfigName.PASS_THROUGH));
  }

  /** Whether rows that were deleted or truncated are skipped; otherwise they stop the task. */
  boolean ignoresDeletes() {
    return getString(ConfigName.DELETED_ROWS).equals(RouterOptions.IGNORE);
  }

  Placements placements() {
    return placements;
  }

  /** Null if records are to have no headers of CloudEvents. */
  CloudEventHeaders cloudEvents() {
    String source = getString(ConfigName.CLOUDEVENTS_SOURCE);
    return source == null ? null : new CloudEventHeaders(source);
  }

  /** Names of headers that a row may not set, each with what it is. */
  Map<String, String> takenHeaders() {
    Map<String, String> taken = new HashMap<>();
    RecordHeaders.NAMES.forEach(name -> taken.put(name, "a header of the contract"));
    placements.entries().forEach(e -> taken.put(e.header(), "set by " + ConfigName.PLACEMENT));
    if (cloudEvents() != null) {
      CloudEventHeaders.NAMES.forEach(name -> taken.put(name, "a header of CloudEvents"));
    }
    return taken;
  }

  /** Where each listed aggregate type goes. */
  Map<String, AggregateRoute> routes() {
    return routes;
  }

  /** Whether the payload column is to be bytea; otherwise jsonb, json or text. */
  boolean payloadIsBinary() {
    return routes.values().iterator().next().format().isBinary();
  }

  private void requireOtherNamesThanCloudEvents() {
    for (Placements.Entry entry : placements.entries()) {
      if (cloudEvents() != null && CloudEventHeaders.NAMES.contains(entry.header())) {
        throw new ConfigException(
            ConfigName.PLACEMENT,
            getList(ConfigName.PLACEMENT),
            entry.header() + " is a header of CloudEvents; choose another name");
      }
    }
  }

  /** All aggregates share the payload column, and messages have JSON in its place. */
  private void requireOneColumnType() {
    for (AggregateRoute route : routes.values()) {
      String name = AggregateConfig.PREFIX + route.type() + "." + AggregateConfig.FORMAT;
      if (route.format().isBinary() != payloadIsBinary()) {
        throw new ConfigException(
            name,
            route.format().code(),
            "the payload column cannot be bytea for one aggregate and text for another; use json"
                + " and text, or avro and confluent-avro");
      }
      if (route.format().isBinary() && messagePrefix() != null) {
        throw new ConfigException(
            name, route.format().code(), "messages hold JSON; use json or text, or no messages");
      }
    }
  }

  private void requireSource() {
    String prefix = messagePrefix();
    if (prefix != null && prefix.isBlank()) {
      throw new ConfigException(
          ConfigName.MESSAGE_PREFIX, prefix, "must not be empty; leave it out to route rows only");
    }
    if (table() == null && prefix == null) {
      throw new ConfigException(
          ConfigName.TABLE,
          null,
          "required without message.prefix; name the outbox table as schema.table");
    }
  }

  private static void requireDeadLetterTopic(String topic) {
    if (topic == null || topic.isBlank()) {
      throw new ConfigException(
          ConfigName.DEAD_LETTER_TOPIC,
          topic,
          "required with invalid.rows=dead-letter; name a topic or set invalid.rows=fail");
    }
    TopicNames.require(ConfigName.DEAD_LETTER_TOPIC, topic);
  }
}
