package io.outboxkit.smt.avro;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;

/** Turns an Avro schema into the tree of writers for it. */
final class WriterCompiler {
  /** Avro ignores one of these where it does not belong; for us that would be another contract. */
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

  /** Records by full name: a record may hold itself. */
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
      case ENUM -> new EnumWriter(schema);
      case NULL -> ScalarWriters.nullWriter();
      case BOOLEAN -> ScalarWriters.booleanWriter();
      case FLOAT -> ScalarWriters.floatWriter();
      case DOUBLE -> ScalarWriters.doubleWriter();
      case INT -> intWriter(schema);
      case LONG -> longWriter(schema);
      case STRING -> isUuid(schema) ? UuidWriter.text() : ScalarWriters.stringWriter();
      case BYTES, FIXED -> binaryWriter(schema);
    };
  }

  private RecordWriter recordWriter(Schema schema) {
    RecordWriter known = records.get(schema.getFullName());
    if (known != null) {
      return known;
    }
    RecordWriter writer = new RecordWriter(schema, unknownFields);
    records.put(schema.getFullName(), writer);
    for (Schema.Field field : schema.getFields()) {
      writer.addField(field, compile(field.schema()));
    }
    return writer;
  }

  private ValueWriter unionWriter(Schema schema) {
    ValueWriter[] branches = new ValueWriter[schema.getTypes().size()];
    for (int i = 0; i < branches.length; i++) {
      branches[i] = compile(schema.getTypes().get(i));
    }
    return new UnionWriter(branches);
  }

  private static ValueWriter intWriter(Schema schema) {
    LogicalType type = schema.getLogicalType();
    if (type instanceof LogicalTypes.Date) {
      return TemporalWriters.date();
    }
    return type instanceof LogicalTypes.TimeMillis
        ? TemporalWriters.timeMillis()
        : ScalarWriters.intWriter();
  }

  private static ValueWriter longWriter(Schema schema) {
    LogicalType type = schema.getLogicalType();
    if (type instanceof LogicalTypes.TimeMicros) {
      return TemporalWriters.timeMicros();
    }
    if (type == null || !KNOWN_LOGICAL_TYPES.contains(type.getName())) {
      return ScalarWriters.longWriter();
    }
    return new TimestampWriter(type.getName());
  }

  private static ValueWriter binaryWriter(Schema schema) {
    LogicalType type = schema.getLogicalType();
    if (type instanceof LogicalTypes.Decimal) {
      return new DecimalWriter((LogicalTypes.Decimal) type, sizeOf(schema));
    }
    if (type instanceof LogicalTypes.BigDecimal) {
      return new BigDecimalWriter();
    }
    return isUuid(schema) ? UuidWriter.binary() : new BytesWriter(sizeOf(schema));
  }

  /** Bytes of a fixed type; -1 for bytes of any length. */
  private static int sizeOf(Schema schema) {
    return schema.getType() == Schema.Type.FIXED ? schema.getFixedSize() : -1;
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
    String why;
    try {
      LogicalTypes.fromSchema(schema);
      why = "";
    } catch (RuntimeException e) {
      why = ": " + e.getMessage();
    }
    throw new IllegalArgumentException(
        "logical type " + name + " is not valid on " + schema.getType().getName() + why);
  }
}
