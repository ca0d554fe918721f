package io.outboxkit.smt;

import io.outboxkit.smt.field.FieldPath;
import io.outboxkit.smt.util.JsonNull;
import io.outboxkit.smt.util.UnknownOptions;
import io.outboxkit.smt.util.Version;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Makes real tombstones: a null value and a null schema, so that every converter writes null. With
 * a schema left behind, JsonConverter writes an envelope around the null, which compaction keeps.
 */
public final class SetTombstone<R extends ConnectRecord<R>>
    implements Transformation<R>, Versioned {

  public static final String OVERVIEW_DOC =
      "Turn records into tombstones (null value, null schema): where a field is null or JSON null,"
          + " for listed types of events, or, without conditions, all that the predicate selects.";

  /** Names of the options. */
  public interface ConfigName {
    String PAYLOAD_FIELD = "payload.field";
    String TYPE_FIELD = "type.field";
    String TYPES = "types";
  }

  public static final ConfigDef CONFIG_DEF =
      new ConfigDef()
          .define(
              ConfigName.PAYLOAD_FIELD,
              Type.STRING,
              null,
              new FieldPath.Validator(),
              Importance.HIGH,
              "The record becomes a tombstone if this field is null or the JSON text null.")
          .define(
              ConfigName.TYPE_FIELD,
              Type.STRING,
              null,
              new FieldPath.Validator(),
              Importance.HIGH,
              "The field that types compares. Required with types.")
          .define(
              ConfigName.TYPES,
              Type.LIST,
              List.of(),
              Importance.HIGH,
              "The record becomes a tombstone if type.field is one of these texts.");

  private FieldPath payload;
  private FieldPath type;
  private Set<String> types;

  /**
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  @Override
  public void configure(Map<String, ?> props) {
    AbstractConfig config = new AbstractConfig(CONFIG_DEF, props, false);
    UnknownOptions.refuse("SetTombstone", props, CONFIG_DEF.names());
    payload = path(config, ConfigName.PAYLOAD_FIELD);
    type = path(config, ConfigName.TYPE_FIELD);
    types = Set.copyOf(config.getList(ConfigName.TYPES));
    if (type == null && !types.isEmpty()) {
      throw new ConfigException(
          ConfigName.TYPE_FIELD, null, "required with types; name the field that holds the type");
    }
    if (type != null && types.isEmpty()) {
      throw new ConfigException(
          ConfigName.TYPES, List.of(), "required with type.field; list the types of events");
    }
  }

  @Override
  public R apply(R record) {
    return isTombstone(record) ? tombstone(record) : record;
  }

  private boolean isTombstone(R record) {
    // Before any path into the value is read: there is nothing left to decide, in either order.
    if (record.value() == null || payload == null && type == null) {
      return true;
    }
    if (type != null && isListed(type.readText(record))) {
      return true;
    }
    if (payload == null) {
      return false;
    }
    Object value = payload.read(record);
    return value == null || value instanceof String text && JsonNull.is(text);
  }

  private boolean isListed(String text) {
    return text != null && types.contains(text);
  }

  private R tombstone(R record) {
    return record.newRecord(
        record.topic(),
        record.kafkaPartition(),
        record.keySchema(),
        record.key(),
        null,
        null,
        record.timestamp(),
        record.headers());
  }

  private static FieldPath path(AbstractConfig config, String option) {
    String text = config.getString(option);
    return text == null ? null : FieldPath.parse(option, text);
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
