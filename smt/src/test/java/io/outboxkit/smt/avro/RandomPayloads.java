package io.outboxkit.smt.avro;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;

/** Random schemas, and values of them both as Avro data and as JSON text. */
final class RandomPayloads {
  private static final int SCALE = 3;
  private static final int PRECISION = 25;
  private static final int FIXED_SIZE = 5;
  private static final String CHARACTERS = "ab\"\\/\n\t é€ß\u2028中{}[]:,0";

  /** A value twice. */
  record Pair(Object avro, String json) {}

  private final Random random;
  private int names;

  RandomPayloads(long seed) {
    this.random = new Random(seed);
  }

  Schema record(int depth) {
    List<Schema.Field> fields = new ArrayList<>();
    int count = random.nextInt(7);
    for (int i = 0; i < count; i++) {
      fields.add(new Schema.Field("f" + i, type(depth)));
    }
    return Schema.createRecord("R" + names++, null, null, false, fields);
  }

  private Schema type(int depth) {
    int kinds = depth == 0 ? 11 : 15;
    return switch (random.nextInt(kinds)) {
      case 0 -> Schema.create(Schema.Type.BOOLEAN);
      case 1 -> Schema.create(Schema.Type.INT);
      case 2 -> Schema.create(Schema.Type.LONG);
      case 3 -> Schema.create(Schema.Type.FLOAT);
      case 4 -> Schema.create(Schema.Type.DOUBLE);
      case 5, 6 -> Schema.create(Schema.Type.STRING);
      case 7 -> Schema.create(Schema.Type.BYTES);
      case 8 -> Schema.createFixed("F" + names++, null, null, FIXED_SIZE);
      case 9 -> Schema.createEnum("E" + names++, null, null, List.of("A", "B", "C"));
      case 10 ->
          LogicalTypes.decimal(PRECISION, SCALE).addToSchema(Schema.create(Schema.Type.BYTES));
      case 11 -> Schema.createArray(type(depth - 1));
      case 12 -> Schema.createMap(type(depth - 1));
      case 13 -> nullable(type(depth - 1));
      default -> record(depth - 1);
    };
  }

  private static Schema nullable(Schema type) {
    return type.getType() == Schema.Type.UNION
        ? type
        : Schema.createUnion(Schema.create(Schema.Type.NULL), type);
  }

  Pair value(Schema schema) {
    return switch (schema.getType()) {
      case BOOLEAN -> same(random.nextBoolean());
      case INT -> same(random.nextInt() >> random.nextInt(32));
      case LONG -> same(random.nextLong() >> random.nextInt(64));
      case FLOAT -> same(random.nextFloat() * random.nextInt(1000));
      case DOUBLE -> same(random.nextGaussian() * 1e6);
      case STRING -> string();
      case BYTES -> schema.getLogicalType() == null ? bytes() : decimal();
      case FIXED -> fixed(schema);
      case ENUM -> symbol(schema);
      case ARRAY -> array(schema);
      case MAP -> map(schema);
      case UNION -> random.nextBoolean() ? new Pair(null, "null") : value(schema.getTypes().get(1));
      case RECORD -> recordValue(schema);
      default -> throw new AssertionError(schema);
    };
  }

  private static Pair same(Object value) {
    return new Pair(value, value.toString());
  }

  private Pair string() {
    StringBuilder text = new StringBuilder();
    int length = random.nextInt(4) == 0 ? random.nextInt(300) : random.nextInt(12);
    for (int i = 0; i < length; i++) {
      text.append(CHARACTERS.charAt(random.nextInt(CHARACTERS.length())));
    }
    return new Pair(text.toString(), quoted(text.toString()));
  }

  private Pair bytes() {
    byte[] bytes = new byte[random.nextInt(20)];
    random.nextBytes(bytes);
    String base64 = Base64.getEncoder().encodeToString(bytes);
    return new Pair(ByteBuffer.wrap(bytes), quoted(base64));
  }

  private Pair decimal() {
    BigInteger unscaled = new BigInteger(random.nextInt(80), random);
    BigDecimal value = new BigDecimal(random.nextBoolean() ? unscaled : unscaled.negate(), SCALE);
    ByteBuffer bytes = ByteBuffer.wrap(value.unscaledValue().toByteArray());
    String text = random.nextBoolean() ? value.toPlainString() : value.toString();
    return new Pair(bytes, random.nextBoolean() ? text : quoted(text));
  }

  private Pair fixed(Schema schema) {
    byte[] bytes = new byte[FIXED_SIZE];
    random.nextBytes(bytes);
    String hex = java.util.HexFormat.of().formatHex(bytes);
    return new Pair(new GenericData.Fixed(schema, bytes), quoted("\\x" + hex));
  }

  private Pair symbol(Schema schema) {
    String symbol = schema.getEnumSymbols().get(random.nextInt(3));
    return new Pair(new GenericData.EnumSymbol(schema, symbol), quoted(symbol));
  }

  private Pair array(Schema schema) {
    List<Object> items = new ArrayList<>();
    List<String> json = new ArrayList<>();
    int count = random.nextInt(20) == 0 ? 100 : random.nextInt(5);
    for (int i = 0; i < count; i++) {
      Pair item = value(schema.getElementType());
      items.add(item.avro());
      json.add(item.json());
    }
    return new Pair(items, "[" + String.join(", ", json) + "]");
  }

  private Pair map(Schema schema) {
    Map<String, Object> entries = new LinkedHashMap<>();
    List<String> json = new ArrayList<>();
    int count = random.nextInt(4);
    for (int i = 0; i < count; i++) {
      String key = "k" + i + "é";
      Pair item = value(schema.getValueType());
      entries.put(key, item.avro());
      json.add(quoted(key) + ": " + item.json());
    }
    return new Pair(entries, "{" + String.join(", ", json) + "}");
  }

  private Pair recordValue(Schema schema) {
    GenericData.Record record = new GenericData.Record(schema);
    List<String> json = new ArrayList<>();
    for (Schema.Field field : schema.getFields()) {
      Pair value = value(field.schema());
      record.put(field.pos(), value.avro());
      json.add(quoted(field.name()) + ": " + value.json());
    }
    if (random.nextInt(4) > 0) {
      Collections.shuffle(json, random);
    }
    return new Pair(record, "{" + String.join(", ", json) + "}");
  }

  private static String quoted(String text) {
    return text.chars()
        .mapToObj(
            c -> c < 0x20 || c == '"' || c == '\\' ? String.format("\\u%04x", c) : "" + (char) c)
        .collect(Collectors.joining("", "\"", "\""));
  }
}
