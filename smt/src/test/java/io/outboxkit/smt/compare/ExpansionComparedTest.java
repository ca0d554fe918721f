package io.outboxkit.smt.compare;

import static io.outboxkit.smt.compare.Outcomes.assertDeadLetter;
import static io.outboxkit.smt.compare.Outcomes.avro;
import static io.outboxkit.smt.compare.Outcomes.json;
import static io.outboxkit.smt.compare.Outcomes.warned;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.outboxkit.smt.OutboxEvents;
import io.outboxkit.smt.Routers;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;

/** JSON payloads: expanded with a schema inferred from each, or encoded with a declared one. */
class ExpansionComparedTest {
  private static final int SCALE = 12;
  private static final String NULLABLE = "[\"null\",\"long\"]";
  private static final String DECIMAL =
      "{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":38,\"scale\":12}";

  private static SourceRecord row(String payload) {
    return OutboxEvents.insert().payload(payload).record();
  }

  private static UnaryOperator<SourceRecord> expanding(Sides sides) {
    return sides.eventRouter("table.expand.json.payload", "true");
  }

  /** Return a record schema with fields a and b. */
  private static String schema(String a, String b) {
    return "{\"type\":\"record\",\"name\":\"N\",\"fields\":[{\"name\":\"a\",\"type\":"
        + a
        + "},{\"name\":\"b\",\"type\":"
        + b
        + ",\"default\":0}]}";
  }

  /** Assert that EventRouter's record cannot be written, and that OutboxRouter's is Avro. */
  private static void assertOnlyOutboxRouterIsWritten(
      Sides sides, String json, String schema, String avro) throws Exception {
    SourceRecord expanded = expanding(sides).apply(row(json));
    assertEquals(json, expanded.value());
    assertThrows(DataException.class, () -> json(expanded));
    assertEquals(avro, avro(schema, sides.outboxRouterBy(schema).apply(row(json))));
  }

  @Compared("expand")
  void objects(Sides sides) throws Exception {
    String schema = schema("\"string\"", "\"long\"");
    SourceRecord row = row("{\"a\": \"x\", \"b\": 9007199254740993}");
    assertEquals("{\"a\":\"x\",\"b\":9007199254740993}", json(expanding(sides).apply(row)));
    assertEquals(
        "{\"a\": \"x\", \"b\": 9007199254740993}",
        avro(schema, sides.outboxRouterBy(schema).apply(row)));
  }

  @Compared("expand-top-array")
  void arraysAtTheTop(Sides sides) throws Exception {
    assertOnlyOutboxRouterIsWritten(
        sides, "[1, 2]", "{\"type\":\"array\",\"items\":\"int\"}", "[1, 2]");
    String objects = "{\"type\":\"array\",\"items\":" + schema("\"int\"", "\"int\"") + "}";
    assertOnlyOutboxRouterIsWritten(sides, "[{\"a\": 1}]", objects, "[{\"a\": 1, \"b\": 0}]");
  }

  @Compared("expand-large-integer")
  void integersBeyond63Bits(Sides sides) throws Exception {
    String json = "{\"a\": 9223372036854775808}";
    SourceRecord expanded = expanding(sides).apply(row(json));
    assertEquals(json, expanded.value());
    assertThrows(DataException.class, () -> json(expanded));
    assertDecimal("9223372036854775808", sides, json);
    assertDeadLetter(
        "payload-invalid", sides.outboxRouterBy(schema("\"long\"", "\"int\"")).apply(row(json)));
  }

  @Compared("expand-mixed-array")
  void arraysOfSeveralTypes(Sides sides) throws Exception {
    String json = "{\"a\": [1, \"x\", null]}";
    assertEquals(json, warned(expanding(sides), row(json)).value());
    String schema =
        schema("{\"type\":\"array\",\"items\":[\"null\",\"int\",\"string\"]}", "\"int\"");
    assertEquals(
        "{\"a\": [1, \"x\", null], \"b\": 0}",
        avro(schema, sides.outboxRouterBy(schema).apply(row(json))));
  }

  @Compared("expand-mixed-numbers")
  void arraysOfSeveralWidths(Sides sides) throws Exception {
    String json = "{\"a\": [1, 3000000000]}";
    assertEquals(json, warned(expanding(sides), row(json)).value());
    String schema = schema("{\"type\":\"array\",\"items\":\"long\"}", "\"int\"");
    assertEquals(
        "{\"a\": [1, 3000000000], \"b\": 0}",
        avro(schema, sides.outboxRouterBy(schema).apply(row(json))));
  }

  @Compared("expand-null-field")
  void fieldsThatAreNull(Sides sides) throws Exception {
    String json = "{\"a\": null, \"b\": 1}";
    assertEquals("{\"b\":1}", json(expanding(sides).apply(row(json))));
    assertKept(sides, json, Schema.Type.BYTES, "table.json.payload.null.behavior=optional_bytes");
    String schema = schema(NULLABLE, "\"int\"");
    assertEquals(
        "{\"a\": null, \"b\": 1}", avro(schema, sides.outboxRouterBy(schema).apply(row(json))));
  }

