package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Records other than inserts into the outbox table. */
class OtherRecordsTest {

  @Test
  void heartbeatsPass() {
    SourceRecord heartbeat = Records.heartbeat();
    assertSame(heartbeat, router().apply(heartbeat));
  }

  /** Records, each with the entry of pass.through that allows it. */
  static Stream<Arguments> others() {
    return Stream.of(
        arguments("transactions", Records.named("library.transaction", Records.TRANSACTION)),
        arguments("schema-changes", Records.named("library", Records.SCHEMA_CHANGE)),
        arguments("messages", OutboxEvents.insert().table("", "").messageRecord()),
        arguments("table:public.author", OutboxEvents.insert().table("public", "author").record()),
        arguments(
            "table:public.author",
            OutboxEvents.insert().table("public", "author").operation("d").record()),
        arguments(
            "table:public.author",
            Records.tombstone("library.public.author", "library.public.author.Key")),
        arguments(
            "table:public.author", Records.tombstone("renamed", "library.public.author.Key")));
  }

  @ParameterizedTest
  @MethodSource("others")
  void recordsThatAreNotListedFail(String entry, SourceRecord record) {
    String expected = record.value() == null ? "table:SCHEMA.TABLE" : entry;
    assertFails(
        router(), record, "topic " + record.topic(), "add " + expected + " to pass.through");
  }

  @ParameterizedTest
  @MethodSource("others")
  void listedRecordsPassUnchanged(String entry, SourceRecord record) {
    assertSame(record, router("pass.through", entry).apply(record));
  }

  @ParameterizedTest
  @MethodSource("others")
  void otherEntriesDoNotMatch(String entry, SourceRecord record) {
    String others =
        Stream.of("transactions", "schema-changes", "messages", "table:other.author")
            .filter(name -> !name.equals(entry))
            .collect(Collectors.joining(","));
    assertFails(router("pass.through", others), record);
  }

  /** Tables whose names end like that of the listed table. */
  @ParameterizedTest
  @ValueSource(strings = {"library.public.coauthor", "library.private.author"})
  void tombstonesOfOtherTablesAreRejected(String topic) {
    OutboxRouter<SourceRecord> router = router("pass.through", "table:public.author");
    assertThrows(DataException.class, () -> router.apply(Records.tombstone(topic, topic + ".Key")));
  }

  @Test
  void schemaAndTableNameAreComparedSeparately() {
    assertThrows(
        DataException.class,
        () -> router().apply(OutboxEvents.insert().table("publicx", "utbox_event").record()));
  }

  /** All rows of these connectors would have one source_sequence. */
  @ParameterizedTest
  @ValueSource(strings = {"sqlserver", "oracle", "mysql"})
  void rowsOfOtherConnectorsFail(String connector) {
    OutboxEvents event = OutboxEvents.insert().connector(connector).sequence(null, null);
    assertFails(router(), event.record(), "source.connector", connector, "postgresql");
    assertFails(
        router("pass.through", "messages"), event.messageRecord(), "source.connector", connector);
  }

  @Test
  void notificationsFail() {
    assertFails(
        router(),
        Records.named("library.notes", Records.NOTIFICATION),
        "topic library.notes",
        "notification.enabled.channels");
  }

  @Test
  void otherStructsFail() {
    assertFails(router(), Records.named("t", "x.Y"), "topic t", "x.Y");
  }

  @Test
  void schemalessValuesFail() {
    String message = assertFails(router(), Records.record("t", null, null, null, "secret"));
    assertTrue(message.contains("java.lang.String"), message);
    assertFalse(message.contains("secret"), message);
  }

  @ParameterizedTest
  @CsvSource({
    "u, table.op.invalid.behavior=warn",
    "d, deleted.rows=ignore",
    "t, deleted.rows=ignore"
  })
  void operationsOtherThanInsertsFail(String operation, String remedy) {
    SourceRecord record = OutboxEvents.insert().operation(operation).record();
    assertFails(router(), record, "public.outbox_event", "op=" + operation, remedy);
  }

  @Test
  void snapshotRowsFail() {
    SourceRecord record = OutboxEvents.insert().operation("r").record();
    assertFails(router(), record, "op=r", "snapshot.mode=no_data", "snapshot.rows=route");
  }

  static Stream<Arguments> unsupportedTables() {
    return Stream.of(
        arguments(OutboxEvents.insert().without("payload"), "payload", "table.field.event.payload"),
        arguments(
            OutboxEvents.insert().without("aggregate_type"), "aggregate_type", "route.by.field"),
        arguments(
            OutboxEvents.insert().column("payload", Schema.OPTIONAL_BYTES_SCHEMA, new byte[0]),
            "payload",
            "BYTES"),
        arguments(
            OutboxEvents.insert()
                .column(
                    "headers",
                    SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA).name("h").build(),
                    Map.of()),
            "headers",
            "MAP (h)"),
        arguments(
            OutboxEvents.insert().column("aggregate_id", Schema.FLOAT64_SCHEMA, 1.5),
            "aggregate_id",
            "FLOAT64"),
        arguments(OutboxEvents.insert().sequence("7,8", 8L), "source.sequence", "LSN"));
  }

  /** Also with invalid.rows=dead-letter: every row would become a dead letter. */
  @ParameterizedTest
  @MethodSource("unsupportedTables")
  void unsupportedTablesFail(OutboxEvents event, String name, String detail) {
    assertFails(router(), event.record(), name, detail);
  }

  @Test
  void missingPartitionColumnFails() {
    assertFails(
        router("aggregate.note.partition.field", "region"),
        OutboxEvents.insert().record(),
        "region",
        "aggregate.note.partition.field");
  }
}
