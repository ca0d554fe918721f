package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Topic, key, value, headers, partition and timestamp of the routed records. */
class OutboxRouterTest {
  private final OutboxRouter<SourceRecord> router = router();

  @Test
  void insertBecomesTheRecordOfTheContract() throws Exception {
    SourceRecord in = OutboxEvents.insert().record();
    SourceRecord out = router.apply(in);

    assertEquals("library.note", out.topic());
    assertNull(out.kafkaPartition(), "the producer chooses the partition by the key");
    assertSame(Schema.STRING_SCHEMA, out.keySchema());
    assertEquals("note-1", out.key());
    assertSame(Schema.BYTES_SCHEMA, out.valueSchema());
    assertEquals(
        "{\"text\": \"hello\"}",
        Routers.decode(out, Routers.NOTE_V1, Routers.NOTE_V1_ID).toString());
    assertEquals(OutboxEvents.COMMIT_MILLIS, out.timestamp());
    assertEquals(in.sourcePartition(), out.sourcePartition());
    assertEquals(in.sourceOffset(), out.sourceOffset());
    assertEquals(
        Map.of(
            "event_id", OutboxEvents.ID,
            "event_type", "NoteWritten",
            "aggregate_type", "note",
            "event_time", OutboxEvents.CREATED_AT,
            "source_sequence", OutboxEvents.SEQUENCE),
        headers(out));
  }

  @Test
  void valueHasExactlyTheBytesOfTheWireFormat() {
    byte[] value = (byte[]) router.apply(OutboxEvents.insert().record()).value();
    assertEquals(
        List.of(0, 1, 2, 3, 4, 10, (int) 'h', (int) 'e', (int) 'l', (int) 'l', (int) 'o'),
        java.util.stream.IntStream.range(0, value.length).mapToObj(i -> (int) value[i]).toList());
  }

