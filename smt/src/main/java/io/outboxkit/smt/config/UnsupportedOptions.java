package io.outboxkit.smt.config;

import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/** Rejects keys that are not options, because Connect silently ignores unknown keys. */
public final class UnsupportedOptions {
  /** Keys that Connect itself defines for each transform. */
  private static final Set<String> CONNECT_KEYS =
      Set.of("type", "plugin.version", "predicate", "negate");

  private static final String TOPIC_REPLACEMENT =
      "set aggregate.T.topic for each aggregate type T instead";
  private static final String SCHEMA_REPLACEMENT =
      "set aggregate.T.schema.* for each aggregate type T instead: values are encoded as Avro";
  private static final String TRACING_REPLACEMENT =
      "write traceparent as a field of the headers column, or add a column traceparent and set"
          + " table.fields.additional.placement=traceparent:header";

  /** Replacements for options of EventRouter. docs/smt-chains.md contains the same table. */
  private static final Map<String, String> EVENT_ROUTER_REPLACEMENTS =
      Map.of(
          "route.topic.regex", TOPIC_REPLACEMENT,
          "route.topic.replacement", TOPIC_REPLACEMENT,
          "route.tombstone.on.empty.payload",
              "remove this option: SQL NULL always becomes a tombstone, JSON null becomes a"
                  + " tombstone with payload.format=json, and blank text never becomes a tombstone",
          "table.expand.json.payload", SCHEMA_REPLACEMENT,
          "table.json.payload.null.behavior", SCHEMA_REPLACEMENT,
          "table.json.payload.empty.array.behavior", SCHEMA_REPLACEMENT,
          "tracing.span.context.field", TRACING_REPLACEMENT,
          "tracing.operation.name", TRACING_REPLACEMENT,
          "tracing.with.context.field.only", TRACING_REPLACEMENT);

  private UnsupportedOptions() {}

  /**
   * Throw ConfigException for a key that is not an option. Keys {@code aggregate.*} are accepted if
   * the definition has the option {@code aggregates}, because AggregateKeys checks these keys.
   */
  public static void reject(String transform, Map<String, ?> props, ConfigDef definition) {
    Set<String> options = definition.names();
    boolean hasAggregates = options.contains("aggregates");
    for (String name : new TreeSet<>(props.keySet())) {
      boolean isSupported =
          options.contains(name)
              || CONNECT_KEYS.contains(name)
              || hasAggregates && name.startsWith(AggregateKeys.PREFIX);
      if (!isSupported) {
        String replacement = hasAggregates ? EVENT_ROUTER_REPLACEMENTS.get(name) : null;
        throw new ConfigException(
            name,
            props.get(name),
            "not an option of %s; %s"
                .formatted(
                    transform, replacement == null ? "the options are " + options : replacement));
      }
    }
  }
}
