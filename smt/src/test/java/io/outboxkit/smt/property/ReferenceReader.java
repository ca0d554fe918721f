package io.outboxkit.smt.property;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;

/**
 * Reference implementation that reads JSON with Avro's JsonDecoder. The JSON is first converted to
 * Avro's JSON, which has tags on unions and one character per byte, by the table in
 * docs/smt-payloads.md and with the JDK's parsers.
 */
final class ReferenceReader {
  private static final JsonFactory JSON = new JsonFactory();

  /** Thrown if the text is not JSON or does not fit the schema. */
  static final class Rejected extends RuntimeException {
    private static final long serialVersionUID = 1;

    Rejected(String reason) {
      super(reason);
    }
  }

  /** The text of a number, because its conversion to double or BigDecimal could lose digits. */
  private record Number(String text) {}

  private ReferenceReader() {}

  /**
   * @throws Rejected if the JSON does not fit
   */
  static Object read(Schema schema, String json) throws IOException {
    StringBuilder avroJson = new StringBuilder();
    write(schema, parse(json), avroJson);
    return new GenericDatumReader<>(schema)
        .read(null, DecoderFactory.get().jsonDecoder(schema, avroJson.toString()));
  }

  private static Object parse(String json) {
    try (JsonParser parser = JSON.createParser(json)) {
      Object value = parse(parser, parser.nextToken());
      if (parser.nextToken() != null) {
        throw new Rejected("text after the value");
      }
      return value;
    } catch (IOException e) {
      throw new Rejected("not JSON");
    }
  }

  private static Object parse(JsonParser parser, JsonToken token) throws IOException {
    if (token == null) {
      throw new Rejected("not JSON");
    }
    return switch (token) {
      case START_OBJECT -> {
        Map<String, Object> members = new LinkedHashMap<>();
        while (parser.nextToken() != JsonToken.END_OBJECT) {
          String name = parser.currentName();
          if (members.containsKey(name)) {
            throw new Rejected("duplicate " + name);
          }
          members.put(name, parse(parser, parser.nextToken()));
        }
        yield members;
      }
      case START_ARRAY -> {
        List<Object> items = new ArrayList<>();
        for (JsonToken t = parser.nextToken(); t != JsonToken.END_ARRAY; t = parser.nextToken()) {
          items.add(parse(parser, t));
        }
        yield items;
      }
      case VALUE_NUMBER_INT, VALUE_NUMBER_FLOAT -> new Number(parser.getText());
      case VALUE_STRING -> parser.getText();
      case VALUE_TRUE -> true;
      case VALUE_FALSE -> false;
      case VALUE_NULL -> null;
      default -> throw new Rejected("not JSON");
    };
  }

  private static void write(Schema schema, Object value, StringBuilder out) {
    switch (schema.getType()) {
      case NULL -> out.append(require(value == null, "null"));
      case BOOLEAN -> out.append(require(value instanceof Boolean, value));
      case INT, LONG -> out.append(integer(schema, value));
      case FLOAT -> out.append(finite(value, Float.parseFloat(number(value))));
      case DOUBLE -> out.append(finite(value, Double.parseDouble(number(value))));
      case STRING -> out.append(Payloads.quote(string(schema, value)));
      case ENUM -> {
        require(schema.getEnumSymbols().contains(value), value);
        out.append(Payloads.quote((String) value));
      }
      case BYTES, FIXED -> out.append(Payloads.quote(binary(schema, value)));
      case ARRAY -> {
        List<String> items = new ArrayList<>();
        require(value instanceof List, value);
        ((List<?>) value).forEach(item -> items.add(written(schema.getElementType(), item)));
        out.append(items);
      }
      case MAP -> {
        List<String> members = new ArrayList<>();
        object(value)
            .forEach(
                (k, v) ->
                    members.add(member(requireEncodable(k), written(schema.getValueType(), v))));
        out.append('{').append(String.join(",", members)).append('}');
      }
      case UNION -> union(schema, value, out);
      case RECORD -> record(schema, object(value), out);
    }
  }

  private static String written(Schema schema, Object value) {
    StringBuilder out = new StringBuilder();
    write(schema, value, out);
    return out.toString();
  }

  private static String member(String name, String value) {
    return Payloads.quote(name) + ":" + value;
  }

  /** Write the first branch that accepts the value. */
  private static void union(Schema schema, Object value, StringBuilder out) {
    for (Schema branch : schema.getTypes()) {
      try {
        String json = written(branch, value);
        out.append(
            branch.getType() == Schema.Type.NULL
                ? json
                : "{" + member(branch.getFullName(), json) + "}");
        return;
      } catch (Rejected e) {
        // Try the next branch.
      }
    }
    throw new Rejected("no branch");
  }

  private static void record(Schema schema, Map<String, Object> members, StringBuilder out) {
    List<String> fields = new ArrayList<>();
    for (Schema.Field field : schema.getFields()) {
      boolean present = members.containsKey(field.name());
      require(present || field.hasDefaultValue(), field.name());
      fields.add(
          member(
              field.name(),
              present ? written(field.schema(), members.get(field.name())) : defaultOf(field)));
    }
    members.keySet().forEach(name -> require(schema.getField(name) != null, name));
    out.append('{').append(String.join(",", fields)).append('}');
  }

  private static String defaultOf(Schema.Field field) {
    ByteArrayOutputStream json = new ByteArrayOutputStream();
    try {
      JsonEncoder encoder = EncoderFactory.get().jsonEncoder(field.schema(), json);
      new GenericDatumWriter<>(field.schema())
          .write(GenericData.get().getDefaultValue(field), encoder);
      encoder.flush();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    return json.toString(StandardCharsets.UTF_8);
  }

  private static BigInteger integer(Schema schema, Object value) {
    BigInteger integer;
    if (schema.getLogicalType() != null && value instanceof String text) {
      integer = Instants.read(schema.getLogicalType().getName(), text);
    } else {
      try {
        integer = new BigDecimal(number(value)).toBigIntegerExact();
      } catch (ArithmeticException e) {
        throw new Rejected("not an integer");
      }
    }
    int bits = schema.getType() == Schema.Type.INT ? 31 : 63;
    require(integer.bitLength() <= bits, integer);
    if (schema.getLogicalType() != null) {
      Instants.requireInRange(schema.getLogicalType().getName(), integer);
    }
    return integer;
  }

  private static String number(Object value) {
    require(value instanceof Number, value);
    return ((Number) value).text();
  }

  private static String finite(Object value, double read) {
    require(Double.isFinite(read), value);
    return number(value);
  }

  private static String string(Schema schema, Object value) {
    require(value instanceof String, value);
    String text = requireEncodable((String) value);
    require(schema.getLogicalType() == null || Binaries.isUuid(text), value);
    return text;
  }

  /** Return the text; reject it if UTF-8 cannot encode it. */
  private static String requireEncodable(String text) {
    require(StandardCharsets.UTF_8.newEncoder().canEncode(text), "an unpaired surrogate");
    return text;
  }

  private static String binary(Schema schema, Object value) {
    boolean number = value instanceof Number;
    require(number || value instanceof String, value);
    String text = number ? ((Number) value).text() : (String) value;
    return new String(Binaries.read(schema, text, number), StandardCharsets.ISO_8859_1);
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> object(Object value) {
    require(value instanceof Map, value);
    return (Map<String, Object>) value;
  }

  static <T> T require(boolean condition, T value) {
    if (!condition) {
      throw new Rejected(String.valueOf(value));
    }
    return value;
  }
}