  /** Jackson cannot read these numbers as BigDecimal. */
  @ParameterizedTest
  @ValueSource(strings = {"[1e99999999999]", "{\"a\":[-1.50E-99999999999,{}]}"})
  void numbersInHeadersCanHaveAnySize(String header) {
    String headers = "{\"n\": " + header + "}";
    SourceRecord row = router.apply(OutboxEvents.insert().with("headers", headers).record());
    SourceRecord text =
        router.apply(
            OutboxEvents.insert()
                .column("headers", Schema.OPTIONAL_STRING_SCHEMA, headers)
                .payload("1")
                .record());
    SourceRecord message =
        router("message.prefix", "outbox")
            .apply(OutboxEvents.message("{\"text\": \"x\"}", ", \"headers\": " + headers));
    assertEquals("library.note", row.topic());
    assertEquals(header, headers(row).get("n"));
    assertEquals("payload-invalid", headers(text).get("dead_letter_reason"));
    assertEquals(header, headers(text).get("n"));
    assertEquals("library.note", message.topic());
    assertEquals(header, headers(message).get("n"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"null", " null", "null\n", "\r\tnull "})
  void jsonNullIsATombstone(String payload) {
    assertTombstone(router.apply(OutboxEvents.insert().payload(payload).record()));
  }

  @Test
  void sqlNullIsATombstone() {
    assertTombstone(router.apply(OutboxEvents.insert().payload(null).record()));
  }

  /** Struct.get would return the default of the column, and no tombstone would be written. */
  @Test
  void sqlNullIsATombstoneIfTheColumnHasADefault() {
    Schema json =
        SchemaBuilder.string()
            .name("io.debezium.data.Json")
            .optional()
            .defaultValue("{\"text\": \"default\"}")
            .build();
    assertTombstone(router.apply(OutboxEvents.insert().column("payload", json, null).record()));
  }

  private static void assertTombstone(SourceRecord out) {
    assertNull(out.value());
    assertNull(out.valueSchema());
    assertEquals("note-1", out.key());
    assertEquals("library.note", out.topic());
    assertEquals(OutboxEvents.COMMIT_MILLIS, out.timestamp());
    assertEquals(OutboxEvents.SEQUENCE, headers(out).get("source_sequence"));
    assertEquals(5, headers(out).size());
  }

  @Test
  void headersOfTheRowAreAdded() {
    SourceRecord out =
        router.apply(
            OutboxEvents.insert()
                .with(
                    "headers",
                    "{\"traceparent\": \"00-ab-cd-01\", \"attempt\": 3, \"price\": 1.10,"
                        + " \"big\": 12345678901234567890, \"ok\": true, \"none\": null,"
                        + " \"tags\": [\"a\", {\"b\": 1.50}]}")
                .record());
    Map<String, String> headers = headers(out);
    assertEquals("00-ab-cd-01", headers.get("traceparent"));
    assertEquals("3", headers.get("attempt"));
    assertEquals("1.10", headers.get("price"));
    assertEquals("12345678901234567890", headers.get("big"));
    assertEquals("true", headers.get("ok"));
    assertEquals("null", headers.get("none"));
    assertEquals("[\"a\",{\"b\":1.50}]", headers.get("tags"));
    assertEquals(12, headers.size());
  }

  @ParameterizedTest
  @ValueSource(strings = {"null", "{}"})
  void emptyHeadersAddNothing(String text) {
    assertEquals(
        5, headers(router.apply(OutboxEvents.insert().with("headers", text).record())).size());
  }

  @Test
  void tableNeedsNoHeadersColumn() {
    SourceRecord out = router.apply(OutboxEvents.insert().without("headers").record());
    assertEquals(5, headers(out).size());
  }

  @Test
  void incomingHeadersAreNotPassedOn() {
    SourceRecord in = OutboxEvents.insert().record();
    in.headers().addString("__debezium.context.connectorName", "postgresql");
    assertEquals(5, headers(router.apply(in)).size());
  }

  @Test
  void commitTimeFallsBackToMilliseconds() {
    SourceRecord out = router.apply(OutboxEvents.insert().withoutMicros().record());
    assertEquals(OutboxEvents.COMMIT_MILLIS, out.timestamp());
  }

  @Test
  void firstSequenceAfterAStartHasNoCommit() {
    SourceRecord out =
        router("source.epoch", "65535")
            .apply(OutboxEvents.insert().sequence("[null,\"188902120\"]", 188_902_120L).record());
    assertEquals("ffff_0000000000000000-000000000b426ae8", headers(out).get("source_sequence"));
  }

  @Test
  void columnsCanHaveOtherNamesAndTypes() throws Exception {
    SourceRecord out =
        router(
                "table.field.event.id", "seq",
                "table.field.event.key", "aggregateid",
                "table.field.event.type", "type",
                "route.by.field", "aggregatetype",
                "table.field.event.timestamp", "at")
            .apply(
                OutboxEvents.insert()
                    .column("aggregateid", Schema.INT32_SCHEMA, 42)
                    .column("type", Schema.STRING_SCHEMA, "Written")
                    .column("aggregatetype", Schema.STRING_SCHEMA, "note")
                    .column(
                        "at",
                        SchemaBuilder.int64().name("io.debezium.time.MicroTimestamp").build(),
                        1_500_000L)
                    .record());
    assertEquals("42", out.key());
    assertEquals("7", headers(out).get("event_id"));
    assertEquals("Written", headers(out).get("event_type"));
    assertEquals("1970-01-01T00:00:01.500000Z", headers(out).get("event_time"));
  }

  /** Types that have no time zone or no time, each as Debezium represents it. */
  static Stream<Schema> typesWithoutATime() {
    return Stream.of(
        Schema.INT64_SCHEMA,
        Schema.OPTIONAL_STRING_SCHEMA,
        OutboxEvents.json(),
        SchemaBuilder.int32().name("io.debezium.time.Date").optional().build(),
        SchemaBuilder.int64().name("io.debezium.time.MicroTime").optional().build());
  }

  /** Otherwise every row would become a dead letter. */
  @ParameterizedTest
  @MethodSource("typesWithoutATime")
  void eventTimeOfAnotherTypeStopsTheTask(Schema type) {
    Object value = type.isOptional() ? null : 5L;
    assertFails(
        router,
        OutboxEvents.insert().column("created_at", type, value).record(),
        "created_at",
        "public.outbox_event",
        type.type().name(),
        "timestamptz");
  }

  @Test
  void latestVersionThatAcceptsTheRowIsUsed() throws Exception {
    OutboxRouter<SourceRecord> twoVersions =
        router(
            "aggregate.note.schema.versions",
            "2,1",
            "aggregate.note.schema.2",
            Routers.NOTE_V2,
            "aggregate.note.schema.2.id",
            Integer.toString(Routers.NOTE_V2_ID));
    SourceRecord newer =
        twoVersions.apply(
            OutboxEvents.insert().payload("{\"stars\": 5, \"text\": \"a\"}").record());
    SourceRecord older =
        twoVersions.apply(OutboxEvents.insert().payload("{\"text\": \"b\"}").record());
    assertEquals(
        "{\"text\": \"a\", \"stars\": 5}",
        Routers.decode(newer, Routers.NOTE_V2, Routers.NOTE_V2_ID).toString());
    assertEquals(
        "{\"text\": \"b\"}", Routers.decode(older, Routers.NOTE_V1, Routers.NOTE_V1_ID).toString());
  }

  @ParameterizedTest
  @CsvSource({"eu", "us-east-1", "Zürich", "0", "''''"})
  void partitionFieldIsHashedLikeKafkasPartitioner(String region) {
    SourceRecord out =
        router("aggregate.note.partition.field", "region")
            .apply(OutboxEvents.insert().column("region", Schema.STRING_SCHEMA, region).record());
    byte[] utf8 = region.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    assertEquals(BuiltInPartitioner.partitionForKey(utf8, 12), out.kafkaPartition());
  }

  @Test
  void numbersAsPartitionFieldAreHashedAsText() {
    SourceRecord out =
        router("aggregate.note.partition.field", "seq").apply(OutboxEvents.insert().record());
    assertEquals(BuiltInPartitioner.partitionForKey("7".getBytes(), 12), out.kafkaPartition());
  }

  @Test
  void tombstonesHaveThePartitionOfEarlierRecords() {
    OutboxRouter<SourceRecord> byField = router("aggregate.note.partition.field", "aggregate_id");
    assertEquals(
        byField.apply(OutboxEvents.insert().record()).kafkaPartition(),
        byField.apply(OutboxEvents.insert().payload(null).record()).kafkaPartition());
  }

  @Test
  void snapshotRowsCanBeRouted() {
    SourceRecord out =
        router("snapshot.rows", "route").apply(OutboxEvents.insert().operation("r").record());
    assertEquals("library.note", out.topic());
  }

  @Test
  void aggregateTypesCanContainDots() {
    OutboxRouter<SourceRecord> dotted =
        router(
            "aggregates", "note, shop.note",
            "aggregate.shop.note.topic", "shop",
            "aggregate.shop.note.partitions", "1",
            "aggregate.shop.note.schema.versions", "1",
            "aggregate.shop.note.schema.1", Routers.NOTE_V1,
            "aggregate.shop.note.schema.1.id", "3");
    assertEquals(
        "shop",
        dotted.apply(OutboxEvents.insert().with("aggregate_type", "shop.note").record()).topic());
  }

  /** Debezium creates new schemas when the table changes. */
  @Test
  void tableCanChangeBetweenRecords() {
    router.apply(OutboxEvents.insert().record());
    SourceRecord out =
        router.apply(
            OutboxEvents.insert()
                .without("headers")
                .without("payload")
                .column("payload", OutboxEvents.json(), "{\"text\": \"b\"}")
                .record());
    assertEquals("library.note", out.topic());
    assertThrows(
        DataException.class, () -> router.apply(OutboxEvents.insert().without("id").record()));
  }

  @Test
  void versionIsThatOfTheBuild() {
    assertEquals("0.1.0", router.version());
  }
}
