package io.outboxkit.smt.outbox;

import io.outboxkit.smt.outbox.RouterConfig.ConfigName;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.List;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;

/** Types, defaults, allowed values and meanings of the router's options with fixed names. */
final class RouterOptions {
  static final String DEAD_LETTER = "dead-letter";
  static final String FAIL = "fail";
  static final String ROUTE = "route";
  static final String IGNORE = "ignore";
  static final String ERROR = "error";

  static final ConfigDef DEFINITION = optionsOf(columnsOf(new ConfigDef()));

  private RouterOptions() {}

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
        "the state after the event, in the aggregate's payload.format",
        "the record value; SQL NULL becomes a tombstone, and so does JSON null of the format json");
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
    return furtherColumnsOf(definition);
  }

  private static ConfigDef furtherColumnsOf(ConfigDef definition) {
    return definition
        .define(
            ConfigName.SCHEMA_VERSION_FIELD,
            Type.STRING,
            null,
            new ConfigDef.NonEmptyString(),
            Importance.LOW,
            "Column of the label of the schema version that the payload was written by (text or"
                + " whole number). Without it, and where it is null, the newest version that"
                + " accepts the payload is taken. Required where an aggregate of the format avro"
                + " has several versions, and then null makes its row invalid.")
        .define(
            ConfigName.PLACEMENT,
            Type.LIST,
            List.of(),
            new Placements.Validator(),
            Importance.LOW,
            "Columns that become headers too, each as column:header, or column:header:name to give"
                + " the header another name. Null adds none.")
        .define(
            ConfigName.PLACEMENT_MISSING,
            Type.STRING,
            ERROR,
            ValidString.in(ERROR, IGNORE),
            Importance.LOW,
            "What happens if the table lacks a column that is to become a header:"
                + " error stops the task, ignore does without.");
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
            ConfigName.INVALID_OPERATIONS,
            Type.STRING,
            RowOperations.FATAL,
            ValidString.in(RowOperations.FATAL, RowOperations.ERROR, RowOperations.WARN),
            Importance.LOW,
            "What happens to updates of outbox rows (op=u): fatal stops the task, error and warn"
                + " skip them and log the first one at that level.")
        .define(
            ConfigName.DELETED_ROWS,
            Type.STRING,
            FAIL,
            ValidString.in(FAIL, IGNORE),
            Importance.LOW,
            "What happens when outbox rows are deleted or truncated (op=d, op=t): fail stops the"
                + " task, ignore skips it.")
        .define(
            ConfigName.MAX_RECORD_BYTES,
            Type.INT,
            1_000_000,
            Range.atLeast(1),
            Importance.MEDIUM,
            "Most bytes of key, value and headers together, with 10 more per header for what Kafka"
                + " puts around it; a larger row counts as invalid. Keep it"
                + " below the producer's max.request.size and the topics' max.message.bytes.")
        .define(
            ConfigName.PASS_THROUGH,
            Type.LIST,
            List.of(),
            new PassThrough.Validator(),
            Importance.LOW,
            "Other records to let through as they are: transactions, schema-changes, messages,"
                + " table:<schema.table>. Heartbeats always pass, anything else is refused.")
        .define(
            ConfigName.CLOUDEVENTS_SOURCE,
            Type.STRING,
            null,
            ConfigDef.LambdaValidator.with(RouterOptions::requireUri, () -> "URI reference"),
            Importance.LOW,
            "Where the events happen, as a URI or a part of one such as /library. If set, records"
                + " have the headers of CloudEvents too, with this as ce_source.");
  }

  private static void requireUri(String name, Object value) {
    if (value == null) {
      return;
    }
    try {
      if (!((String) value).isBlank()) {
        new URI((String) value);
        return;
      }
    } catch (URISyntaxException e) {
      // Falls through to the same answer.
    }
    throw new ConfigException(
        name, value, "must be a URI reference, such as /library or https://example.org/library");
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