  @Compared("expand-empty-array")
  void emptyArrays(Sides sides) throws Exception {
    String json = "{\"a\": [], \"b\": 1}";
    assertEquals("{\"b\":1}", json(expanding(sides).apply(row(json))));
    assertKept(
        sides, json, Schema.Type.ARRAY, "table.json.payload.empty.array.behavior=optional_string");
    String schema = schema("{\"type\":\"array\",\"items\":\"int\"}", "\"int\"");
    assertEquals(
        "{\"a\": [], \"b\": 1}", avro(schema, sides.outboxRouterBy(schema).apply(row(json))));
  }

  /** Assert that EventRouter keeps field a with the option. */
  private static void assertKept(Sides sides, String json, Schema.Type type, String option) {
    String[] parts = option.split("=");
    SourceRecord kept =
        sides.eventRouter("table.expand.json.payload", "true", parts[0], parts[1]).apply(row(json));
    assertEquals(type, kept.valueSchema().field("a").schema().type());
    assertEquals(json.replace(" ", ""), json(kept));
  }

  @Compared("expand-decimal")
  void decimals(Sides sides) throws Exception {
    String json = "{\"a\": 123456789.123456789123}";
    assertEquals("{\"a\":1.2345678912345679E8}", json(expanding(sides).apply(row(json))));
    assertDecimal("123456789.123456789123", sides, json);
  }

  /** Assert that OutboxRouter's field a, a decimal, has all digits. */
  private static void assertDecimal(String expected, Sides sides, String json) throws Exception {
    String schema = schema(DECIMAL, "\"int\"");
    SourceRecord byOutboxRouter = sides.outboxRouterBy(schema).apply(row(json));
    GenericRecord value =
        (GenericRecord) Routers.decode(byOutboxRouter, schema, Routers.NOTE_V1_ID);
    byte[] unscaled = ((ByteBuffer) value.get("a")).array();
    assertEquals(
        0, new BigDecimal(expected).compareTo(new BigDecimal(new BigInteger(unscaled), SCALE)));
  }

  @Compared("expand-infinity")
  void numbersBeyondDouble(Sides sides) {
    String json = "{\"a\": 1e400}";
    assertEquals("{\"a\":\"Infinity\"}", json(expanding(sides).apply(row(json))));
    assertDeadLetter(
        "payload-invalid", sides.outboxRouterBy(schema("\"double\"", "\"int\"")).apply(row(json)));
  }

  @Compared("expand-schema-per-payload")
  void schemasOfSimilarPayloads(Sides sides) {
    UnaryOperator<SourceRecord> expanding = expanding(sides);
    List<String> payloads = List.of("{\"a\": 1}", "{\"a\": 3000000000}", "{\"a\": null}");
    List<Schema> schemas =
        payloads.stream().map(json -> expanding.apply(row(json)).valueSchema()).toList();
    assertEquals(3, schemas.stream().distinct().count());
    UnaryOperator<SourceRecord> byOutboxRouter = sides.outboxRouterBy(schema(NULLABLE, "\"int\""));
    for (String json : payloads) {
      byte[] value = (byte[]) byOutboxRouter.apply(row(json)).value();
      assertEquals(Routers.NOTE_V1_ID, ByteBuffer.wrap(value).getInt(1));
    }
  }

  @Compared("expand-repeated-field")
  void duplicateFields(Sides sides) {
    String json = "{\"a\": 1, \"a\": 2}";
    assertEquals("{\"a\":2}", json(expanding(sides).apply(row(json))));
    assertDeadLetter(
        "payload-invalid", sides.outboxRouterBy(schema("\"int\"", "\"int\"")).apply(row(json)));
  }

  @Compared("expand-text-after")
  void textAfterTheValue(Sides sides) {
    String json = "{\"a\": 1} {\"a\": 2}";
    assertEquals("{\"a\":1}", json(expanding(sides).apply(row(json))));
    assertDeadLetter(
        "payload-invalid", sides.outboxRouterBy(schema("\"int\"", "\"int\"")).apply(row(json)));
  }

  @Compared("expand-blank-before")
  void whiteSpaceBeforeTheValue(Sides sides) throws Exception {
    String json = " {\"a\": 1}";
    assertEquals(json, warned(expanding(sides), row(json)).value());
    String schema = schema("\"int\"", "\"int\"");
    assertEquals(
        "{\"a\": 1, \"b\": 0}", avro(schema, sides.outboxRouterBy(schema).apply(row(json))));
  }

  @Compared("expand-not-json")
  void textThatIsNotJson(Sides sides) {
    for (String text : List.of("hello", "5", "{\"a\": ")) {
      assertEquals(text, warned(expanding(sides), row(text)).value());
      assertDeadLetter("payload-invalid", sides.outboxRouter().apply(row(text)));
    }
  }
}
