package io.outboxkit.smt;

import io.outboxkit.smt.config.UnsupportedOptions;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.transforms.Transformation;

/** Base class of the transforms. It rejects unknown options. */
abstract class BaseTransform<R extends ConnectRecord<R>> implements Transformation<R>, Versioned {
  private static final String VERSION = readVersion();

  private final ConfigDef definition;

  BaseTransform(ConfigDef definition) {
    this.definition = definition;
  }

  /** Throw {@link ConfigException} if an option is missing, unknown or not valid. */
  @Override
  public final void configure(Map<String, ?> props) {
    UnsupportedOptions.reject(getClass().getSimpleName(), props, definition);
    initialize(props);
  }

  abstract void initialize(Map<String, ?> props);

  static <R extends ConnectRecord<R>> R withValue(R record, Schema schema, Object value) {
    return copy(record, record.topic(), record.kafkaPartition(), schema, value);
  }

  static <R extends ConnectRecord<R>> R withTopic(R record, String topic, Integer partition) {
    return copy(record, topic, partition, record.valueSchema(), record.value());
  }

  private static <R extends ConnectRecord<R>> R copy(
      R record, String topic, Integer partition, Schema schema, Object value) {
    return record.newRecord(
        topic,
        partition,
        record.keySchema(),
        record.key(),
        schema,
        value,
        record.timestamp(),
        record.headers());
  }

  @Override
  public final ConfigDef config() {
    return definition;
  }

  @Override
  public final String version() {
    return VERSION;
  }

  @Override
  public final void close() {}

  private static String readVersion() {
    Properties properties = new Properties();
    try (InputStream in = BaseTransform.class.getResourceAsStream("version.properties")) {
      properties.load(in);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return properties.getProperty("version");
  }
}
