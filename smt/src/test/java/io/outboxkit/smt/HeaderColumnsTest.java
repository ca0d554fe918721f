package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** table.fields.additional.placement: columns that become headers. */
class HeaderColumnsTest {
  private static final String PLACEMENT = "table.fields.additional.placement";
  private static final String MISSING = "table.field.additional.missing";
  private static final String TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

  static Stream<Arguments> columns() {
    return Stream.of(
        arguments("region:header", "region", Schema.STRING_SCHEMA, "eu", "eu"),
        arguments(" region : header : location ", "location", Schema.STRING_SCHEMA, "eu", "eu"),
        arguments("region:header", "region", Schema.STRING_SCHEMA, "", ""),
        arguments("region:header", "region", Schema.STRING_SCHEMA, "Zürich 😀", "Zürich 😀"),
        arguments("region:header", "region", Schema.OPTIONAL_STRING_SCHEMA, null, null),
        arguments("region:header", "region", Schema.INT16_SCHEMA, (short) 7, "7"),
        arguments(
            "region:header", "region", Schema.INT64_SCHEMA, Long.MIN_VALUE, "" + Long.MIN_VALUE),
        arguments("region:header", "region", Schema.BOOLEAN_SCHEMA, true, "true"),
        arguments(
            "region:header", "region", OutboxEvents.json(), "{\"a\": 1.50}", "{\"a\": 1.50}"));
  }

  @ParameterizedTest
  @MethodSource("columns")
  void columnsBecomeHeaders(
      String option, String name, Schema column, Object value, String header) {
    SourceRecord out =
        router(PLACEMENT, option)
            .apply(OutboxEvents.insert().column("region", column, value).record());
    assertEquals("library.note", out.topic());
    assertEquals(header, headers(out).get(name));
    assertEquals(header == null ? 5 : 6, headers(out).size());
  }

  /** SQL NULL in a column with a default. */
  @Test
  void nullIsNotTheDefault() {
    Schema withDefault = SchemaBuilder.string().optional().defaultValue("eu").build();
    SourceRecord out =
        router(PLACEMENT, "region:header")
            .apply(OutboxEvents.insert().column("region", withDefault, null).record());
    assertFalse(headers(out).containsKey("region"));
  }

  @Test
  void columnHeadersPrecedeTheHeadersOfTheRow() {
    SourceRecord out =
        router(PLACEMENT, "seq:header:number,event_type:header:eventType")
            .apply(OutboxEvents.insert().with("headers", "{\"a\": \"b\"}").record());
    List<String> names = new ArrayList<>(headers(out).keySet());
    assertEquals(List.of("number", "eventType", "a"), names.subList(5, 8));
    assertEquals("7", headers(out).get("number"));
    assertEquals("NoteWritten", headers(out).get("eventType"));
  }

  @Test
  void tombstonesAndDeadLettersHaveColumnHeaders() {
    OutboxRouter<SourceRecord> router = router(PLACEMENT, "seq:header");
    SourceRecord tombstone = router.apply(OutboxEvents.insert().payload(null).record());
    assertNull(tombstone.value());
    assertEquals("7", headers(tombstone).get("seq"));
    SourceRecord letter = router.apply(OutboxEvents.insert().with("headers", "[]").record());
    assertEquals("headers-invalid", headers(letter).get("dead_letter_reason"));
    assertEquals("7", headers(letter).get("seq"));
  }

  @Test
  void rowCannotSetTheSameHeader() {
    SourceRecord out =
        router(PLACEMENT, "seq:header")
            .apply(OutboxEvents.insert().with("headers", "{\"seq\": \"8\"}").record());
    assertEquals("headers-invalid", headers(out).get("dead_letter_reason"));
    assertEquals(
        "headers: \"seq\" is set by table.fields.additional.placement",
        headers(out).get("dead_letter_message"));
  }

