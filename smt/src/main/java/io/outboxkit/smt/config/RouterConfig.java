package io.outboxkit.smt.config;

import static org.apache.kafka.common.config.ConfigDef.NO_DEFAULT_VALUE;

import io.outboxkit.smt.outbox.CloudEventHeaders;
import io.outboxkit.smt.outbox.HeaderPlacements;
import io.outboxkit.smt.outbox.RecordHeaders;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.NonEmptyString;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigDef.Validator;
import org.apache.kafka.common.config.ConfigException;

/** Options of OutboxRouter. */
public final class RouterConfig extends AbstractConfig {
  /** Option names. An option that Debezium's EventRouter also has is named as in EventRouter. */
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

  /** Values of {@link ConfigName#INVALID_OPERATIONS}. */
  public static final String FATAL = "fatal";

  public static final String ERROR = "error";
  public static final String WARN = "warn";

  private static final String DEAD_LETTER = "dead-letter";
  private static final String FAIL = "fail";
  private static final String ROUTE = "route";
  private static final String IGNORE = "ignore";

  private static final Validator NON_EMPTY = new NonEmptyString();

  public static final ConfigDef CONFIG_DEF =
      new OptionDefinitions()
          .high(ConfigName.TABLE, Type.STRING, null, Validators.TABLE_NAME)
          .doc(
              "Outbox table as SCHEMA.TABLE. For a partitioned table, set the root table. Required"
                  + " unless message.prefix is set.")
          .high(ConfigName.MESSAGE_PREFIX, Type.STRING, null, null)
          .doc(
              "Prefix of the logical decoding messages to route. The messages must be"
                  + " transactional, and their content must be a JSON object whose members have the"
                  + " names of the outbox columns.")
          .low(ConfigName.ID_FIELD, Type.STRING, "id", NON_EMPTY)
          .doc("Column with the unique event id, which becomes the header event_id.")
          .low(ConfigName.KEY_FIELD, Type.STRING, "aggregate_id", NON_EMPTY)
          .doc("Column with the aggregate id, which becomes the record key.")
          .low(ConfigName.TYPE_FIELD, Type.STRING, "event_type", NON_EMPTY)
          .doc("Column with the event type, which becomes the header event_type.")
          .low(ConfigName.PAYLOAD_FIELD, Type.STRING, "payload", NON_EMPTY)
          .doc(
              "Column with the aggregate's state after the event, which becomes the record value."
                  + " aggregate.T.payload.format is the column's format. SQL NULL becomes a"
                  + " tombstone; with the format json, JSON null also becomes a tombstone.")
          .low(ConfigName.TIMESTAMP_FIELD, Type.STRING, "created_at", NON_EMPTY)
          .doc(
              "Column with the event time (timestamptz, or timestamp in UTC), which becomes the"
                  + " header event_time.")
          .low(ConfigName.HEADERS_FIELD, Type.STRING, "headers", NON_EMPTY)
          .doc(
              "Column with a JSON object of additional headers. Each member becomes a header. This"
                  + " column is optional.")
          .low(ConfigName.ROUTE_BY_FIELD, Type.STRING, "aggregate_type", NON_EMPTY)
          .doc(
              "Column with the aggregate type, which determines the topic and becomes the header"
                  + " aggregate_type.")
          .low(ConfigName.SCHEMA_VERSION_FIELD, Type.STRING, null, NON_EMPTY)
          .doc(
              "Column (text or integer) with the label of the payload's schema version. If the"
                  + " option is not set or the column is null, json uses the latest version that"
                  + " accepts the payload, and confluent-avro uses the version of the payload's"
                  + " schema id. If an aggregate type of format avro has several versions, the"
                  + " option is required, and a row of this type is invalid if the column is null.")
          .low(ConfigName.PLACEMENT, Type.LIST, null, Validators.PLACEMENTS)
          .doc(
              "Columns to add as headers: COLUMN:header, or COLUMN:header:NAME for a header with a"
                  + " different name. A null column does not add a header.")
          .low(ConfigName.PLACEMENT_MISSING, Type.STRING, ERROR, ValidString.in(ERROR, IGNORE))
          .doc(
              "Behavior if a column of table.fields.additional.placement does not exist: error"
                  + " stops the task, or makes a message invalid; ignore omits the header.")
          .high(ConfigName.AGGREGATES, Type.LIST, NO_DEFAULT_VALUE, Validators.AGGREGATE_TYPES)
          .doc("Aggregate types to route. Each type T is configured by the keys aggregate.T.*.")
          .medium(ConfigName.SOURCE_EPOCH, Type.INT, 1, Range.between(0, 0xFFFF))
          .doc(
              "First component of the header source_sequence. Increase the epoch when the LSNs of"
                  + " the PostgreSQL server start again at lower values.")
          .medium(
              ConfigName.INVALID_ROWS, Type.STRING, DEAD_LETTER, ValidString.in(DEAD_LETTER, FAIL))
          .doc(
              "Behavior for rows that cannot be routed: dead-letter writes the rows to"
                  + " dead.letter.topic, and fail stops the task.")
          .medium(ConfigName.DEAD_LETTER_TOPIC, Type.STRING, null, null)
          .doc("Topic for rows that cannot be routed. Required with invalid.rows=dead-letter.")
          .low(ConfigName.SNAPSHOT_ROWS, Type.STRING, FAIL, ValidString.in(FAIL, ROUTE))
          .doc(
              "Behavior for rows of a Debezium snapshot (op=r): fail stops the task, and route"
                  + " handles the rows as inserts.")
          .low(
              ConfigName.INVALID_OPERATIONS, Type.STRING, FATAL, ValidString.in(FATAL, ERROR, WARN))
          .doc(
              "Behavior for updates of outbox rows (op=u): fatal stops the task; error and warn"
                  + " skip the updates. The first skipped update is logged at level ERROR or WARN,"
                  + " further skipped updates at level DEBUG.")
          .low(ConfigName.DELETED_ROWS, Type.STRING, FAIL, ValidString.in(FAIL, IGNORE))
          .doc(
              "Behavior for deletes and truncates of the outbox table (op=d, op=t): fail stops the"
                  + " task, and ignore skips these changes.")
          .medium(ConfigName.MAX_RECORD_BYTES, Type.INT, 1_000_000, Range.atLeast(1))
          .doc(
              "Maximum size of a record, in bytes: the size of key, value and headers, plus 10"
                  + " bytes per header for Kafka's length fields. A row whose record is larger is"
                  + " invalid. The limit must be lower than the producer's max.request.size and the"
                  + " topics' max.message.bytes.")
          .low(ConfigName.PASS_THROUGH, Type.LIST, List.of(), Validators.PASS_THROUGH)
          .doc(
              "Kinds of records, other than outbox events, to pass on unchanged: transactions,"
                  + " schema-changes, messages, table:SCHEMA.TABLE. Heartbeats are always passed"
                  + " on. A record of a kind that is not listed stops the task.")
          .low(ConfigName.CLOUDEVENTS_SOURCE, Type.STRING, null, Validators.URI_REFERENCE)
          .doc(
              "Source of the events as a URI reference, such as /library. If the option is set,"
                  + " records have CloudEvents headers, and the header ce_source has this value.");

