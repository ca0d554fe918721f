package io.outboxkit.smt;

import io.outboxkit.smt.config.FieldPath;
import io.outboxkit.smt.config.OptionDefinitions;
import io.outboxkit.smt.util.Json;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.connector.ConnectRecord;

/**
 * Replaces the value and its schema with null. With the original schema, JsonConverter would write
 * the null value in an envelope, which compaction does not treat as a tombstone.
 */
public final class SetTombstone<R extends ConnectRecord<R>> extends BaseTransform<R> {
  public static final String OVERVIEW_DOC =
      "Replace a record by a tombstone (null value and null schema) if payload.field is null or"
          + " JSON null, or if types lists the value of type.field. Without options, replace every"
          + " record that the transform receives; set a predicate to select records.";

  public interface ConfigName {
    String PAYLOAD_FIELD = "payload.field";
    String TYPE_FIELD = "type.field";
    String TYPES = "types";
  }

  public static final ConfigDef CONFIG_DEF =
      new OptionDefinitions()
          .high(ConfigName.PAYLOAD_FIELD, Type.STRING, null, FieldPath.VALIDATOR)
          .doc("Payload field. If its value is null or JSON null, the record becomes a tombstone.")
          .high(ConfigName.TYPE_FIELD, Type.STRING, null, FieldPath.VALIDATOR)
          .doc("Field whose value is compared with the option types. Required if types is set.")
          .high(ConfigName.TYPES, Type.LIST, List.of(), null)
          .doc("Values of type.field that make the record a tombstone.");

  private FieldPath payloadField;
  private FieldPath typeField;
  private Set<String> types;

  public SetTombstone() {
    super(CONFIG_DEF);
  }

  @Override
  void initialize(Map<String, ?> props) {
    AbstractConfig config = new AbstractConfig(CONFIG_DEF, props, false);
    payloadField = FieldPath.of(config, ConfigName.PAYLOAD_FIELD);
    typeField = FieldPath.of(config, ConfigName.TYPE_FIELD);
    types = Set.copyOf(config.getList(ConfigName.TYPES));
    if (typeField == null && !types.isEmpty()) {
      throw new ConfigException(ConfigName.TYPE_FIELD, null, "required if types is set");
    }
    if (typeField != null && types.isEmpty()) {
      throw new ConfigException(ConfigName.TYPES, types, "required if type.field is set");
    }
  }

  @Override
  public R apply(R record) {
    return becomesTombstone(record) ? withValue(record, null, null) : record;
  }

  private boolean becomesTombstone(R record) {
    // Check for a null value first, because FieldPath cannot read a field of a null value.
    if (record.value() == null || payloadField == null && typeField == null) {
      return true;
    }
    String type = typeField == null ? null : typeField.readText(record);
    if (type != null && types.contains(type)) {
      return true;
    }
    if (payloadField == null) {
      return false;
    }
    Object payload = payloadField.read(record);
    return payload == null || payload instanceof String json && Json.isNull(json);
  }
}
