package io.outboxkit.smt.avro;

import io.outboxkit.smt.util.Bytes;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;

/**
 * Maps an Avro schema and its values to Connect. Enum names, enum symbols and decimal precisions
 * become schema parameters, as in AvroData of the Confluent and Apicurio converters. Types with
 * micro- or nanoseconds, and local-timestamp-millis, become INT64 with Debezium's schema names.
 */
record ConnectMapping(org.apache.kafka.connect.data.Schema schema, Converter converter) {
  /** AvroData's parameter for an enum's name, and the prefix of its parameters for symbols. */
  private static final String ENUM_PARAMETER = "io.confluent.connect.avro.Enum";

  private static final String PRECISION_PARAMETER = "connect.decimal.precision";
  private static final long MILLIS_PER_DAY = Duration.ofDays(1).toMillis();

  /** Converts a value that is not null to a value of the Connect schema. */
  interface Converter {
    Object convert(org.apache.kafka.connect.data.Schema schema, Object value);
  }

  /** Throw IllegalArgumentException if a type has no Connect equivalent. */
  static ConnectMapping of(Schema recordSchema, int version) {
    Draft draft = compile(recordSchema, new HashMap<>());
    draft.builder().version(version);
    return draft.build();
  }

  Object toConnect(Object value) {
    return value == null ? null : converter.convert(schema, value);
  }

  /** A mapping whose schema is not built yet, because a union can still make it optional. */
  private record Draft(SchemaBuilder builder, Converter converter) {
    static Draft of(SchemaBuilder builder, Function<Object, Object> converter) {
      return new Draft(builder, (schema, value) -> converter.apply(value));
    }

    ConnectMapping build() {
      return new ConnectMapping(builder.build(), converter);
    }
  }

  /**
   * @param records fields of each compiled record by full name; null while a record is compiled
   */
  private static Draft compile(Schema avro, Map<String, List<ConnectMapping>> records) {
    return switch (avro.getType()) {
      case RECORD -> recordDraft(avro, records);
      case UNION -> unionDraft(avro, records);
      case ARRAY -> arrayDraft(compile(avro.getElementType(), records).build());
      case MAP -> mapDraft(compile(avro.getValueType(), records).build());
      case ENUM -> enumDraft(avro);
      case BOOLEAN -> Draft.of(SchemaBuilder.bool(), Function.identity());
      case FLOAT -> Draft.of(SchemaBuilder.float32(), Function.identity());
      case DOUBLE -> Draft.of(SchemaBuilder.float64(), Function.identity());
      case STRING -> Draft.of(SchemaBuilder.string(), Object::toString);
      case INT -> intDraft(avro.getLogicalType());
      case LONG -> longDraft(avro.getLogicalType());
      case BYTES -> bytesDraft(avro);
      case FIXED, NULL -> throw unsupportedType(avro, "");
    };
  }

  private static Draft recordDraft(Schema avro, Map<String, List<ConnectMapping>> records) {
    List<ConnectMapping> fields = compileFields(avro, records);
    SchemaBuilder builder = SchemaBuilder.struct().name(avro.getFullName());
    for (Schema.Field field : avro.getFields()) {
      // The Connect field has no default, because Struct.get would return it instead of null.
      builder.field(field.name(), fields.get(field.pos()).schema());
    }
    return new Draft(builder, (schema, value) -> toStruct(schema, fields, (GenericRecord) value));
  }

  /** Compile each record only once, because the references to it can multiply at each level. */
  private static List<ConnectMapping> compileFields(
      Schema avro, Map<String, List<ConnectMapping>> records) {
    String name = avro.getFullName();
    if (!records.containsKey(name)) {
      records.put(name, null);
      records.put(
          name, avro.getFields().stream().map(f -> compile(f.schema(), records).build()).toList());
    } else if (records.get(name) == null) {
      throw unsupportedType(avro, ", which is recursive");
    }
    return records.get(name);
  }

  private static Struct toStruct(
      org.apache.kafka.connect.data.Schema schema,
      List<ConnectMapping> fields,
      GenericRecord value) {
    Struct struct = new Struct(schema);
    for (Field field : schema.fields()) {
      int index = field.index();
      struct.put(field, fields.get(index).toConnect(value.get(index)));
    }
    return struct;
  }

