package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.Map;
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

/** Records that are no inserts into the outbox: which pass, which are refused, in which words. */
class OtherRecordsTest {

  @Test
  void heartbeatsPass() {
    SourceRecord heartbeat = Records.heartbeat();
    assertSame(heartbeat, router().apply(heartbeat));
  }

  /** Each with the entry of pass.through that lets it pass and the refusal without it. */
  static Stream<Arguments> others() {
    return Stream.of(
        arguments(
            "transactions",
            Records.named("library.transaction", Records.TRANSACTION),
            "Refused on topic library.transaction: transaction metadata. To change that, set"
                + " pass.through=transactions, or provide.transaction.metadata=false on the"
                + " connector."),
        arguments(
            "schema-changes",
            Records.named("library", Records.SCHEMA_CHANGE),
            "Refused on topic library: a schema change. To change that, set"
                + " pass.through=schema-changes, or include.schema.changes=false on the"
                + " connector."),
        arguments(
            "messages",
            OutboxEvents.insert().table("", "").messageRecord(),
            "Refused on topic library.message: a logical decoding message. To change that, set"
                + " pass.through=messages, or name the prefix in message.prefix.exclude.list on"
                + " the connector."),
        arguments(
            "table:public.author",
            OutboxEvents.insert().table("public", "author").record(),
            "Refused on topic library.public.author: a row of table public.author. To change that,"
                + " set pass.through=table:public.author, or take it out of table.include.list."),
        arguments(
            "table:public.author",
            OutboxEvents.insert().table("public", "author").operation("d").record(),
            "Refused on topic library.public.author: a row of table public.author. To change that,"
                + " set pass.through=table:public.author, or take it out of table.include.list."),
        arguments(
            "table:public.author",
            Records.tombstone("library.public.author", "library.public.author.Key"),
            "Refused on topic library.public.author: a record without a value (Debezium sends one"
                + " after a delete). To change that, set pass.through=table:<schema.table> for its"
                + " table, or tombstones.on.delete=false on the connector."),
        arguments(
            "table:public.author",
            Records.tombstone("renamed", "library.public.author.Key"),
            "Refused on topic renamed: a record without a value (Debezium sends one after a"
                + " delete). To change that, set pass.through=table:<schema.table> for its table,"
                + " or tombstones.on.delete=false on the connector."));
  }

  @ParameterizedTest
  @MethodSource("others")
  void unnamedAreRefused(String entry, SourceRecord record, String message) {
    assertRefused(message, router(), record);
  }

  @ParameterizedTest
  @MethodSource("others")
  void namedPassUnchanged(String entry, SourceRecord record, String message) {
    assertSame(record, router("pass.through", entry).apply(record));
  }

  @ParameterizedTest
  @MethodSource("others")
  void otherNamesDoNotHelp(String entry, SourceRecord record, String message) {
    String others =
        Stream.of("transactions", "schema-changes", "messages", "table:other.author")
            .filter(name -> !name.equals(entry))
            .reduce((a, b) -> a + "," + b)
            .orElseThrow();
    assertRefused(message, router("pass.through", others), record);
  }

  /** The names of the tables end alike, the tables are not the same. */
  @ParameterizedTest
  @ValueSource(strings = {"library.public.coauthor", "library.private.author"})
  void tombstonesOfOtherTablesAreRefused(String topic) {
    OutboxRouter<SourceRecord> router = router("pass.through", "table:public.author");
    assertThrows(DataException.class, () -> router.apply(Records.tombstone(topic, topic + ".Key")));
  }

  @Test
  void tablesWhoseNamesJoinToTheSameTextAreNotTheOutbox() {
    assertThrows(
        DataException.class,
        () -> router().apply(OutboxEvents.insert().table("publicx", "utbox_event").record()));
  }

