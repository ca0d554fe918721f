package io.outboxkit.smt;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Builder of records between the transforms of a chain: value is a row, key and headers are set.
 */
final class Rows {
  private final Map<String, Object> row = new LinkedHashMap<>();
  private final Map<String, Schema> columns = new LinkedHashMap<>();
  private final ConnectHeaders headers = new ConnectHeaders();
  private Object key = "note-1";
  private Schema keySchema = Schema.STRING_SCHEMA;
  private boolean schemaless;

  private Rows() {
    column("payload", Schema.OPTIONAL_STRING_SCHEMA, "{\"text\": \"secret\"}");
    column("event_type", Schema.STRING_SCHEMA, "NoteWritten");
    header("aggregate_type", "note");
  }

  static Rows row() {
    return new Rows();
  }

  Rows column(String name, Schema schema, Object value) {
    columns.put(name, schema);
    row.put(name, value);
    return this;
  }

  Rows payload(String json) {
    return column("payload", Schema.OPTIONAL_STRING_SCHEMA, json);
  }

  Rows key(Schema schema, Object value) {
    keySchema = schema;
    key = value;
    return this;
  }

  Rows header(String name, Object value) {
    headers.add(name, value, null);
    return this;
  }

  Rows withoutHeaders() {
    headers.clear();
    return this;
  }

  Rows schemaless() {
    schemaless = true;
    return this;
  }

  SourceRecord record() {
    SchemaBuilder builder = SchemaBuilder.struct().name("library.public.outbox_event.Value");
    columns.forEach(builder::field);
    Schema schema = builder.build();
    Struct struct = new Struct(schema);
    row.forEach(struct::put);
    return record(schemaless ? null : schema, schemaless ? Map.copyOf(row) : struct);
  }

  /** Return the record with a null value. */
  SourceRecord tombstone() {
    return record(null, null);
  }

  private SourceRecord record(Schema schema, Object value) {
    return new SourceRecord(
        Map.of("server", "library"),
        Map.of("lsn", 1L),
        "library.note",
        null,
        keySchema,
        key,
        schema,
        value,
        7L,
        headers);
  }
}
