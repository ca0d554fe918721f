package io.outboxkit.smt;

import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.field.FieldPath;
import io.outboxkit.smt.parse.ParseConfig;
import io.outboxkit.smt.parse.ParseConfig.ConfigName;
import io.outboxkit.smt.parse.ParseConfig.SchemaVersion;
import io.outboxkit.smt.util.Names;
import io.outboxkit.smt.util.Version;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Replaces the value by the Struct that a field's JSON text is, by an Avro schema that is declared,
 * never guessed from the data: EventRouter's expansion drops what is null and makes a second schema
 * of it. A payload is parsed by the newest version that accepts it, and the Struct's schema carries
 * that version's number. Tombstones pass.
 */
public final class ParsePayload<R extends ConnectRecord<R>>
    implements Transformation<R>, Versioned {

  public static final String OVERVIEW_DOC =
      "Parse the JSON text in a field into a Struct of the Avro schema that is declared for the"
          + " aggregate's type.";

  /** Options with fixed names; the {@code aggregate.*} keys depend on {@code aggregates}. */
  public static final ConfigDef CONFIG_DEF = ParseConfig.CONFIG_DEF;

  private FieldPath field;
  private FieldPath type;
  private Map<String, List<SchemaVersion>> versions;

  /**
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  @Override
  public void configure(Map<String, ?> props) {
    ParseConfig config = new ParseConfig(props);
    field = config.path(ConfigName.FIELD);
    type = config.path(ConfigName.TYPE_FIELD);
    versions = config.versions();
  }

  @Override
  public R apply(R record) {
    if (record.value() == null) {
      return record;
    }
    Struct payload = parsed(record);
    return record.newRecord(
        record.topic(),
        record.kafkaPartition(),
        record.keySchema(),
        record.key(),
        payload.schema(),
        payload,
        record.timestamp(),
        record.headers());
  }

  private Struct parsed(R record) {
    List<SchemaVersion> candidates = versionsOf(record);
    String json = text(record);
    PayloadException newestRefusal = null;
    for (SchemaVersion version : candidates) {
      try {
        return version.parser().parse(json);
      } catch (PayloadException e) {
        newestRefusal = newestRefusal == null ? e : newestRefusal;
      }
    }
    throw new DataException(
        field
            + " on topic "
            + record.topic()
            + " fits no schema version of its aggregate type "
            + candidates.stream().map(SchemaVersion::number).toList()
            + "; by version "
            + candidates.get(0).number()
            + ", "
            + newestRefusal.getMessage());
  }

  private List<SchemaVersion> versionsOf(R record) {
    String name = type.readText(record);
    List<SchemaVersion> found = name == null ? null : versions.get(name);
    if (found == null) {
      throw new DataException(
          type
              + " on topic "
              + record.topic()
              + " is "
              + (name == null ? "null" : Names.shown(name))
              + ", which is not in aggregates.");
    }
    return found;
  }

  private String text(R record) {
    Object value = field.read(record);
    if (value instanceof String text) {
      return text;
    }
    throw new DataException(
        field
            + " on topic "
            + record.topic()
            + (value == null
                ? " is null; make tombstones before, with SetTombstone."
                : " is of type " + FieldPath.typeOf(value) + ", not JSON text."));
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
