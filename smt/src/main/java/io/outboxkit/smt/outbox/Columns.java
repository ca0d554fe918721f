package io.outboxkit.smt.outbox;

import io.outboxkit.smt.outbox.RouterConfig.ConfigName;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;

/**
 * The outbox table's columns, resolved once per table schema.
 *
 * @param schema the row schema that this was resolved from
 * @param schemaVersion null if no option names such a column
 * @param headers null if the table has no such column
 * @param placed those that become headers by themselves
 */
record Columns(
    Schema schema,
    Field id,
    Field key,
    Field aggregateType,
    Field eventType,
    Field schemaVersion,
    Field payload,
    Field timestamp,
    Field headers,
    List<Placed> placed) {

  /** A column and the name of its header. */
  record Placed(Field column, String header) {}

  /**
   * @throws DataException if the table lacks a column or has it with a type that cannot be used
   */
  static Columns of(Schema schema, RouterConfig config) {
    String headers = config.getString(ConfigName.HEADERS_FIELD);
    return new Columns(
        schema,
        required(schema, config, ConfigName.ID_FIELD),
        required(schema, config, ConfigName.KEY_FIELD),
        required(schema, config, ConfigName.ROUTE_BY_FIELD),
        required(schema, config, ConfigName.TYPE_FIELD),
        config.getString(ConfigName.SCHEMA_VERSION_FIELD) == null
            ? null
            : required(schema, config, ConfigName.SCHEMA_VERSION_FIELD),
        payload(required(schema, config, ConfigName.PAYLOAD_FIELD), config),
        required(schema, config, ConfigName.TIMESTAMP_FIELD),
        json(schema.field(headers), config),
        placed(schema, config));
  }

  /**
   * The column as text: strings as they are, whole numbers and booleans in plain notation. Not
   * numbers whose schema has a name: they stand for something else, such as a date.
   *
   * @return null for SQL NULL
   * @throws DataException if the column is of another type
   */
  static String text(Struct row, Field column) {
    Object value = value(row, column);
    if (value == null || value instanceof String) {
      return (String) value;
    }
    boolean whole =
        value instanceof Long
            || value instanceof Integer
            || value instanceof Short
            || value instanceof Byte;
    if (whole && column.schema().name() == null || value instanceof Boolean) {
      return value.toString();
    }
    throw new DataException(
        "Column "
            + column.name()
            + " is of type "
            + typeOf(column)
            + "; text, uuid, whole numbers and booleans can be used as key, id, type, schema"
            + " version, partition field or header.");
  }

  /** The column's value; null for SQL NULL, also where the column has a default. */
  static Object value(Struct row, Field column) {
    // get() turns NULL into the default; the other one looks the column up by its name again.
    return column.schema().defaultValue() == null
        ? row.get(column)
        : row.getWithoutDefault(column.name());
  }

  private static Field required(Schema schema, RouterConfig config, String option) {
    String name = config.getString(option);
    Field column = schema.field(name);
    if (column == null) {
      throw new DataException(
          "Table "
              + config.table()
              + " has no column "
              + name
              + "; set "
              + option
              + " to the column that holds it.");
    }
    return column;
  }

  private static List<Placed> placed(Schema schema, RouterConfig config) {
    List<Placed> placed = new ArrayList<>();
    for (Placements.Entry entry : config.placements().entries()) {
      Field column = schema.field(entry.column());
      if (column != null) {
        placed.add(new Placed(column, entry.header()));
      } else if (!config.placements().lenient()) {
        throw new DataException(
            "Table "
                + config.table()
                + " has no column "
                + entry.column()
                + ", which "
                + ConfigName.PLACEMENT
                + " names; set "
                + ConfigName.PLACEMENT_MISSING
                + "=ignore to do without.");
      }
    }
    return List.copyOf(placed);
  }

  private static Field payload(Field column, RouterConfig config) {
    if (!config.payloadIsBinary()) {
      return json(column, config);
    }
    if (column.schema().type() != Schema.Type.BYTES || column.schema().name() != null) {
      throw new DataException(
          "Column "
              + column.name()
              + " of table "
              + config.table()
              + " is of type "
              + typeOf(column)
              + "; for Avro it has to be bytea, with binary.handling.mode=bytes on the connector.");
    }
    return column;
  }

  private static Field json(Field column, RouterConfig config) {
    if (column != null && column.schema().type() != Schema.Type.STRING) {
      throw new DataException(
          "Column "
              + column.name()
              + " of table "
              + config.table()
              + " is of type "
              + typeOf(column)
              + "; it has to be jsonb, json or text.");
    }
    return column;
  }

  private static String typeOf(Field column) {
    String name = column.schema().name();
    return column.schema().type() + (name == null ? "" : " (" + name + ")");
  }
}
