package io.outboxkit.smt;

import io.outboxkit.smt.field.FieldPath;
import io.outboxkit.smt.field.NamedValues;
import io.outboxkit.smt.util.Names;
import io.outboxkit.smt.util.TopicNames;
import io.outboxkit.smt.util.UnknownOptions;
import io.outboxkit.smt.util.Version;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Sets the topic by the text of a field. Every value is listed with its topic: a topic that was
 * made up from data would not exist, and a producer waits for it while the task says RUNNING.
 */
public final class RouteByField<R extends ConnectRecord<R>>
    implements Transformation<R>, Versioned {

  public static final String OVERVIEW_DOC =
      "Set the topic by the text of a field, from a list of values and their topics.";

  /** Names of the options. */
  public interface ConfigName {
    String FIELD = "field";
    String TOPICS = "topics";
  }

  public static final ConfigDef CONFIG_DEF =
      new ConfigDef()
          .define(
              ConfigName.FIELD,
              Type.STRING,
              ConfigDef.NO_DEFAULT_VALUE,
              new FieldPath.Validator(),
              Importance.HIGH,
              "The field whose text picks the topic.")
          .define(
              ConfigName.TOPICS,
              Type.LIST,
              ConfigDef.NO_DEFAULT_VALUE,
              new NamedValues.Validator("value:topic"),
              Importance.HIGH,
              "The topic of each value. A record with any other value stops the task.");

  private FieldPath field;
  private Map<String, String> topics;

  /**
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  @Override
  public void configure(Map<String, ?> props) {
    AbstractConfig config = new AbstractConfig(CONFIG_DEF, props, false);
    UnknownOptions.refuse("RouteByField", props, CONFIG_DEF.names());
    field = FieldPath.parse(ConfigName.FIELD, config.getString(ConfigName.FIELD));
    topics = NamedValues.parse(ConfigName.TOPICS, config.getList(ConfigName.TOPICS));
    if (topics.isEmpty()) {
      throw new ConfigException(
          ConfigName.TOPICS,
          config.getList(ConfigName.TOPICS),
          "must list one or more value:topic");
    }
    topics.values().forEach(topic -> TopicNames.require(ConfigName.TOPICS, topic));
  }

  @Override
  public R apply(R record) {
    return record.newRecord(
        topic(record),
        record.kafkaPartition(),
        record.keySchema(),
        record.key(),
        record.valueSchema(),
        record.value(),
        record.timestamp(),
        record.headers());
  }

  private String topic(R record) {
    String value = field.readText(record);
    String topic = value == null ? null : topics.get(value);
    if (topic == null) {
      throw new DataException(
          field
              + " on topic "
              + record.topic()
              + " is "
              + (value == null ? "null" : Names.shown(value))
              + ", which is not in topics.");
    }
    return topic;
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