  private final Map<String, AggregateRoute> routes;
  private final HeaderPlacements placements;

  /** Throw ConfigException if an option is missing, unknown or invalid, or if options conflict. */
  public RouterConfig(Map<String, ?> props) {
    super(CONFIG_DEF, props, false);
    requireValidSource();
    placements =
        HeaderPlacements.parse(
            ConfigName.PLACEMENT,
            getList(ConfigName.PLACEMENT),
            getString(ConfigName.PLACEMENT_MISSING).equals(IGNORE));
    requireNoCloudEventPlacements();
    routes = new AggregateConfig(this).routes(getList(ConfigName.AGGREGATES));
    requireOnePayloadType();
    if (writesDeadLetters()) {
      requireDeadLetterTopic();
    }
  }

  /** Return the outbox table, or null if only messages are routed. */
  public String table() {
    return getString(ConfigName.TABLE);
  }

  /** Return the prefix of the messages to route, or null if only rows are routed. */
  public String messagePrefix() {
    return getString(ConfigName.MESSAGE_PREFIX);
  }

  /** Return whether invalid rows become dead letters instead of stopping the task. */
  public boolean writesDeadLetters() {
    return getString(ConfigName.INVALID_ROWS).equals(DEAD_LETTER);
  }

  public boolean routesSnapshotRows() {
    return getString(ConfigName.SNAPSHOT_ROWS).equals(ROUTE);
  }

