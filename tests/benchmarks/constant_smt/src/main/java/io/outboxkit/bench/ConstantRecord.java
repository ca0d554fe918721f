package io.outboxkit.bench;

import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Replaces each row by a record with the row's key, constant bytes and constant headers. It measures
 * the upper limit of the worker. Records that are not rows are passed through.
 */
public final class ConstantRecord<R extends ConnectRecord<R>> implements Transformation<R> {

  private static final ConfigDef CONFIG_DEF =
      new ConfigDef()
          .define("topic", Type.STRING, Importance.HIGH, "Topic of the records.")
          .define("key.field", Type.STRING, Importance.HIGH, "Column that becomes the key.")
          .define("value.bytes", Type.INT, Importance.HIGH, "Size of the value.")
          .define(
              "headers", Type.LIST, Importance.HIGH, "name=value of each header.");

  private final Headers headers = new ConnectHeaders();
  private String topic;
  private String keyField;
  private byte[] value;

  @Override
  public void configure(Map<String, ?> properties) {
    Map<String, Object> options = CONFIG_DEF.parse(properties);
    topic = (String) options.get("topic");
    keyField = (String) options.get("key.field");
    value = new byte[(Integer) options.get("value.bytes")];
    // Random bytes, which lz4 hardly compresses, with a fixed seed.
    new Random(1).nextBytes(value);
    for (Object header : (List<?>) options.get("headers")) {
      String[] pair = header.toString().split("=", 2);
      headers.addString(pair[0], pair[1]);
    }
  }

  @Override
  public R apply(R record) {
    if (!(record.value() instanceof Struct envelope)
        || envelope.schema().field("after") == null) {
      return record;
    }
    String key = envelope.getStruct("after").getString(keyField);
    return record.newRecord(
        topic,
        null,
        Schema.STRING_SCHEMA,
        key,
        Schema.BYTES_SCHEMA,
        value,
        record.timestamp(),
        headers);
  }

  @Override
  public ConfigDef config() {
    return CONFIG_DEF;
  }

  @Override
  public void close() {}
}
