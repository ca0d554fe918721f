package io.outboxkit.smt.outbox;

import io.outboxkit.smt.util.UnknownOptions;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigException;

/**
 * Options that there are not. A mistyped one must not leave its default in force in silence, and
 * those of Debezium's EventRouter that mean nothing here are answered with what to use instead.
 */
final class OtherOptions {
  private static final String TOPICS = "set aggregate.T.topic for each aggregate type instead";
  private static final String SCHEMAS =
      "set aggregate.T.schema.* instead: values are Avro by declared schemas";
  private static final String TRACING =
      "write traceparent into the headers column, or place a column of it with"
          + " table.fields.additional.placement=traceparent:header";

  /** With what to do instead. docs/smt.md has the same table. */
  static final Map<String, String> INSTEAD =
      Map.of(
          "route.topic.regex", TOPICS,
          "route.topic.replacement", TOPICS,
          "route.tombstone.on.empty.payload",
              "leave it out: SQL NULL and JSON null are always tombstones, blank text never",
          "table.expand.json.payload", SCHEMAS,
          "table.json.payload.null.behavior", SCHEMAS,
          "table.json.payload.empty.array.behavior", SCHEMAS,
          "tracing.span.context.field", TRACING,
          "tracing.operation.name", TRACING,
          "tracing.with.context.field.only", TRACING);

  private OtherOptions() {}

  /**
   * @throws ConfigException if one of the properties is no option
   */
  static void refuse(Map<String, Object> props, Set<String> options) {
    UnknownOptions.refuse("OutboxRouter", props, options, AggregateConfig.PREFIX, INSTEAD);
  }
}
