package io.outboxkit.smt.avro;

import io.outboxkit.smt.avro.CollectionWriters.ArrayWriter;
import io.outboxkit.smt.avro.CollectionWriters.MapWriter;
import io.outboxkit.smt.avro.JsonAvroEncoder.UnknownFields;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;

/** Compiles an Avro schema to a tree of writers. */
final class WriterCompiler {
  /** Avro ignores these on types for which they are not valid; the compiler rejects that. */
  private static final Set<String> KNOWN_LOGICAL_TYPES =
      Set.of(
          "decimal",
          "big-decimal",
          "uuid",
          "duration",
          "date",
          "time-millis",
          "time-micros",
          "timestamp-millis",
          "timestamp-micros",
          "timestamp-nanos",
          "local-timestamp-millis",
          "local-timestamp-micros",
          "local-timestamp-nanos");

  /** By full name: records can be recursive. */
  private final Map<String, RecordWriter> records = new HashMap<>();

  private final UnknownFields unknownFields;

  WriterCompiler(UnknownFields unknownFields) {
    this.unknownFields = unknownFields;
  }

  ValueWriter compile(Schema schema) {
    requireValidLogicalType(schema);
    return switch (schema.getType()) {
      case RECORD -> recordWriter(schema);
      case UNION -> unionWriter(schema);
      case ARRAY -> new ArrayWriter(compile(schema.getElementType()));
      case MAP -> new MapWriter(compile(schema.getValueType()));
      case ENUM -> new ScalarWriters.EnumWriter(schema);
      case NULL -> new ScalarWriters.NullWriter();
      case BOOLEAN -> new ScalarWriters.BooleanWriter();
      case FLOAT -> new NumberWriters.FloatWriter();
      case DOUBLE -> new NumberWriters.DoubleWriter();
      case INT -> intWriter(schema);
      case LONG -> longWriter(schema);
      case STRING ->
          isUuid(schema) ? new ScalarWriters.UuidWriter(false) : new ScalarWriters.StringWriter();
      case BYTES, FIXED -> binaryWriter(schema);
    };
  }

  private RecordWriter recordWriter(Schema schema) {
    RecordWriter compiled = records.get(schema.getFullName());
    if (compiled != null) {
      return compiled;
    }
    RecordWriter writer = new RecordWriter(schema, unknownFields);
    records.put(schema.getFullName(), writer);
    for (Schema.Field field : schema.getFields()) {
      writer.addField(field, compile(field.schema()));
    }
    return writer;
  }

  private ValueWriter unionWriter(Schema schema) {
    return new UnionWriter(
        schema.getTypes().stream().map(this::compile).toArray(ValueWriter[]::new));
  }

  private static ValueWriter intWriter(Schema schema) {
    LogicalType type = schema.getLogicalType();
    if (type instanceof LogicalTypes.Date) {
      return new TemporalWriters.DateWriter();
    }
    return type instanceof LogicalTypes.TimeMillis
        ? new TemporalWriters.TimeWriter(type.getName())
        : new NumberWriters.IntWriter();
  }

  private static ValueWriter longWriter(Schema schema) {
    LogicalType type = schema.getLogicalType();
    if (type instanceof LogicalTypes.TimeMicros) {
      return new TemporalWriters.TimeWriter(type.getName());
    }
    if (type == null || !KNOWN_LOGICAL_TYPES.contains(type.getName())) {
      return new NumberWriters.LongWriter();
    }
    return new TemporalWriters.TimestampWriter(type.getName());
  }

  private static ValueWriter binaryWriter(Schema schema) {
    LogicalType type = schema.getLogicalType();
    int fixedSize = schema.getType() == Schema.Type.FIXED ? schema.getFixedSize() : -1;
    if (type instanceof LogicalTypes.Decimal decimal) {
      return new NumberWriters.DecimalWriter(decimal, fixedSize);
    }
    if (type instanceof LogicalTypes.BigDecimal) {
      return new NumberWriters.BigDecimalWriter();
    }
    return isUuid(schema)
        ? new ScalarWriters.UuidWriter(true)
        : new ScalarWriters.BytesWriter(fixedSize);
  }

  private static boolean isUuid(Schema schema) {
    LogicalType type = schema.getLogicalType();
    return type != null && type.getName().equals("uuid");
  }

  private static void requireValidLogicalType(Schema schema) {
    String name = schema.getProp(LogicalType.LOGICAL_TYPE_PROP);
    if (name == null || !KNOWN_LOGICAL_TYPES.contains(name) || schema.getLogicalType() != null) {
      return;
    }
    String reason = "";
    try {
      LogicalTypes.fromSchema(schema);
    } catch (RuntimeException e) {
      reason = ": " + e.getMessage();
    }
    throw new IllegalArgumentException(
        "logical type " + name + " is not valid on " + schema.getType().getName() + reason);
  }
}
