package io.outboxkit.smt;

import io.outboxkit.smt.config.FieldPath;
import io.outboxkit.smt.config.NamedValues;
import io.outboxkit.smt.config.OptionDefinitions;
import io.outboxkit.smt.config.Validators;
import io.outboxkit.smt.util.KeyPartitioner;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;

/**
 * Sets the partition that Kafka's producer would choose if the field's value were the record key.
 * Use this transform for records that are partitioned by a field other than the key, or whose
 * serialized key contains a schema id.
 */
public final class SetPartition<R extends ConnectRecord<R>> extends BaseTransform<R> {
  public static final String OVERVIEW_DOC =
      "Set the partition by the hash of a field, as Kafka's producer sets it for a record key with"
          + " the same value.";

  public interface ConfigName {
    String FIELD = "field";
    String PARTITIONS = "partitions";
    String TOPIC_PARTITIONS = "topic.partitions";
  }

  private static final String FIELD_TYPES =
      "string, uuid, boolean, bytes, int16, int32, int64, float32 or float64";

  public static final ConfigDef CONFIG_DEF =
      new OptionDefinitions()
          .high(ConfigName.FIELD, Type.STRING, "key", FieldPath.VALIDATOR)
          .doc(
              "Field whose hash determines the partition. Its type must be "
                  + FIELD_TYPES
                  + ". All records with the same key must have the same value in this field;"
                  + " otherwise a tombstone can get a different partition than earlier records.")
          .high(
              ConfigName.PARTITIONS,
              Type.INT,
              null,
              Validators.optional("[1,...]", Range.atLeast(1)))
          .doc(
              "Partition count of the topics that topic.partitions does not list. If it is not set,"
                  + " a record of such a topic stops the task.")
          .high(
              ConfigName.TOPIC_PARTITIONS,
              Type.LIST,
              List.of(),
              NamedValues.validator("TOPIC:COUNT"))
          .doc("Partition counts of individual topics, which override partitions.");

  private FieldPath field;
  private Integer defaultPartitionCount;
  private Map<String, Integer> partitionCountsByTopic;

  public SetPartition() {
    super(CONFIG_DEF);
  }

  @Override
  void initialize(Map<String, ?> props) {
    AbstractConfig config = new AbstractConfig(CONFIG_DEF, props, false);
    field = FieldPath.of(config, ConfigName.FIELD);
    defaultPartitionCount = config.getInt(ConfigName.PARTITIONS);
    partitionCountsByTopic = new HashMap<>();
    NamedValues.parse(ConfigName.TOPIC_PARTITIONS, config.getList(ConfigName.TOPIC_PARTITIONS))
        .forEach((topic, count) -> partitionCountsByTopic.put(topic, parseCount(count)));
    if (defaultPartitionCount == null && partitionCountsByTopic.isEmpty()) {
      throw new ConfigException(
          ConfigName.PARTITIONS, null, "required unless topic.partitions is set");
    }
  }

  @Override
  public R apply(R record) {
    return withTopic(record, record.topic(), partition(record));
  }

  private int partition(R record) {
    Integer count = partitionCountsByTopic.getOrDefault(record.topic(), defaultPartitionCount);
    if (count == null) {
      throw new DataException(
          "Topic %s has no partition count; add it to topic.partitions, or set partitions"
              .formatted(record.topic()));
    }
    Object value = field.read(record);
    if (value == null) {
      throw field.error(record, "is null; set the option field to a field that is never null");
    }
    byte[] key = KeyPartitioner.serialize(value);
    if (key == null) {
      throw field.error(record, "is of type " + FieldPath.typeOf(value) + ", not " + FIELD_TYPES);
    }
    return KeyPartitioner.partition(key, count);
  }

  private static int parseCount(String count) {
    int number = (Integer) ConfigDef.parseType(ConfigName.TOPIC_PARTITIONS, count, Type.INT);
    Range.atLeast(1).ensureValid(ConfigName.TOPIC_PARTITIONS, number);
    return number;
  }
}
