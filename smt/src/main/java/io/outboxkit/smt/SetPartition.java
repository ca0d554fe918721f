package io.outboxkit.smt;

import io.outboxkit.smt.field.FieldPath;
import io.outboxkit.smt.field.NamedValues;
import io.outboxkit.smt.util.Partitions;
import io.outboxkit.smt.util.UnknownOptions;
import io.outboxkit.smt.util.Version;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Sets the partition that Kafka's producer would pick if the field were the record's key: so a
 * record can be placed by another field than its key, or by a key whose bytes carry a schema id.
 */
public final class SetPartition<R extends ConnectRecord<R>>
    implements Transformation<R>, Versioned {

  public static final String OVERVIEW_DOC =
      "Set the partition by the hash of a field, as Kafka's own producer would for a key of that"
          + " value.";

  /** Names of the options. */
  public interface ConfigName {
    String FIELD = "field";
    String PARTITIONS = "partitions";
    String TOPIC_PARTITIONS = "topic.partitions";
  }

  public static final ConfigDef CONFIG_DEF =
      new ConfigDef()
          .define(
              ConfigName.FIELD,
              Type.STRING,
              "key",
              new FieldPath.Validator(),
              Importance.HIGH,
              "The field whose hash picks the partition: a string, uuid, boolean, bytes, or a"
                  + " number of type int16, int32, int64, float32 or float64. It must never change"
                  + " during the life of a key, or a tombstone misses the records before it.")
          .define(
              ConfigName.PARTITIONS,
              Type.INT,
              null,
              ConfigDef.LambdaValidator.with(
                  (name, value) -> {
                    if (value != null) {
                      Range.atLeast(1).ensureValid(name, value);
                    }
                  },
                  () -> "[1,...]"),
              Importance.HIGH,
              "Partition count of the topics that topic.partitions does not name. A record of a"
                  + " topic without a count stops the task.")
          .define(
              ConfigName.TOPIC_PARTITIONS,
              Type.LIST,
              List.of(),
              new NamedValues.Validator("topic:count"),
              Importance.HIGH,
              "Partition counts of single topics.");

  private FieldPath field;
  private Integer partitions;
  private Map<String, Integer> partitionsByTopic;

  /**
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  @Override
  public void configure(Map<String, ?> props) {
    AbstractConfig config = new AbstractConfig(CONFIG_DEF, props, false);
    UnknownOptions.refuse("SetPartition", props, CONFIG_DEF.names());
    field = FieldPath.parse(ConfigName.FIELD, config.getString(ConfigName.FIELD));
    partitions = config.getInt(ConfigName.PARTITIONS);
    partitionsByTopic = counts(config.getList(ConfigName.TOPIC_PARTITIONS));
    if (partitions == null && partitionsByTopic.isEmpty()) {
      throw new ConfigException(
          ConfigName.PARTITIONS,
          null,
          "required without topic.partitions; set the partition count of the topics");
    }
  }

  @Override
  public R apply(R record) {
    return record.newRecord(
        record.topic(),
        partition(record),
        record.keySchema(),
        record.key(),
        record.valueSchema(),
        record.value(),
        record.timestamp(),
        record.headers());
  }

  private int partition(R record) {
    Integer count = partitionsByTopic.getOrDefault(record.topic(), partitions);
    if (count == null) {
      throw new DataException(
          "Topic "
              + record.topic()
              + " has no partition count; add it to topic.partitions, or set partitions.");
    }
    Object value = field.read(record);
    if (value == null) {
      throw new DataException(
          field + " on topic " + record.topic() + " is null: it cannot pick a partition.");
    }
    byte[] bytes = Partitions.serialized(value);
    if (bytes == null) {
      throw new DataException(
          field
              + " on topic "
              + record.topic()
              + " is of type "
              + FieldPath.typeOf(value)
              + "; a string, uuid, boolean, bytes, int16, int32, int64, float32 or float64 can pick"
              + " a partition, for those Kafka's producer has a serializer.");
    }
    return Partitions.of(bytes, count);
  }

  private static Map<String, Integer> counts(List<String> entries) {
    Map<String, Integer> counts = new HashMap<>();
    NamedValues.parse(ConfigName.TOPIC_PARTITIONS, entries)
        .forEach((topic, count) -> counts.put(topic, count(entries, count)));
    return counts;
  }

  private static int count(List<String> entries, String count) {
    try {
      int number = Integer.parseInt(count);
      if (number > 0) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Falls through to the same answer.
    }
    throw new ConfigException(
        ConfigName.TOPIC_PARTITIONS, entries, "a count must be an integer above 0");
  }

  @Override
  public ConfigDef config() {
    return CONFIG_DEF;
  }

  @Override
  public String version() {
    return Version.current();
  }

  @Override
  public void close() {}
}
