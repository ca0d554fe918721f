package io.outboxkit.smt;

import static org.apache.kafka.common.config.ConfigDef.NO_DEFAULT_VALUE;

import io.outboxkit.smt.config.FieldPath;
import io.outboxkit.smt.config.NamedValues;
import io.outboxkit.smt.config.OptionDefinitions;
import io.outboxkit.smt.config.Validators;
import io.outboxkit.smt.util.MessageText;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.connector.ConnectRecord;

/**
 * Sets the topic according to the value of a field. Each topic must be configured. If a topic were
 * derived from a value, it might not exist, and the producer would block.
 */
public final class RouteByField<R extends ConnectRecord<R>> extends BaseTransform<R> {
  public static final String OVERVIEW_DOC =
      "Set the topic by the value of a field, with the mapping in the option topics.";

  public interface ConfigName {
    String FIELD = "field";
    String TOPICS = "topics";
  }

  public static final ConfigDef CONFIG_DEF =
      new OptionDefinitions()
          .high(ConfigName.FIELD, Type.STRING, NO_DEFAULT_VALUE, FieldPath.VALIDATOR)
          .doc("Field whose value determines the topic.")
          .high(
              ConfigName.TOPICS, Type.LIST, NO_DEFAULT_VALUE, NamedValues.validator("VALUE:TOPIC"))
          .doc("Topic for each value of the field. A record with another value stops the task.");

  private FieldPath field;
  private Map<String, String> topics;

  public RouteByField() {
    super(CONFIG_DEF);
  }

  @Override
  void initialize(Map<String, ?> props) {
    AbstractConfig config = new AbstractConfig(CONFIG_DEF, props, false);
    field = FieldPath.of(config, ConfigName.FIELD);
    List<String> entries = config.getList(ConfigName.TOPICS);
    topics = NamedValues.parse(ConfigName.TOPICS, entries);
    if (topics.isEmpty()) {
      throw new ConfigException(ConfigName.TOPICS, entries, "must not be empty");
    }
    topics.values().forEach(topic -> Validators.TOPIC_NAME.ensureValid(ConfigName.TOPICS, topic));
  }

  @Override
  public R apply(R record) {
    return withTopic(record, topic(record), record.kafkaPartition());
  }

  private String topic(R record) {
    String value = field.readText(record);
    String topic = value == null ? null : topics.get(value);
    if (topic == null) {
      throw field.error(
          record, "is " + MessageText.quote(value) + ", which is not in the option topics");
    }
    return topic;
  }
}