  @Test
  void notificationsAreRefused() {
    assertRefused(
        "Refused on topic library.notes: a notification. To change that, take sink out of"
            + " notification.enabled.channels.",
        router(),
        Records.named("library.notes", Records.NOTIFICATION));
  }

  @Test
  void otherStructsAreRefused() {
    assertRefused(
        "Refused on topic t: a value with schema x.Y, not a change event of Debezium. To change"
            + " that, put this transform first and use it with Debezium's source connectors only.",
        router(),
        Records.named("t", "x.Y"));
  }

  @Test
  void schemalessValuesAreRefused() {
    assertRefused(
        "Refused on topic t: a value of class java.lang.String, not a Debezium Struct. To change"
            + " that, put this transform first and use it with Debezium's source connectors only.",
        router(),
        Records.record("t", null, null, null, "secret"));
  }

  @ParameterizedTest
  @CsvSource({
    "u, table.op.invalid.behavior=warn",
    "d, deleted.rows=ignore",
    "t, deleted.rows=ignore"
  })
  void changesOfTheOutboxOtherThanInsertsFail(String operation, String skip) {
    assertRefused(
        "The outbox table public.outbox_event had a change with op="
            + operation
            + "; only inserts can be routed. Make the publication insert-only (with"
            + " (publish='insert')), or set "
            + skip
            + " to skip such changes.",
        router(),
        OutboxEvents.insert().operation(operation).record());
  }

  @Test
  void snapshotRowsFail() {
    assertRefused(
        "A snapshot read rows of public.outbox_event (op=r). Snapshots bring old states back: they"
            + " read in no order of commits. Use snapshot.mode=no_data, and write what was there"
            + " before into the outbox; or set snapshot.rows=route if you know that each"
            + " aggregate has one row.",
        router(),
        OutboxEvents.insert().operation("r").record());
  }

  static Stream<Arguments> unusableTables() {
    return Stream.of(
        arguments(
            OutboxEvents.insert().without("payload"),
            "Table public.outbox_event has no column payload; set table.field.event.payload to the"
                + " column that holds it."),
        arguments(
            OutboxEvents.insert().without("aggregate_type"),
            "Table public.outbox_event has no column aggregate_type; set route.by.field to the"
                + " column that holds it."),
        arguments(
            OutboxEvents.insert().column("payload", Schema.OPTIONAL_BYTES_SCHEMA, new byte[0]),
            "Column payload of table public.outbox_event is of type BYTES; it has to be jsonb, json"
                + " or text."),
        arguments(
            OutboxEvents.insert()
                .column(
                    "headers",
                    SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA).name("h").build(),
                    Map.of()),
            "Column headers of table public.outbox_event is of type MAP (h); it has to be jsonb,"
                + " json or text."),
        arguments(
            OutboxEvents.insert().column("aggregate_id", Schema.FLOAT64_SCHEMA, 1.5),
            "Column aggregate_id is of type FLOAT64; text, uuid, whole numbers and booleans can be"
                + " used as key, id, type, schema version, partition field or header."),
        arguments(
            OutboxEvents.insert().sequence("7,8", 8L),
            "source.sequence is not of the form [\"<last commit LSN>\",\"<LSN>\"] that Debezium's"
                + " PostgreSQL connector writes; is this another connector?"));
  }

  @ParameterizedTest
  @MethodSource("unusableTables")
  void unusableTablesFailWhateverThePolicy(OutboxEvents event, String message) {
    assertRefused(message, router(), event.record());
  }

  @Test
  void missingPartitionFieldFails() {
    assertRefused(
        "The outbox table has no column region; set aggregate.note.partition.field to a column that"
            + " it has, or leave it out.",
        router("aggregate.note.partition.field", "region"),
        OutboxEvents.insert().record());
  }

  private static void assertRefused(
      String message, OutboxRouter<SourceRecord> router, SourceRecord record) {
    DataException e = assertThrows(DataException.class, () -> router.apply(record));
    assertEquals(message, e.getMessage());
  }
}
