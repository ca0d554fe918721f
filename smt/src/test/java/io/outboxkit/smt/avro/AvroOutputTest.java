package io.outboxkit.smt.avro;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.Collections;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The buffer grows for each type that does not fit into it. */
class AvroOutputTest {
  private static final int ITEMS = 20_000;

  static Stream<Arguments> items() {
    return Stream.of(
        arguments("\"boolean\"", "true"),
        arguments("\"int\"", "-1"),
        arguments("\"long\"", "-9223372036854775808"),
        arguments("\"float\"", "1.5"),
        arguments("\"double\"", "1.5"),
        arguments("\"string\"", "\"é\""),
        arguments("\"bytes\"", "\"AQI=\""),
        arguments("{\"type\":\"fixed\",\"name\":\"F\",\"size\":3}", "\"\\\\x010203\""),
        arguments("{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\"]}", "\"A\""),
        arguments("{\"type\":\"array\",\"items\":\"int\"}", "[]"),
        arguments("[\"null\",\"int\"]", "null"));
  }

  @ParameterizedTest
  @MethodSource("items")
  void growsForEveryType(String type, String item) throws Exception {
    Schema schema = Encoding.schema("{\"type\":\"array\",\"items\":" + type + "}");
    String json = Collections.nCopies(ITEMS, item).toString();
    byte[] bytes = Encoding.encode(schema, json);
    assertArrayEquals(Encoding.byAvro(schema, Encoding.decode(schema, bytes)), bytes);
  }
}
