package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.apache.kafka.connect.data.Struct;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * A payload that is parsed to a Struct and written by the Avro converter's code has the bytes that
 * JsonAvroEncoder writes, except for the order of maps.
 */
class ConverterAgreesTest {
  private static final int VERSION = 3;

  private static final AvroData CONVERTER =
      new AvroData(
          new AvroDataConfig(
              Map.of("enhanced.avro.schema.support", "true", "connect.meta.data", "true")));

  private static byte[] byConverter(Schema schema, String json) throws PayloadException {
    Struct struct = new JsonStructParser(schema, VERSION).parse(json);
    struct.validate();
    return Encoding.byAvro(schema, CONVERTER.fromConnectData(struct.schema(), struct));
  }

  static Stream<Arguments> types() {
    return Stream.of(
        arguments("{\"type\":\"int\",\"logicalType\":\"date\"}", "\"1965-08-01\""),
        arguments("{\"type\":\"int\",\"logicalType\":\"date\"}", "\"0001-01-01\""),
        arguments("{\"type\":\"int\",\"logicalType\":\"time-millis\"}", "\"23:59:59.999\""),
        arguments("{\"type\":\"long\",\"logicalType\":\"time-micros\"}", "\"23:59:59.999999\""),
        arguments(
            "{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}",
            "\"1965-08-01T00:00:00.001Z\""),
        arguments(
            "{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}",
            "\"2026-11-20T18:31:38.123456+00:00\""),
        arguments(
            "{\"type\":\"long\",\"logicalType\":\"timestamp-nanos\"}",
            "\"2026-11-20T18:31:38.123456789Z\""),
        arguments(
            "{\"type\":\"long\",\"logicalType\":\"local-timestamp-millis\"}",
            "\"2026-11-20T18:31:38.123\""),
        arguments(
            "{\"type\":\"long\",\"logicalType\":\"local-timestamp-micros\"}",
            "\"2026-11-20T18:31:38.123456\""),
        arguments(
            "{\"type\":\"string\",\"logicalType\":\"uuid\"}",
            "\"0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11\""),
        arguments(
            "{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":38,\"scale\":2}",
            "-123456789012345678901234567890123456.78"),
        arguments("{\"type\":\"enum\",\"name\":\"n.E\",\"symbols\":[\"A\",\"B\"]}", "\"B\""),
        arguments("{\"type\":\"array\",\"items\":[\"null\",\"string\"]}", "[null, \"a\"]"),
        arguments(
            "{\"type\":\"map\",\"values\":{\"type\":\"array\",\"items\":\"long\"}}",
            "{\"k\": [1]}"),
        arguments(
            "{\"type\":\"record\",\"name\":\"n.In\",\"fields\":[{\"name\":\"b\",\"type\":\"bytes\"}]}",
            "{\"b\": \"\\\\x0001ff\"}"));
  }

  @ParameterizedTest
  @MethodSource("types")
  void everyTypeIsWrittenEqually(String type, String json) throws Exception {
    Schema schema = field(type, "");
    String payload = "{\"f\": " + json + "}";
    assertArrayEquals(Encoding.encode(schema, payload), byConverter(schema, payload));
  }

  @ParameterizedTest
  @MethodSource("types")
  void everyNullableTypeIsWrittenEqually(String type, String json) throws Exception {
    for (String union : List.of("[\"null\"," + type + "]", "[" + type + ",\"null\"]")) {
      Schema schema = field(union, "");
      for (String value : List.of(json, "null")) {
        String payload = "{\"f\": " + value + "}";
        assertArrayEquals(Encoding.encode(schema, payload), byConverter(schema, payload));
      }
    }
  }

  /** A null in the payload must not become the field's default. */
  @Test
  void nullIsNotTheDefault() throws Exception {
    Schema schema = field("[\"string\",\"null\"]", ",\"default\":\"d\"");
    for (String payload : List.of("{\"f\": null}", "{}", "{\"f\": \"x\"}")) {
      assertArrayEquals(Encoding.encode(schema, payload), byConverter(schema, payload));
    }
  }

  @Test
  void schemaHasNameAndVersion() {
    var schema = new JsonStructParser(field("\"int\"", ""), VERSION).schema();
    assertEquals("n.R", schema.name());
    assertEquals(VERSION, schema.version());
    assertEquals(VERSION, CONVERTER.fromConnectSchema(schema).getObjectProp("connect.version"));
  }

  /** Each record refers to the next one twice, so that 40 levels have 2^40 paths. */
  @Test
  void sharedRecordsAreMappedOnce() throws Exception {
    String type = "\"int\"";
    for (int level = 40; level > 0; level--) {
      type =
          """
          {"type": "record", "name": "R%d", "fields": [
            {"name": "a", "type": ["null", %s], "default": null},
            {"name": "b", "type": ["null", "%s"], "default": null}]}
          """
              .formatted(level, type, level == 40 ? "int" : "R" + (level + 1));
    }
    Schema schema = Encoding.schema(type);
    Struct struct = new JsonStructParser(schema, VERSION).parse("{\"b\": {\"a\": {}}}");
    struct.validate();
    assertEquals("R3", struct.getStruct("b").getStruct("a").schema().name());
  }

  static Stream<Arguments> unsupported() {
    return Stream.of(
        arguments(
            "{\"type\":\"fixed\",\"name\":\"F\",\"size\":2}", "Connect has no type for fixed n.F"),
        arguments("\"null\"", "Connect has no type for null"),
        arguments(
            "[\"int\",\"string\"]",
            "Connect has no type for union, unless it has two branches: null and one other type"),
        arguments(
            "[\"int\"]",
            "Connect has no type for union, unless it has two branches: null and one other type"),
        arguments(
            "[\"null\",\"int\",\"string\"]",
            "Connect has no type for union, unless it has two branches: null and one other type"),
        arguments(
            "{\"type\":\"bytes\",\"logicalType\":\"big-decimal\"}",
            "Connect has no type for bytes with logical type big-decimal"),
        arguments("[\"null\",\"R\"]", "Connect has no type for record n.R, which is recursive"));
  }

  @ParameterizedTest
  @MethodSource("unsupported")
  void typesWithoutAConnectEquivalentAreRejected(String type, String message) {
    Schema schema = field(type, "");
    assertEquals(
        message,
        assertThrows(IllegalArgumentException.class, () -> new JsonStructParser(schema, 1))
            .getMessage());
  }

  @Test
  void payloadMustBeARecord() {
    Schema schema = Schema.create(Schema.Type.STRING);
    assertEquals(
        "the type of the schema must be record",
        assertThrows(IllegalArgumentException.class, () -> new JsonStructParser(schema, 1))
            .getMessage());
  }

  private static Schema field(String type, String more) {
    return new Schema.Parser()
        .parse(
            "{\"type\":\"record\",\"name\":\"R\",\"namespace\":\"n\",\"fields\":[{\"name\":\"f\",\"type\":"
                + type
                + more
                + "}]}");
  }
}
