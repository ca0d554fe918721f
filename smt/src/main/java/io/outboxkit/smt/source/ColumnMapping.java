package io.outboxkit.smt.source;

import com.fasterxml.jackson.core.JsonGenerator;
import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.HeaderPlacements;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RecordHeaders;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * Struct fields of the outbox table's columns. They are looked up once per row schema.
 *
 * @param schemaVersion column with the schema version, or null if the option is not set
 * @param headers column with additional headers, or null if the table lacks this column
 * @param placedColumns columns that are added as headers
 */
record ColumnMapping(
    Schema schema,
    Field id,
    Field key,
    Field aggregateType,
    Field eventType,
    Field schemaVersion,
    Field payload,
    Field timestamp,
    Field headers,
    List<PlacedColumn> placedColumns) {

  record PlacedColumn(Field column, String header) {}

  /** Throw DataException if a required column is missing or a column's type is not supported. */
  static ColumnMapping of(Schema schema, RouterConfig config) {
    Field payload = requiredColumn(schema, config, ConfigName.PAYLOAD_FIELD);
    Field headers = schema.field(config.getString(ConfigName.HEADERS_FIELD));
    if (!config.payloadIsBinary()) {
      requireText(payload, config);
    } else if (!describeType(payload).equals(Schema.Type.BYTES.name())) {
      throw wrongType(payload, config, "bytea, with binary.handling.mode=bytes on the connector");
    }
    if (headers != null) {
      requireText(headers, config);
    }
    Field timestamp = requiredColumn(schema, config, ConfigName.TIMESTAMP_FIELD);
    if (!EventTime.isTimestamp(timestamp.schema())) {
      throw wrongType(timestamp, config, "timestamptz, or timestamp in UTC");
    }
    return new ColumnMapping(
        schema,
        requiredColumn(schema, config, ConfigName.ID_FIELD),
        requiredColumn(schema, config, ConfigName.KEY_FIELD),
        requiredColumn(schema, config, ConfigName.ROUTE_BY_FIELD),
        requiredColumn(schema, config, ConfigName.TYPE_FIELD),
        config.getString(ConfigName.SCHEMA_VERSION_FIELD) == null
            ? null
            : requiredColumn(schema, config, ConfigName.SCHEMA_VERSION_FIELD),
        payload,
        timestamp,
        headers,
        placedColumns(schema, config));
  }

  /**
   * Return the value as text. Strings are unchanged, and integers are decimal. Booleans are true or
   * false. Integers with a schema name are rejected, because they represent a type such as date.
   *
   * @return null for SQL NULL
   * @throws DataException if the column has an unsupported type
   */
  static String text(Struct row, Field column) {
    Object value = value(row, column);
    if (value == null || value instanceof String) {
      return (String) value;
    }
    boolean isInteger =
        value instanceof Long
            || value instanceof Integer
            || value instanceof Short
            || value instanceof Byte;
    if (isInteger && column.schema().name() == null || value instanceof Boolean) {
      return value.toString();
    }
    throw new DataException(
        String.format(
            "Column %s has type %s; the columns for ids, types, schema version, partition field and"
                + " column headers must be text, uuid, integer or boolean",
            column.name(), describeType(column)));
  }

  /** Return the column's value, or null for SQL NULL even if the column has a default. */
  static Object value(Struct row, Field column) {
    // get() is faster, but would return the default of a column instead of null.
    return column.schema().defaultValue() == null
        ? row.get(column)
        : row.getWithoutDefault(column.name());
  }

  private static Field requiredColumn(Schema schema, RouterConfig config, String option) {
    String name = config.getString(option);
    Field column = schema.field(name);
    if (column == null) {
      throw new DataException(
          "Table %s has no column %s; correct the option %s"
              .formatted(config.table(), name, option));
    }
    return column;
  }

  private static List<PlacedColumn> placedColumns(Schema schema, RouterConfig config) {
    List<PlacedColumn> columns = new ArrayList<>();
    for (HeaderPlacements.Entry entry : config.placements().entries()) {
      Field column = schema.field(entry.column());
      if (column != null) {
        columns.add(new PlacedColumn(column, entry.header()));
      } else if (!config.placements().ignoresMissing()) {
        throw new DataException(
            "Table %s has no column %s; correct the option %s, or set %s=ignore"
                .formatted(
                    config.table(),
                    entry.column(),
                    ConfigName.PLACEMENT,
                    ConfigName.PLACEMENT_MISSING));
      }
    }
    return List.copyOf(columns);
  }

  private static void requireText(Field column, RouterConfig config) {
    if (column.schema().type() != Schema.Type.STRING) {
      throw wrongType(column, config, "jsonb, json or text");
    }
  }

  private static DataException wrongType(Field column, RouterConfig config, String required) {
    return new DataException(
        "Column %s of table %s has type %s; it must be %s"
            .formatted(column.name(), config.table(), describeType(column), required));
  }

  private static String describeType(Field column) {
    String name = column.schema().name();
    return column.schema().type() + (name == null ? "" : " (" + name + ")");
  }

  /** The columns of one row. */
  record TableColumns(Struct row, ColumnMapping mapping) implements OutboxRow.Columns {
    @Override
    public void requireValid() {}

    @Override
    public String partitionText(String column, String aggregateType) {
      Field field = row.schema().field(column);
      if (field == null) {
        throw new DataException(
            "The outbox table has no column %s; correct aggregate.%s.partition.field"
                .formatted(column, aggregateType));
      }
      return text(row, field);
    }

    @Override
    public void addColumnHeaders(ConnectHeaders headers) {
      // Iterate by index, because an iterator would be allocated for every record.
      for (int i = 0; i < mapping.placedColumns.size(); i++) {
        PlacedColumn placed = mapping.placedColumns.get(i);
        RecordHeaders.add(headers, placed.header(), text(row, placed.column()));
      }
    }

    @Override
    public boolean payloadIsJson() {
      return StructJsonWriter.isJson(mapping.payload.schema());
    }

    @Override
    public void writeFields(JsonGenerator json) throws IOException {
      StructJsonWriter.writeFields(json, row);
    }
  }
}
