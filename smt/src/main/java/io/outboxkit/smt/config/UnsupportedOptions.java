package io.outboxkit.smt.config;

import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/** Rejects keys that are not options, because a misspelled option would silently not apply. */
public final class UnsupportedOptions {
  /** Keys that Connect itself defines for each transform. */
  private static final Set<String> CONNECT_KEYS =
      Set.of("type", "plugin.version", "predicate", "negate");

  private static final String TOPICS = "set aggregate.T.topic for each aggregate type instead";
  private static final String SCHEMAS =
      "set aggregate.T.schema.* instead: values are Avro with declared schemas";
  private static final String TRACING =
      "write traceparent to the headers column, or set"
          + " table.fields.additional.placement=traceparent:header";

  /** Replacements of EventRouter's options; docs/smt.md has the same table. */
  private static final Map<String, String> EVENT_ROUTER_REPLACEMENTS =
      Map.of(
          "route.topic.regex", TOPICS,
          "route.topic.replacement", TOPICS,
          "route.tombstone.on.empty.payload",
              "remove it: SQL NULL and JSON null are always tombstones, blank text never",
          "table.expand.json.payload", SCHEMAS,
          "table.json.payload.null.behavior", SCHEMAS,
          "table.json.payload.empty.array.behavior", SCHEMAS,
          "tracing.span.context.field", TRACING,
          "tracing.operation.name", TRACING,
          "tracing.with.context.field.only", TRACING);

  private UnsupportedOptions() {}

  /** Check the keys, without {@code aggregate.*} if the definition has {@code aggregates}. */
  public static void reject(String transform, Map<String, ?> props, ConfigDef definition) {
    Set<String> options = definition.names();
    boolean aggregates = options.contains("aggregates");
    for (String name : new TreeSet<>(props.keySet())) {
      boolean supported =
          options.contains(name)
              || CONNECT_KEYS.contains(name)
              || aggregates && name.startsWith(AggregateKeys.PREFIX);
      if (!supported) {
        String replacement = aggregates ? EVENT_ROUTER_REPLACEMENTS.get(name) : null;
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
