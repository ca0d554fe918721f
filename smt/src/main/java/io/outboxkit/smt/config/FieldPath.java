package io.outboxkit.smt.config;

import io.outboxkit.smt.util.MessageText;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.Header;

/**
 * Path of a field in a record: {@code key}, {@code key.a.b}, {@code value}, {@code value.a.b} or
 * {@code header.NAME}. The steps a and b are fields of Structs or keys of Maps. NAME can contain
 * dots. If several headers have this name, the last header is read.
 */
public final class FieldPath {
  private static final String SYNTAX = "key, key.FIELD, value, value.FIELD, or header.NAME";

  /** Accepts a path or null. An option that is not set has the value null. */
  public static final ConfigDef.Validator VALIDATOR =
      Validators.optional(SYNTAX, (name, value) -> parse(name, (String) value));

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

  /** Return the path that an option contains, or null if the option is not set. */
  public static FieldPath of(AbstractConfig config, String option) {
    String text = config.getString(option);
    return text == null ? null : parse(option, text);
  }

  /** Parse a path. Throw ConfigException if the text is null or not a path. */
  public static FieldPath parse(String option, String text) {
    if (text != null) {
      int dot = text.indexOf('.');
      String root = dot < 0 ? text : text.substring(0, dot);
      String subpath = dot < 0 ? "" : text.substring(dot + 1);
      if (root.equals(HEADER) && !subpath.isEmpty()) {
        return new FieldPath(text, root, List.of(subpath));
      }
      List<String> steps = dot < 0 ? List.of() : List.of(subpath.split("\\.", -1));
      if ((root.equals(KEY) || root.equals(VALUE)) && !steps.contains("")) {
        return new FieldPath(text, root, steps);
      }
    }
    throw new ConfigException(option, text, "must be " + SYNTAX);
  }

  /**
   * Return the field's value, or null if the header does not exist, or the field or a container on
   * the path is null.
   *
   * @throws DataException if a field on the path does not exist, or if the path starts with {@code
   *     value} and the record is a tombstone
   */
  public Object read(ConnectRecord<?> record) {
    if (root.equals(HEADER)) {
      Header header = record.headers().lastWithName(steps.get(0));
      return header == null ? null : header.value();
    }
    Object value = root.equals(KEY) ? record.key() : record.value();
    if (value == null && root.equals(VALUE)) {
      throw error(
          record,
          "cannot be read from a tombstone; use a field of the key or a header, or move this"
              + " transform before the transform that creates tombstones");
    }
    for (String step : steps) {
      if (value == null) {
        return null;
      }
      value = readField(value, step, record);
    }
    return value;
  }

  /**
   * Return a string, integer, boolean or UUID as text, or null if the field's value is null.
   *
   * @throws DataException if the value has a different type, or if {@link #read} throws it
   */
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
    throw error(record, "is of type " + typeOf(value) + ", not string, integer, boolean or uuid");
  }

  /** Return the simple name of the value's class and, for a Struct, the name of its schema. */
  public static String typeOf(Object value) {
    if (value instanceof Struct struct) {
      return "Struct" + (struct.schema().name() == null ? "" : " " + struct.schema().name());
    }
    return value.getClass().getSimpleName();
  }

  /** Return an exception whose message contains the path, the record's topic and the problem. */
  public DataException error(ConnectRecord<?> record, String problem) {
    return new DataException("Field %s on topic %s %s".formatted(text, record.topic(), problem));
  }

  private Object readField(Object container, String name, ConnectRecord<?> record) {
    if (container instanceof Struct struct) {
      Field field = struct.schema().field(name);
      if (field == null) {
        throw unreadableField(name, record, "there is no such field");
      }
      // get() would return the field's default if the value is null.
      return struct.getWithoutDefault(name);
    }
    if (container instanceof Map<?, ?> map) {
      if (!map.containsKey(name)) {
        throw unreadableField(name, record, "there is no such field");
      }
      return map.get(name);
    }
    throw unreadableField(name, record, typeOf(container) + " has no fields");
  }

  private DataException unreadableField(String name, ConnectRecord<?> record, String reason) {
    return error(record, "cannot be read at " + MessageText.quote(name) + ": " + reason);
  }
}
