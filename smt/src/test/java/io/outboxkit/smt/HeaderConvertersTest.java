package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Headers of OutboxRouter, written and read by Connect's header converters. */
class HeaderConvertersTest {
  private static final String TOPIC = "library.note";

  private static HeaderConverter string() {
    return configured(new StringConverter(), Map.of());
  }

  private static HeaderConverter simple() {
    return configured(new SimpleHeaderConverter(), Map.of());
  }

  private static HeaderConverter json(boolean schemas) {
    return configured(new JsonConverter(), Map.of("schemas.enable", Boolean.toString(schemas)));
  }

  private static HeaderConverter configured(HeaderConverter converter, Map<String, String> config) {
    Map<String, String> all = new LinkedHashMap<>(config);
    all.put("converter.type", "header");
    converter.configure(all);
    return converter;
  }

  static Stream<HeaderConverter> converters() {
    return Stream.of(string(), simple(), json(false), json(true));
  }

  /** Records with times and sequences that a converter could parse as another type. */
  static List<SourceRecord> records() {
    return List.of(
        router().apply(OutboxEvents.insert().record()),
        router("source.epoch", "0", "cloudevents.source", "/library")
            .apply(OutboxEvents.insert().sequence("[null,\"1\"]", 1L).record()),
        router("source.epoch", "4660")
            .apply(
                OutboxEvents.insert()
                    .sequence("[\"1311768467463790320\",\"1311768467463790321\"]", 2L)
                    .with("created_at", "2026-11-20T18:31:38Z")
                    .record()),
        router()
            .apply(
                OutboxEvents.insert()
                    .with("created_at", "1970-01-01T00:00:00.000000Z")
                    .with("id", "00000000-0000-0000-0000-000000000001")
                    .payload(null)
                    .record()));
  }

  @ParameterizedTest
  @MethodSource("converters")
  void headersOfTheContractAreReadAsTheSameText(HeaderConverter converter) {
    for (SourceRecord record : records()) {
      for (Header header : record.headers()) {
        // SimpleHeaderConverter reads "1.0", the value that CloudEvents requires, as a number.
        if (!header.key().equals("ce_specversion")) {
          assertEquals(header.value(), roundTrip(converter, header).value(), header.key());
        }
      }
    }
  }

  /** Bytes that a consumer outside Connect reads. */
  @ParameterizedTest
  @MethodSource("records")
  void bytesAreTheTextWithStringAndSimpleConverter(SourceRecord record) {
    for (Header header : record.headers()) {
      byte[] utf8 = ((String) header.value()).getBytes(StandardCharsets.UTF_8);
      assertArrayEquals(utf8, bytes(string(), header));
      assertArrayEquals(utf8, bytes(simple(), header));
    }
  }

  @Test
  void bytesAreQuotedWithJsonConverter() {
    Header id = records().get(0).headers().lastWithName("event_id");
    assertEquals(
        "\"" + OutboxEvents.ID + "\"", new String(bytes(json(false), id), StandardCharsets.UTF_8));
    assertEquals(
        "{\"schema\":{\"type\":\"string\",\"optional\":false},\"payload\":\""
            + OutboxEvents.ID
            + "\"}",
        new String(bytes(json(true), id), StandardCharsets.UTF_8));
  }

  /** A converter that read the digits of the epoch as a number would lose the text after them. */
  @Test
  void sequencesOfEveryEpochAreReadAsText() {
    HeaderConverter simple = simple();
    for (int epoch = 0; epoch <= 0xFFFF; epoch++) {
      String sequence = String.format("%04x%s", epoch, OutboxEvents.SEQUENCE.substring(4));
      byte[] utf8 = sequence.getBytes(StandardCharsets.UTF_8);
      assertEquals(sequence, simple.toConnectHeader(TOPIC, "source_sequence", utf8).value());
    }
  }

  /** The reason why docs/smt.md requires StringConverter. */
  @ParameterizedTest
  @CsvSource({
    "7, java.lang.Byte",
    "1.10, java.lang.Float",
    "true, java.lang.Boolean",
    "2026-11-20, java.util.Date",
    "2026-11-20T18:31:38.123Z, java.util.Date",
    "'[1,2]', java.util.ArrayList",
    "'{\"a\":1}', java.util.LinkedHashMap"
  })
  void simpleHeaderConverterGuessesTypesOfOtherHeaders(String text, String guessedClass)
      throws Exception {
    String json = "{\"x\": \"" + text.replace("\"", "\\\"") + "\"}";
    Header header =
        router()
            .apply(OutboxEvents.insert().with("headers", json).record())
            .headers()
            .lastWithName("x");
    assertEquals(text, header.value());
    Object value = roundTrip(simple(), header).value();
    assertEquals(Class.forName(guessedClass), value.getClass());
    assertNotEquals(text, value);
    for (HeaderConverter converter : List.of(string(), json(false), json(true))) {
      assertEquals(text, roundTrip(converter, header).value());
    }
  }

  private static byte[] bytes(HeaderConverter converter, Header header) {
    return converter.fromConnectHeader(TOPIC, header.key(), header.schema(), header.value());
  }

  private static SchemaAndValue roundTrip(HeaderConverter converter, Header header) {
    return converter.toConnectHeader(TOPIC, header.key(), bytes(converter, header));
  }
}
