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

/** Compiles an Avro schema into a tree of writers. */
final class WriterCompiler {
  /** Logical types that are rejected, not ignored, on Avro types for which they are not valid. */
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

  /** Record writers by full name of the record. A recursive record refers to its own writer. */
  private final Map<String, RecordWriter> recordWriters = new HashMap<>();

  private final UnknownFields unknownFields;

  WriterCompiler(UnknownFields unknownFields) {
    this.unknownFields = unknownFields;
  }

  ValueWriter compile(Schema schema) {
    requireValidLogicalType(schema);
    LogicalType type = schema.getLogicalType();
    String logicalType = type == null ? "" : type.getName();
    return switch (schema.getType()) {
      case RECORD -> recordWriter(schema);
      case UNION -> new UnionWriter(schema.getTypes().stream().map(this::compile).toList());
      case ARRAY -> new ArrayWriter(compile(schema.getElementType()));
      case MAP -> new MapWriter(compile(schema.getValueType()));
      case ENUM -> new ScalarWriters.EnumWriter(schema);
      case NULL -> new ScalarWriters.NullWriter();
      case BOOLEAN -> new ScalarWriters.BooleanWriter();
      case FLOAT -> new NumberWriters.FloatWriter();
      case DOUBLE -> new NumberWriters.DoubleWriter();
      case INT -> intWriter(logicalType);
      case LONG -> longWriter(logicalType);
      case STRING ->
          logicalType.equals("uuid")
              ? new ScalarWriters.UuidWriter(false)
              : new ScalarWriters.StringWriter();
      case BYTES, FIXED -> binaryWriter(schema, logicalType);
    };
  }

  private RecordWriter recordWriter(Schema schema) {
    RecordWriter compiled = recordWriters.get(schema.getFullName());
    if (compiled != null) {
      return compiled;
    }
    RecordWriter writer = new RecordWriter(schema, unknownFields);
    recordWriters.put(schema.getFullName(), writer);
    for (Schema.Field field : schema.getFields()) {
      writer.addField(field, compile(field.schema()));
    }
    return writer;
  }

  private static ValueWriter intWriter(String logicalType) {
    return switch (logicalType) {
      case "date" -> new TemporalWriters.DateWriter();
      case "time-millis" -> new TemporalWriters.TimeWriter(logicalType);
      default -> new NumberWriters.IntWriter();
    };
  }

  private static ValueWriter longWriter(String logicalType) {
    if (logicalType.equals("time-micros")) {
      return new TemporalWriters.TimeWriter(logicalType);
    }
    return logicalType.contains("timestamp-") && KNOWN_LOGICAL_TYPES.contains(logicalType)
        ? new TemporalWriters.TimestampWriter(logicalType)
        : new NumberWriters.LongWriter();
  }

  private static ValueWriter binaryWriter(Schema schema, String logicalType) {
    int fixedSize = schema.getType() == Schema.Type.FIXED ? schema.getFixedSize() : -1;
    return switch (logicalType) {
      case "decimal" ->
          new NumberWriters.DecimalWriter(
              (LogicalTypes.Decimal) schema.getLogicalType(), fixedSize);
      case "big-decimal" -> new NumberWriters.BigDecimalWriter();
      case "uuid" -> new ScalarWriters.UuidWriter(true);
      default -> new ScalarWriters.BytesWriter(fixedSize);
    };
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
