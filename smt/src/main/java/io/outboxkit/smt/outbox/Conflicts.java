package io.outboxkit.smt.outbox;

import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.kafka.common.config.ConfigException;

/** Settings that are right each by itself and cannot be together. Messages name both options. */
final class Conflicts {
  private record Declared(String option, Schema schema) {}

  private final Map<Integer, Declared> schemas = new HashMap<>();
  private final Map<String, AggregateRoute> topics = new HashMap<>();

  /**
   * Notes the id of a schema. A registry gives equal schemas one id, and different ones never.
   *
   * @param option the id's
   * @throws ConfigException if a different schema has that id
   */
  void requireOwnId(String option, int id, Schema schema) {
    Declared other = schemas.putIfAbsent(id, new Declared(option, schema));
    if (other != null && !other.schema().equals(schema)) {
      throw new ConfigException(
          option, id, "is also " + other.option() + ", of another schema; set each schema's own");
    }
  }

  /**
   * @throws ConfigException if another aggregate with that topic gives it other partitions
   */
  void requireOnePartitionCount(AggregateRoute route) {
    AggregateRoute other = topics.putIfAbsent(route.topic(), route);
    if (other != null && other.partitions() != route.partitions()) {
      throw new ConfigException(
          AggregateConfig.PREFIX + route.type() + ".partitions",
          route.partitions(),
          AggregateConfig.PREFIX
              + other.type()
              + ".partitions is "
              + other.partitions()
              + " for the same topic; set both to its partition count");
    }
  }

  /**
   * Consumers of the aggregate would read dead letters, and compaction would keep the last of them.
   *
   * @throws ConfigException if the topic is one of those of the routes
   */
  static void requireOwnTopic(String option, String topic, Iterable<AggregateRoute> routes) {
    for (AggregateRoute route : routes) {
      if (route.topic().equals(topic)) {
        throw new ConfigException(
            option,
            topic,
            "is also "
                + AggregateConfig.PREFIX
                + route.type()
                + ".topic; name a topic of its own for dead letters");
      }
    }
  }
}
