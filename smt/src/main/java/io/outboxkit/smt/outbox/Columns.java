package io.outboxkit.smt.outbox;

import io.outboxkit.smt.outbox.RouterConfig.ConfigName;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;

/**
 * The outbox table's columns, resolved once per table schema.
 *
 * @param schema the row schema that this was resolved from
 * @param headers null if the table has no such column
 */
record Columns(
    Schema schema,
    Field id,
    Field key,
    Field aggregateType,
    Field eventType,
    Field payload,
    Field timestamp,
    Field headers) {

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
        json(required(schema, config, ConfigName.PAYLOAD_FIELD), config),
        required(schema, config, ConfigName.TIMESTAMP_FIELD),
        json(schema.field(headers), config));
  }

  /**
   * The column as text: strings as they are, whole numbers and booleans in plain notation.
   *
   * @return null for SQL NULL
   * @throws DataException if the column is of another type
   */
  static String text(Struct row, Field column) {
    // Not get(): where the column has a default in the database, that would turn NULL into it.
    Object value = row.getWithoutDefault(column.name());
    if (value == null || value instanceof String) {
      return (String) value;
    }
    if (value instanceof Long
        || value instanceof Integer
        || value instanceof Short
        || value instanceof Byte
        || value instanceof Boolean) {
      return value.toString();
    }
    throw new DataException(
        "Column "
            + column.name()
            + " is of type "
            + typeOf(column)
            + "; text, uuid and whole"
            + " numbers can be used as key, id, type or partition field.");
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
