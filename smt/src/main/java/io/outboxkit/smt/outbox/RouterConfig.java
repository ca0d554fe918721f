package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.TopicNames;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
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
    String ROUTE_BY_FIELD = "route.by.field";
    String AGGREGATES = "aggregates";
    String SOURCE_EPOCH = "source.epoch";
    String INVALID_ROWS = "invalid.rows";
    String DEAD_LETTER_TOPIC = "dead.letter.topic";
    String SNAPSHOT_ROWS = "snapshot.rows";
    String MAX_RECORD_BYTES = "max.record.bytes";
    String PASS_THROUGH = "pass.through";
  }

  private static final String DEAD_LETTER = "dead-letter";
  private static final String FAIL = "fail";
  private static final String ROUTE = "route";

  public static final ConfigDef CONFIG_DEF = optionsOf(columnsOf(new ConfigDef()));

  private static ConfigDef columnsOf(ConfigDef definition) {
    definition.define(
        ConfigName.TABLE,
        Type.STRING,
        null,
        new TableNameValidator(),
        Importance.HIGH,
        "The outbox table as schema.table; for a partitioned table its root. Required unless"
            + " message.prefix is set.");
    definition.define(
        ConfigName.MESSAGE_PREFIX,
        Type.STRING,
        null,
        Importance.HIGH,
        "Prefix of the logical decoding messages that are events too: transactional ones, whose"
            + " content is a JSON object with the columns of the outbox table.");
    column(definition, ConfigName.ID_FIELD, "id", "the event's unique id", "the header event_id");
    column(
        definition, ConfigName.KEY_FIELD, "aggregate_id", "the aggregate's id", "the record key");
    column(
        definition,
        ConfigName.TYPE_FIELD,
        "event_type",
        "the event's type",
        "the header event_type");
    column(
        definition,
        ConfigName.PAYLOAD_FIELD,
        "payload",
        "the JSON state after the event (jsonb, json or text)",
        "the record value; SQL NULL or JSON null becomes a tombstone");
    column(
        definition,
        ConfigName.TIMESTAMP_FIELD,
        "created_at",
        "the time of the event (timestamptz, or timestamp in UTC)",
        "the header event_time");
    column(
        definition,
        ConfigName.HEADERS_FIELD,
        "headers",
        "a JSON object of further headers; the table may be without it",
        "one header per field");
    column(
        definition,
        ConfigName.ROUTE_BY_FIELD,
        "aggregate_type",
        "the aggregate's type, which picks the topic",
        "the header aggregate_type");
    return definition;
  }

  private static void column(
      ConfigDef definition, String name, String column, String content, String becomes) {
    definition.define(
        name,
        Type.STRING,
        column,
        new ConfigDef.NonEmptyString(),
        Importance.LOW,
        "Column of " + content + "; becomes " + becomes + ".");
  }

  private static ConfigDef optionsOf(ConfigDef definition) {
    return definition
        .define(
            ConfigName.AGGREGATES,
            Type.LIST,
            ConfigDef.NO_DEFAULT_VALUE,
            new AggregateListValidator(),
            Importance.HIGH,
            "The aggregate types to route. Each has keys of its own, see below.")
        .define(
            ConfigName.SOURCE_EPOCH,
            Type.INT,
            1,
            Range.between(0, 0xFFFF),
            Importance.MEDIUM,
            "First part of the header source_sequence;"
                + " to be raised when the server's log positions start again lower.")
        .define(
            ConfigName.INVALID_ROWS,
            Type.STRING,
            DEAD_LETTER,
            ValidString.in(DEAD_LETTER, FAIL),
            Importance.MEDIUM,
            "What happens to a row that cannot be routed:"
                + " dead-letter writes it to dead.letter.topic, fail stops the task.")
        .define(
            ConfigName.DEAD_LETTER_TOPIC,
            Type.STRING,
            null,
            Importance.MEDIUM,
            "Topic of rows that cannot be routed; required with invalid.rows=dead-letter.")
        .define(
            ConfigName.SNAPSHOT_ROWS,
            Type.STRING,
            FAIL,
            ValidString.in(FAIL, ROUTE),
            Importance.LOW,
            "What happens to rows that a Debezium snapshot read (op=r):"
                + " fail stops the task, route treats them as inserts.")
        .define(
            ConfigName.MAX_RECORD_BYTES,
            Type.INT,
            1_000_000,
            Range.atLeast(1),
            Importance.MEDIUM,
            "Most bytes of key, value and headers together; a larger row counts as invalid. Keep it"
                + " below the producer's max.request.size and the topics' max.message.bytes.")
        .define(
            ConfigName.PASS_THROUGH,
            Type.LIST,
            List.of(),
            new PassThrough.Validator(),
            Importance.LOW,
            "Other records to let through as they are: transactions, schema-changes, messages,"
                + " table:<schema.table>. Heartbeats always pass, anything else is refused.");
  }

  /**
   * @param props the transform's properties, as Connect hands them over
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  public RouterConfig(Map<String, ?> props) {
    super(CONFIG_DEF, props, false);
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
    return getString(ConfigName.INVALID_ROWS).equals(DEAD_LETTER);
  }

  public String deadLetterTopic() {
    return getString(ConfigName.DEAD_LETTER_TOPIC);
  }

  public boolean routesSnapshotRows() {
    return getString(ConfigName.SNAPSHOT_ROWS).equals(ROUTE);
  }

  public int maxRecordBytes() {
    return getInt(ConfigName.MAX_RECORD_BYTES);
  }

  public PassThrough passThrough() {
    return PassThrough.of(getList(ConfigName.PASS_THROUGH));
  }

  /** Where each listed aggregate type goes. */
  public Map<String, AggregateRoute> routes() {
    return new AggregateConfig(originals()).routes(getList(ConfigName.AGGREGATES));
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

  private static final class TableNameValidator implements ConfigDef.Validator {
    @Override
    public void ensureValid(String name, Object value) {
      String table = (String) value;
      if (table != null && !table.matches("[^.]+\\..+")) {
        throw new ConfigException(name, value, "must be schema.table, such as public.outbox_event");
      }
    }

    @Override
    public String toString() {
      return "schema.table";
    }
  }

  private static final class AggregateListValidator implements ConfigDef.Validator {
    @Override
    public void ensureValid(String name, Object value) {
      List<?> types = (List<?>) value;
      if (types == null || types.isEmpty() || types.contains("")) {
        throw new ConfigException(name, value, "must list one or more aggregate types");
      }
      if (types.stream().distinct().count() < types.size()) {
        throw new ConfigException(name, value, "must list each aggregate type once");
      }
    }

    @Override
    public String toString() {
      return "list of one or more, each once";
    }
  }
}
