package io.outboxkit.smt.field;

import io.outboxkit.smt.util.Names;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.Header;

/**
 * A place in a record: {@code key}, {@code key.a.b}, {@code value}, {@code value.a.b} through
 * Structs and Maps, or {@code header.NAME}, where all that follows is the header's name. Of several
 * headers of one name the last counts, as in Kafka's own {@code Headers.lastHeader}.
 */
public final class FieldPath {
  /** What a path may look like, for messages and for the documentation. */
  public static final String ALLOWED = "key, key.field, value, value.field, or header.name";

  private static final String KEY = "key";
  private static final String VALUE = "value";
  private static final String HEADER = "header";

  private final String text;
  private final String root;
  private final List<String> steps;

  private FieldPath(String text, String root, List<String> steps) {
    this.text = text;
    this.root = root;
    this.steps = steps;
  }

  /**
   * @param option the option that holds the path, for the message
   * @throws ConfigException if the text is no path
   */
  public static FieldPath parse(String option, String text) {
    if (text != null) {
      int dot = text.indexOf('.');
      String root = dot < 0 ? text : text.substring(0, dot);
      String rest = dot < 0 ? "" : text.substring(dot + 1);
      if (root.equals(HEADER) && !rest.isEmpty()) {
        return new FieldPath(text, root, List.of(rest));
      }
      if ((root.equals(KEY) || root.equals(VALUE)) && dot < 0) {
        return new FieldPath(text, root, List.of());
      }
      List<String> steps = Arrays.asList(rest.split("\\.", -1));
      if ((root.equals(KEY) || root.equals(VALUE)) && !steps.contains("")) {
        return new FieldPath(text, root, steps);
      }
    }
    throw new ConfigException(option, text, "must be " + ALLOWED);
  }

  /**
   * What stands there. Null if the field is null, or there is no such header, or no key.
   *
   * @throws DataException if the record has no value and the path leads into it, or if there is no
   *     such field; names the path and the topic, never what the record holds
   */
  public Object read(ConnectRecord<?> record) {
    if (root.equals(HEADER)) {
      Header header = record.headers().lastWithName(steps.get(0));
      return header == null ? null : header.value();
    }
    Object at = root.equals(KEY) ? record.key() : record.value();
    if (at == null && root.equals(VALUE)) {
      throw new DataException(
          this
              + " cannot be read: a record on topic "
              + record.topic()
              + " has no value, it is a tombstone. Name a field of the key or a header instead, or"
              + " put this transform before the one that makes tombstones.");
    }
    for (String step : steps) {
      if (at == null) {
        return null;
      }
      at = field(at, step, record);
    }
    return at;
  }

  /** The text at the path; null for null. Whole numbers and booleans count as text. */
  public String readText(ConnectRecord<?> record) {
    Object value = read(record);
    if (value == null || value instanceof String) {
      return (String) value;
    }
    if (value instanceof Long
        || value instanceof Integer
        || value instanceof Short
        || value instanceof Byte
        || value instanceof Boolean
        || value instanceof java.util.UUID) {
      return value.toString();
    }
    throw new DataException(
        this + " on topic " + record.topic() + " is of type " + typeOf(value) + ", not text.");
  }

  /** The type of what was found, in Connect's words where it has one. */
  public static String typeOf(Object value) {
    if (value instanceof Struct struct) {
      return "Struct" + (struct.schema().name() == null ? "" : " " + struct.schema().name());
    }
    return value.getClass().getSimpleName();
  }

  private Object field(Object at, String name, ConnectRecord<?> record) {
    if (at instanceof Struct struct) {
      Field field = struct.schema().field(name);
      if (field == null) {
        throw missing(name, record, "the record has no such field");
      }
      // Not get(): where the field has a default, that would turn null into it.
      return struct.getWithoutDefault(name);
    }
    if (at instanceof Map<?, ?> map) {
      if (!map.containsKey(name)) {
        throw missing(name, record, "the record has no such field");
      }
      return map.get(name);
    }
    throw missing(name, record, "what holds it is of type " + typeOf(at) + ", which has no fields");
  }

  private DataException missing(String name, ConnectRecord<?> record, String why) {
    return new DataException(
        this
            + " cannot be read on topic "
            + record.topic()
            + " at "
            + Names.shown(name)
            + ": "
            + why
            + ".");
  }

  @Override
  public String toString() {
    return "Field " + text;
  }

  /** Refuses what {@link #parse} refuses; null stands for an option left out. */
  public static final class Validator implements ConfigDef.Validator {
    @Override
    public void ensureValid(String name, Object value) {
      if (value != null) {
        parse(name, (String) value);
      }
    }

    @Override
    public String toString() {
      return ALLOWED;
    }
  }
}