  /** Return whether deletes and truncates are skipped instead of stopping the task. */
  public boolean ignoresDeletes() {
    return getString(ConfigName.DELETED_ROWS).equals(IGNORE);
  }

  public HeaderPlacements placements() {
    return placements;
  }

  /** Return the CloudEvents headers, or null if cloudevents.source is not set. */
  public CloudEventHeaders cloudEvents() {
    String source = getString(ConfigName.CLOUDEVENTS_SOURCE);
    return source == null ? null : new CloudEventHeaders(source);
  }

  /** Return the header names that a row must not set, and the reason for each name. */
  public Map<String, String> reservedHeaders() {
    Map<String, String> reserved = new HashMap<>();
    RecordHeaders.NAMES.forEach(
        name -> reserved.put(name, "a reserved header of outbox-kit (docs/contract.md)"));
    placements
        .entries()
        .forEach(entry -> reserved.put(entry.header(), "set by " + ConfigName.PLACEMENT));
    if (cloudEvents() != null) {
      CloudEventHeaders.NAMES.forEach(name -> reserved.put(name, "a CloudEvents header"));
    }
    return Map.copyOf(reserved);
  }

  public Map<String, AggregateRoute> routes() {
    return routes;
  }

  /** Return true if the payload column must be bytea, false if it must be jsonb, json or text. */
  public boolean payloadIsBinary() {
    return routes.values().iterator().next().format().isBinary();
  }

  private void requireValidSource() {
    String prefix = messagePrefix();
    if (prefix != null && prefix.isBlank()) {
      throw new ConfigException(ConfigName.MESSAGE_PREFIX, prefix, "must not be blank");
    }
    if (table() == null && prefix == null) {
      throw new ConfigException(ConfigName.TABLE, null, "required unless message.prefix is set");
    }
    List<String> passThrough = getList(ConfigName.PASS_THROUGH);
    if (passThrough.contains("table:" + table())) {
      throw new ConfigException(
          ConfigName.PASS_THROUGH, passThrough, "must not contain the outbox table");
    }
  }

  private void requireNoCloudEventPlacements() {
    for (HeaderPlacements.Entry entry : placements.entries()) {
      if (cloudEvents() != null && CloudEventHeaders.NAMES.contains(entry.header())) {
        throw new ConfigException(
            ConfigName.PLACEMENT,
            getList(ConfigName.PLACEMENT),
            entry.header() + " is a CloudEvents header; choose a different header name");
      }
    }
  }

  /**
   * Require that either all formats are binary or all are text, because all aggregate types share
   * one payload column. With message.prefix, require text formats, because messages contain JSON.
   */
  private void requireOnePayloadType() {
    for (AggregateRoute route : routes.values()) {
      String name = AggregateKeys.PREFIX + route.type() + AggregateConfig.FORMAT;
      if (route.format().isBinary() != payloadIsBinary()) {
        throw new ConfigException(
            name,
            route.format().code(),
            "all aggregate types share the payload column; use only json and text (jsonb, json or"
                + " text column), or only avro, confluent-avro and bytes (bytea column)");
      }
      if (route.format().isBinary() && messagePrefix() != null) {
        throw new ConfigException(
            name, route.format().code(), "not valid with message.prefix; use json or text");
      }
    }
  }

  /** Require a separate topic. Otherwise, consumers would read dead letters as events. */
  private void requireDeadLetterTopic() {
    String topic = getString(ConfigName.DEAD_LETTER_TOPIC);
    if (topic == null) {
      throw new ConfigException(
          ConfigName.DEAD_LETTER_TOPIC,
          null,
          "required with invalid.rows=dead-letter; set dead.letter.topic or invalid.rows=fail");
    }
    Validators.TOPIC_NAME.ensureValid(ConfigName.DEAD_LETTER_TOPIC, topic);
    for (AggregateRoute route : routes.values()) {
      if (route.topic().equals(topic)) {
        throw new ConfigException(
            ConfigName.DEAD_LETTER_TOPIC,
            topic,
            "is also the value of %s%s%s; set a separate topic for dead letters"
                .formatted(AggregateKeys.PREFIX, route.type(), AggregateConfig.TOPIC));
      }
    }
  }
}
