package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Fields that are missing in the payload have the schema's default, for every type. */
class DefaultsTest {

  static Stream<Arguments> defaults() {
    return Stream.of(
        arguments("\"null\"", "null"),
        arguments("\"boolean\"", "true"),
        arguments("\"int\"", "-7"),
        arguments("\"long\"", "9007199254740993"),
        arguments("\"float\"", "1.5"),
        arguments("\"double\"", "-1e300"),
        arguments("\"string\"", "\"é😀\""),
        arguments("\"bytes\"", "\"\\u0000\\u00ff\""),
        arguments("{\"type\":\"fixed\",\"name\":\"F\",\"size\":2}", "\"\\u0001\\u0080\""),
        arguments("{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"B\"]}", "\"B\""),
        arguments("{\"type\":\"array\",\"items\":\"int\"}", "[1,2]"),
        arguments("{\"type\":\"map\",\"values\":\"long\"}", "{\"k\":1}"),
        arguments("[\"null\",\"int\"]", "null"),
        arguments("[\"int\",\"null\"]", "5"),
        arguments(
            "{\"type\":\"record\",\"name\":\"I\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"},"
                + "{\"name\":\"b\",\"type\":\"string\",\"default\":\"x\"}]}",
            "{\"a\":1}"),
        arguments(
            "{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":4,\"scale\":2}",
            "\"\\u0004\\u00d2\""),
        arguments("{\"type\":\"int\",\"logicalType\":\"date\"}", "20777"),
        arguments("{\"type\":\"int\",\"logicalType\":\"time-millis\"}", "1"),
        arguments("{\"type\":\"long\",\"logicalType\":\"time-micros\"}", "1"),
        arguments("{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}", "1795199498123456"),
        arguments("{\"type\":\"long\",\"logicalType\":\"local-timestamp-millis\"}", "0"),
        arguments(
            "{\"type\":\"string\",\"logicalType\":\"uuid\"}",
            "\"0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11\""));
  }

  @ParameterizedTest
  @MethodSource("defaults")
  void defaultsAreThoseOfAvro(String type, String defaultValue) throws Exception {
    Schema schema =
        Encoding.schema(
            "{\"type\":\"record\",\"name\":\"R\",\"fields\":["
                + "{\"name\":\"d\",\"type\":"
                + type
                + ",\"default\":"
                + defaultValue
                + "},{\"name\":\"x\",\"type\":\"int\"}]}");
    GenericData.Record expected = new GenericData.Record(schema);
    expected.put("d", GenericData.get().getDefaultValue(schema.getField("d")));
    expected.put("x", 1);
    byte[] bytes = Encoding.encode(schema, "{\"x\": 1}");
    assertArrayEquals(Encoding.byAvro(schema, expected), bytes);
    assertEquals(expected, Encoding.decode(schema, bytes));
  }
}
