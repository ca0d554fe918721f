package io.outboxkit.smt.source;

import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;

/**
 * Fields of a Debezium change event, resolved once per envelope schema (Debezium 3.7:
 * io.debezium.data.Envelope, io.debezium.connector.AbstractSourceInfoStructMaker and
 * PostgresSourceInfoStructMaker).
 */
record EnvelopeFields(
    Schema schema,
    Field operation,
    Field after,
    Field source,
    Field sourceSchema,
    Field sourceTable,
    Field lsn,
    Field sequence,
    Field micros,
    Field millis,
    Field transaction,
    Field message) {

  /** Return null if the schema is not that of a change event. */
  static EnvelopeFields of(Schema schema) {
    Field operation = schema.field("op");
    Field source = schema.field("source");
    if (operation == null || source == null || source.schema().type() != Schema.Type.STRUCT) {
      return null;
    }
    Schema info = source.schema();
    return new EnvelopeFields(
        schema,
        operation,
        schema.field("after"),
        source,
        info.field("schema"),
        info.field("table"),
        info.field("lsn"),
        info.field("sequence"),
        info.field("ts_us"),
        info.field("ts_ms"),
        info.field("txId"),
        schema.field("message"));
  }

  /** Return the field's value; null if the schema has no such field. */
  static Object get(Struct struct, Field field) {
    return field == null ? null : struct.get(field);
  }
}
