package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalTypes;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The schemas of the worked example, with payloads in jsonb's form: keys sorted by length. */
class LibrarySchemasTest {
  private static final String BOOK =
      "{\"id\": \"0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11\", \"tags\": [\"sf\", \"klassiker\"],"
          + " \"pages\": 412, \"price\": 12.50, \"title\": \"Übermorgen 📚\","
          + " \"status\": \"LENT\", \"subtitle\": null,"
          + " \"author_id\": \"0190f2c4-0000-7c3a-a1f0-3f8f4d3b2a11\","
          + " \"updated_at\": \"2026-11-20T19:31:38.123456+01:00\","
          + " \"published_on\": \"1965-08-01\"}";

  static Stream<Arguments> payloads() {
    return Stream.of(
        arguments(
            "author",
            "{\"id\": \"0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11\", \"name\": \"Ursula\","
                + " \"updated_at\": \"2026-11-20T18:31:38.123456+00:00\"}",
            "{\"id\": \"0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11\", \"name\": \"Ursula\","
                + " \"country\": null, \"born\": null, \"pen_names\": [],"
                + " \"updated_at\": 1795199498123456}"),
        arguments(
            "author",
            "{\"id\": \"0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11\", \"born\": \"1929-10-21\","
                + " \"name\": \"Ursula\", \"country\": \"US\", \"pen_names\": [\"U\", \"K\"],"
                + " \"updated_at\": \"2026-11-20T18:31:38+00:00\"}",
            "{\"id\": \"0190f2c4-8f6d-7c3a-a1f0-3f8f4d3b2a11\", \"name\": \"Ursula\","
                + " \"country\": \"US\", \"born\": -14682, \"pen_names\": [\"U\", \"K\"],"
                + " \"updated_at\": 1795199498000000}"));
  }

  @ParameterizedTest
  @MethodSource("payloads")
  void authorsAreEncoded(String aggregate, String payload, String decoded) throws Exception {
    assertEquals(decoded, encode(aggregate, payload).toString());
  }

  @Test
  void booksAreEncoded() throws Exception {
    GenericRecord book = (GenericRecord) encode("book", BOOK);
    assertEquals("Übermorgen 📚", book.get("title").toString());
    assertEquals("[sf, klassiker]", book.get("tags").toString());
    assertEquals(
        new BigDecimal("12.50"),
        new Conversions.DecimalConversion()
            .fromBytes(
                (ByteBuffer) book.get("price"),
                book.getSchema().getField("price").schema(),
                LogicalTypes.decimal(12, 2)));
    assertEquals("LENT", book.get("status").toString());
    assertEquals(412, book.get("pages"));
    assertEquals(null, book.get("subtitle"));
    assertEquals(-1614, book.get("published_on"));
    assertEquals(1_795_199_498_123_456L, book.get("updated_at"));
  }

  private static Object encode(String aggregate, String payload) throws Exception {
    String schema = schema(aggregate);
    SourceRecord out =
        Routers.router("aggregate.note.schema.1", schema)
            .apply(OutboxEvents.insert().payload(payload).record());
    assertEquals(null, Routers.headers(out).get("dead_letter_message"));
    return Routers.decode(out, schema, Routers.NOTE_V1_ID);
  }

  private static String schema(String aggregate) throws IOException {
    Path schemas = Path.of(System.getProperty("module.basedir"), "../schemas");
    return Files.readString(schemas.resolve(aggregate + ".avsc"));
  }
}
