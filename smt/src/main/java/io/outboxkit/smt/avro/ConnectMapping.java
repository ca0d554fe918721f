package io.outboxkit.smt.avro;

import io.outboxkit.smt.util.Bytes;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
 * Maps an Avro schema and its values to Connect. Enums and decimal precisions become schema
 * parameters, as in AvroData of the Confluent and Apicurio converters. Micro- and nanosecond types
 * become INT64 with Debezium's schema names.
 */
final class ConnectMapping {
  /** Parameter of AvroData with the enum's name, and prefix of one parameter per symbol. */
  private static final String ENUM_PARAMETER = "io.confluent.connect.avro.Enum";

  private static final String DECIMAL_PRECISION = "connect.decimal.precision";
  private static final long MILLIS_PER_DAY = Duration.ofDays(1).toMillis();

  private final Function<Object, Object> converter;

  private final org.apache.kafka.connect.data.Schema schema;

  private ConnectMapping(SchemaBuilder schema, Function<Object, Object> converter) {
    this.schema = schema.build();
    this.converter = converter;
  }

  /**
   * @param version version of the Connect schema
   * @throws IllegalArgumentException if a type has no Connect equivalent
   */
  static ConnectMapping of(Schema record, int version) {
    return compile(record, false, version, new HashSet<>());
  }

  org.apache.kafka.connect.data.Schema schema() {
    return schema;
  }

  Object toConnect(Object value) {
    return value == null ? null : converter.apply(value);
  }

  private static ConnectMapping compile(
      Schema avro, boolean optional, Integer version, Set<String> open) {
    return switch (avro.getType()) {
      case RECORD -> record(avro, optional, version, open);
      case UNION -> union(avro, open);
      case ARRAY -> array(compile(avro.getElementType(), false, null, open), optional);
      case MAP -> map(compile(avro.getValueType(), false, null, open), optional);
      case ENUM -> enumeration(avro, optional);
      case BOOLEAN -> plain(SchemaBuilder.bool(), optional);
      case FLOAT -> plain(SchemaBuilder.float32(), optional);
      case DOUBLE -> plain(SchemaBuilder.float64(), optional);
      case STRING ->
          new ConnectMapping(optional(SchemaBuilder.string(), optional), Object::toString);
      case INT -> integer(avro, optional);
      case LONG -> longInteger(avro, optional);
      case BYTES -> bytes(avro, optional);
      case FIXED, NULL -> throw unsupported(avro, "");
    };
  }

  private static ConnectMapping record(
      Schema avro, boolean optional, Integer version, Set<String> open) {
    if (!open.add(avro.getFullName())) {
      throw unsupported(avro, ", which is recursive");
    }
    SchemaBuilder builder = optional(SchemaBuilder.struct(), optional).name(avro.getFullName());
    if (version != null) {
      builder.version(version);
    }
    List<ConnectMapping> fields = new ArrayList<>();
    for (Schema.Field field : avro.getFields()) {
      // Without the default: Struct.get would return it in place of null.
      ConnectMapping mapping = compile(field.schema(), false, null, open);
      builder.field(field.name(), mapping.schema());
      fields.add(mapping);
    }
    open.remove(avro.getFullName());
    org.apache.kafka.connect.data.Schema schema = builder.build();
    return new ConnectMapping(builder, value -> struct(schema, fields, (GenericRecord) value));
  }

  private static Struct struct(
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

  private static ConnectMapping union(Schema avro, Set<String> open) {
    List<Schema> branches = avro.getTypes();
    if (branches.size() != 2 || !avro.isNullable()) {
      throw unsupported(avro, " other than of null and one type");
    }
    Schema type = branches.get(branches.get(0).getType() == Schema.Type.NULL ? 1 : 0);
    return compile(type, true, null, open);
  }

  private static ConnectMapping array(ConnectMapping items, boolean optional) {
    return new ConnectMapping(
        optional(SchemaBuilder.array(items.schema()), optional),
        value -> {
          List<Object> list = new ArrayList<>();
          ((Iterable<?>) value).forEach(item -> list.add(items.toConnect(item)));
          return list;
        });
  }

  private static ConnectMapping map(ConnectMapping items, boolean optional) {
    return new ConnectMapping(
        optional(
            SchemaBuilder.map(org.apache.kafka.connect.data.Schema.STRING_SCHEMA, items.schema()),
            optional),
        value -> {
          Map<String, Object> map = new LinkedHashMap<>();
          ((Map<?, ?>) value)
              .forEach((key, item) -> map.put(key.toString(), items.toConnect(item)));
          return map;
        });
  }

  private static ConnectMapping enumeration(Schema avro, boolean optional) {
    SchemaBuilder builder = optional(SchemaBuilder.string(), optional);
    builder.parameter(ENUM_PARAMETER, avro.getFullName());
    for (String symbol : avro.getEnumSymbols()) {
      builder.parameter(ENUM_PARAMETER + "." + symbol, symbol);
    }
    return new ConnectMapping(builder, Object::toString);
  }

  private static ConnectMapping integer(Schema avro, boolean optional) {
    LogicalType type = avro.getLogicalType();
    if (type instanceof LogicalTypes.Date) {
      return new ConnectMapping(
          optional(org.apache.kafka.connect.data.Date.builder(), optional),
          days -> new Date((Integer) days * MILLIS_PER_DAY));
    }
    if (type instanceof LogicalTypes.TimeMillis) {
      return new ConnectMapping(
          optional(Time.builder(), optional), millis -> new Date((Integer) millis));
    }
    return plain(SchemaBuilder.int32(), optional);
  }

  private static ConnectMapping longInteger(Schema avro, boolean optional) {
    LogicalType type = avro.getLogicalType();
    if (type instanceof LogicalTypes.TimestampMillis) {
      return new ConnectMapping(
          optional(Timestamp.builder(), optional), millis -> new Date((Long) millis));
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
    return plain(name == null ? builder : builder.name(name).version(1), optional);
  }

  private static ConnectMapping bytes(Schema avro, boolean optional) {
    LogicalType type = avro.getLogicalType();
    if (type instanceof LogicalTypes.BigDecimal) {
      throw unsupported(avro, " as big-decimal");
    }
    if (type instanceof LogicalTypes.Decimal decimal) {
      SchemaBuilder builder = optional(Decimal.builder(decimal.getScale()), optional);
      builder.parameter(DECIMAL_PRECISION, Integer.toString(decimal.getPrecision()));
      return new ConnectMapping(
          builder, value -> new BigDecimal(new BigInteger(Bytes.of(value)), decimal.getScale()));
    }
    return new ConnectMapping(optional(SchemaBuilder.bytes(), optional), Bytes::of);
  }

  private static ConnectMapping plain(SchemaBuilder builder, boolean optional) {
    return new ConnectMapping(optional(builder, optional), Function.identity());
  }

  private static SchemaBuilder optional(SchemaBuilder builder, boolean optional) {
    return optional ? builder.optional() : builder;
  }

  private static IllegalArgumentException unsupported(Schema avro, String suffix) {
    String name =
        avro.getType() == Schema.Type.RECORD || avro.getType() == Schema.Type.FIXED
            ? " " + avro.getFullName()
            : "";
    return new IllegalArgumentException(
        "Connect has no type for " + avro.getType().getName() + name + suffix);
  }
}