  private static Draft unionDraft(Schema avro, Map<String, List<ConnectMapping>> records) {
    List<Schema> branches = avro.getTypes();
    if (branches.size() != 2 || !avro.isNullable()) {
      throw unsupportedType(avro, ", unless it has two branches: null and one other type");
    }
    int valueBranch = branches.get(0).getType() == Schema.Type.NULL ? 1 : 0;
    Draft draft = compile(branches.get(valueBranch), records);
    draft.builder().optional();
    return draft;
  }

  private static Draft arrayDraft(ConnectMapping items) {
    return Draft.of(
        SchemaBuilder.array(items.schema()),
        value -> {
          List<Object> list = new ArrayList<>();
          ((Iterable<?>) value).forEach(item -> list.add(items.toConnect(item)));
          return list;
        });
  }

  private static Draft mapDraft(ConnectMapping items) {
    return Draft.of(
        SchemaBuilder.map(org.apache.kafka.connect.data.Schema.STRING_SCHEMA, items.schema()),
        value -> {
          Map<String, Object> map = new LinkedHashMap<>();
          ((Map<?, ?>) value)
              .forEach((key, item) -> map.put(key.toString(), items.toConnect(item)));
          return map;
        });
  }

  private static Draft enumDraft(Schema avro) {
    SchemaBuilder builder = SchemaBuilder.string().parameter(ENUM_PARAMETER, avro.getFullName());
    for (String symbol : avro.getEnumSymbols()) {
      builder.parameter(ENUM_PARAMETER + "." + symbol, symbol);
    }
    return Draft.of(builder, Object::toString);
  }

  private static Draft intDraft(LogicalType type) {
    if (type instanceof LogicalTypes.Date) {
      return Draft.of(
          org.apache.kafka.connect.data.Date.builder(),
          days -> new Date((Integer) days * MILLIS_PER_DAY));
    }
    if (type instanceof LogicalTypes.TimeMillis) {
      return Draft.of(Time.builder(), millis -> new Date((Integer) millis));
    }
    return Draft.of(SchemaBuilder.int32(), Function.identity());
  }

  private static Draft longDraft(LogicalType type) {
    if (type instanceof LogicalTypes.TimestampMillis) {
      return Draft.of(Timestamp.builder(), millis -> new Date((Long) millis));
    }
    String name =
        switch (type == null ? "" : type.getName()) {
          case "time-micros" -> "io.debezium.time.MicroTime";
          case "timestamp-micros", "local-timestamp-micros" -> "io.debezium.time.MicroTimestamp";
          case "timestamp-nanos", "local-timestamp-nanos" -> "io.debezium.time.NanoTimestamp";
          case "local-timestamp-millis" -> "io.debezium.time.Timestamp";
          default -> null;
        };
    SchemaBuilder builder = SchemaBuilder.int64();
    return Draft.of(name == null ? builder : builder.name(name).version(1), Function.identity());
  }

  private static Draft bytesDraft(Schema avro) {
    LogicalType type = avro.getLogicalType();
    if (type instanceof LogicalTypes.BigDecimal) {
      throw unsupportedType(avro, " with logical type big-decimal");
    }
    if (type instanceof LogicalTypes.Decimal decimal) {
      int scale = decimal.getScale();
      return Draft.of(
          Decimal.builder(scale)
              .parameter(PRECISION_PARAMETER, Integer.toString(decimal.getPrecision())),
          value -> new BigDecimal(new BigInteger(Bytes.of(value)), scale));
    }
    return Draft.of(SchemaBuilder.bytes(), Bytes::of);
  }

  private static IllegalArgumentException unsupportedType(Schema avro, String suffix) {
    String name =
        avro.getType() == Schema.Type.RECORD || avro.getType() == Schema.Type.FIXED
            ? " " + avro.getFullName()
            : "";
    return new IllegalArgumentException(
        "Connect has no type for " + avro.getType().getName() + name + suffix);
  }
}