  @Test
  void headersCountForTheRecordSize() {
    SourceRecord out =
        router(PLACEMENT, "region:header", "max.record.bytes", "1000")
            .apply(
                OutboxEvents.insert()
                    .column("region", Schema.STRING_SCHEMA, "x".repeat(1000))
                    .record());
    assertEquals("record-too-large", headers(out).get("dead_letter_reason"));
    assertFalse(headers(out).containsKey("region"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "error"})
  void missingColumnsFail(String behavior) {
    OutboxRouter<SourceRecord> router =
        behavior.isEmpty()
            ? router(PLACEMENT, "region:header")
            : router(PLACEMENT, "region:header", MISSING, behavior);
    assertFails(router, OutboxEvents.insert().record(), "region", PLACEMENT, MISSING + "=ignore");
  }

  @Test
  void missingColumnsCanBeIgnored() {
    SourceRecord out =
        router(PLACEMENT, "region:header,seq:header", MISSING, "ignore")
            .apply(OutboxEvents.insert().record());
    assertEquals("7", headers(out).get("seq"));
    assertEquals(6, headers(out).size());
  }

  static Stream<Arguments> otherColumnTypes() {
    return Stream.of(
        arguments(Schema.FLOAT64_SCHEMA, 0.5, "FLOAT64"),
        arguments(number(SchemaBuilder.int32(), "io.debezium.time.Date"), 20_777, "INT32"),
        arguments(number(SchemaBuilder.int64(), "io.debezium.time.MicroTime"), 1L, "INT64"),
        arguments(number(SchemaBuilder.int64(), "io.debezium.time.MicroTimestamp"), 1L, "INT64"));
  }

  private static Schema number(SchemaBuilder type, String name) {
    return type.name(name).version(1).build();
  }

  @ParameterizedTest
  @MethodSource("otherColumnTypes")
  void otherColumnTypesFail(Schema schema, Object value, String type) {
    OutboxRouter<SourceRecord> router = router(PLACEMENT, "ratio:header");
    SourceRecord row = OutboxEvents.insert().column("ratio", schema, value).record();
    String name = schema.name() == null ? "" : " (" + schema.name() + ")";
    assertFails(router, row, "ratio", type + name);
  }

  static Stream<Arguments> messages() {
    return Stream.of(
        arguments(", \"region\": \"eu\"", "error", "eu", null),
        arguments(", \"region\": 1.50", "error", "1.50", null),
        arguments(", \"region\": {\"a\": 1}", "error", "{\"a\": 1}", null),
        arguments(", \"region\": null", "error", null, null),
        arguments("", "ignore", null, null),
        arguments("", "error", null, "message: the object has no member \"region\""),
        arguments(
            ", \"region\": \"\\ud83d\"",
            "ignore",
            null,
            "message: \"region\" has an unpaired surrogate"));
  }

  @ParameterizedTest
  @MethodSource("messages")
  void membersOfMessagesBecomeHeaders(String member, String missing, String header, String error) {
    Map<String, String> headers =
        headers(
            router(PLACEMENT, "region:header", MISSING, missing, "message.prefix", "outbox")
                .apply(OutboxEvents.message("null", member)));
    assertEquals(error, headers.get("dead_letter_message"));
    if (error == null) {
      assertEquals(header, headers.get("region"));
    }
  }

  /** Headers of W3C Trace Context, from the headers column or from other columns. */
  @Test
  void traceHeadersAreUnchanged() {
    String state = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
    SourceRecord fromJson =
        router()
            .apply(
                OutboxEvents.insert()
                    .with(
                        "headers",
                        "{\"traceparent\": \"" + TRACE + "\", \"tracestate\": \"" + state + "\"}")
                    .record());
    SourceRecord fromColumns =
        router(PLACEMENT, "traceparent:header,state:header:tracestate")
            .apply(
                OutboxEvents.insert()
                    .column("traceparent", Schema.OPTIONAL_STRING_SCHEMA, TRACE)
                    .column("state", Schema.OPTIONAL_STRING_SCHEMA, state)
                    .record());
    for (SourceRecord out : List.of(fromJson, fromColumns)) {
      assertEquals(TRACE, headers(out).get("traceparent"));
      assertEquals(state, headers(out).get("tracestate"));
    }
  }
}
