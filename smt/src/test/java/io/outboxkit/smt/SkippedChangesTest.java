package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.log4j.Level;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** table.op.invalid.behavior and deleted.rows, if the publication includes these operations. */
class SkippedChangesTest {
  private static final String UPDATES = "table.op.invalid.behavior";
  private static final String DELETES = "deleted.rows";

  private static SourceRecord change(String operation) {
    return OutboxEvents.insert().operation(operation).payload("{\"text\": \"secret\"}").record();
  }

  static Stream<Arguments> skipped() {
    return Stream.of(
        arguments(UPDATES, "warn", "u"),
        arguments(UPDATES, "error", "u"),
        arguments(DELETES, "ignore", "d"),
        arguments(DELETES, "ignore", "t"));
  }

  @ParameterizedTest
  @MethodSource("skipped")
  void skippedChangesAreDropped(String option, String value, String operation) {
    OutboxRouter<SourceRecord> router = router(option, value);
    assertNull(router.apply(change(operation)));
    assertNotNull(router.apply(change("c")), "inserts are still routed");
  }

  @ParameterizedTest
  @CsvSource({"u, deleted.rows, ignore", "d, " + UPDATES + ", warn", "t, " + UPDATES + ", warn"})
  void updatesAndDeletesHaveSeparateOptions(String operation, String option, String value) {
    OutboxRouter<SourceRecord> router = router(option, value);
    assertThrows(DataException.class, () -> router.apply(change(operation)));
  }

  /** Debezium sends the new row as an insert, after a delete of the old one. */
  private static SourceRecord updateOfKey() {
    SourceRecord create = change("c");
    create
        .headers()
        .add(
            "__debezium.oldkey",
            Map.of("id", "1"),
            SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA).build());
    return create;
  }

  @ParameterizedTest
  @ValueSource(strings = {"warn", "error"})
  void updatesOfThePrimaryKeyAreSkipped(String value) {
    try (CapturedLog log = new CapturedLog()) {
      OutboxRouter<SourceRecord> router = router(UPDATES, value, DELETES, "ignore");
      assertNull(router.apply(change("d")));
      assertNull(router.apply(updateOfKey()));
      assertEquals(1, log.count(Level.toLevel(value)));
      assertNotNull(router.apply(change("c")), "inserts are still routed");
    }
  }

  @Test
  void updatesOfThePrimaryKeyStopTheTask() {
    OutboxRouter<SourceRecord> router = router(DELETES, "ignore");
    assertFails(
        router, updateOfKey(), "op=c after an update of the key", "table.op.invalid.behavior=warn");
  }

  /** Snapshots have a separate option. */
  @Test
  void snapshotRowsAreNotSkipped() {
    OutboxRouter<SourceRecord> router = router(UPDATES, "warn", DELETES, "ignore");
    assertThrows(DataException.class, () -> router.apply(change("r")));
  }

  /** Operations of later Debezium versions must not be dropped. */
  @Test
  void unknownOperationsAreNotSkipped() {
    OutboxRouter<SourceRecord> router = router(UPDATES, "warn", DELETES, "ignore");
    assertFails(router, change("x"), "op=x");
  }

  @ParameterizedTest
  @CsvSource({"warn, WARN", "error, ERROR"})
  void updatesAreLoggedOnceAtThatLevel(String value, String level) {
    try (CapturedLog log = new CapturedLog()) {
      OutboxRouter<SourceRecord> router = router(UPDATES, value);
      router.apply(change("u"));
      router.apply(change("u"));
      assertEquals(1, log.count(Level.toLevel(level)));
      assertEquals(1, log.count(Level.DEBUG));
      assertTrue(
          log.text().contains("public.outbox_event with source_sequence " + OutboxEvents.SEQUENCE),
          log.text());
      assertFalse(log.text().contains("secret"));
    }
  }

  @ParameterizedTest
  @CsvSource({
    "library.public.outbox_event, library.public.outbox_event.Key",
    "renamed, library.public.outbox_event.Key"
  })
  void tombstoneAfterADeleteIsDropped(String topic, String keySchema) {
    SourceRecord after = Records.tombstone(topic, keySchema);
    assertNull(router(DELETES, "ignore").apply(after));
    assertThrows(DataException.class, () -> router(UPDATES, "warn").apply(after));
  }

  @Test
  void tombstonesOfOtherTablesAreNotSkipped() {
    SourceRecord other =
        Records.tombstone("library.public.my_outbox_event", "library.public.my_outbox_event.Key");
    assertThrows(DataException.class, () -> router(DELETES, "ignore").apply(other));
  }

  @ParameterizedTest
  @CsvSource({"u", "d", "t"})
  void changesOfOtherTablesAreNotSkipped(String operation) {
    SourceRecord other =
        OutboxEvents.insert().table("public", "author").operation(operation).record();
    OutboxRouter<SourceRecord> router = router(UPDATES, "warn", DELETES, "ignore");
    assertThrows(DataException.class, () -> router.apply(other));
  }
}
