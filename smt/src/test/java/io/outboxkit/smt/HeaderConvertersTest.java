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

/**
 * What header converters of Connect, at the writing and at the reading end, make of our headers.
 */
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

  /** The contract's headers, with the times and positions that are easiest to mistake. */
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
  void headersOfTheContractComeBackAsTheTextTheyWere(HeaderConverter converter) {
    for (SourceRecord record : records()) {
      for (Header header : record.headers()) {
        // "1.0" is the one that SimpleHeaderConverter reads as a number, and CloudEvents' choice.
        if (!header.key().equals("ce_specversion")) {
          assertEquals(header.value(), roundTrip(converter, header).value(), header.key());
        }
      }
    }
  }

  /** What a consumer that is no Connect worker reads. */
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

  /** Digits that a converter reads as a number would lose what follows them. */
  @Test
  void sequencesOfEveryEpochStayText() {
    HeaderConverter simple = simple();
    for (int epoch = 0; epoch <= 0xFFFF; epoch++) {
      String sequence = String.format("%04x%s", epoch, OutboxEvents.SEQUENCE.substring(4));
      byte[] utf8 = sequence.getBytes(StandardCharsets.UTF_8);
      assertEquals(sequence, simple.toConnectHeader(TOPIC, "source_sequence", utf8).value());
    }
  }

  /** Why docs/smt.md asks for StringConverter: this one reads text as whatever it looks like. */
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
  void simpleHeaderConverterGuessesTheTypesOfARowsOwnHeaders(String text, String guessed)
      throws Exception {
    String json = "{\"x\": \"" + text.replace("\"", "\\\"") + "\"}";
    Header header =
        router()
            .apply(OutboxEvents.insert().with("headers", json).record())
            .headers()
            .lastWithName("x");
    assertEquals(text, header.value());
    Object back = roundTrip(simple(), header).value();
    assertEquals(Class.forName(guessed), back.getClass());
    assertNotEquals(text, back);
    for (HeaderConverter faithful : List.of(string(), json(false), json(true))) {
      assertEquals(text, roundTrip(faithful, header).value());
    }
  }

  private static byte[] bytes(HeaderConverter converter, Header header) {
    return converter.fromConnectHeader(TOPIC, header.key(), header.schema(), header.value());
  }

  private static SchemaAndValue roundTrip(HeaderConverter converter, Header header) {
    return converter.toConnectHeader(TOPIC, header.key(), bytes(converter, header));
  }
}
