package io.outboxkit.smt;

import static io.outboxkit.smt.Routers.headers;
import static io.outboxkit.smt.Routers.router;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.NullSource;
import org.junit.jupiter.params.provider.ValueSource;

/** aggregate.T.tombstone.event.types. */
class TombstoneEventTypesTest {
  private static final String[] OPTION = {
    "aggregate.note.tombstone.event.types", "NoteErased, NoteMerged", "max.record.bytes", "500"
  };

  private final OutboxRouter<SourceRecord> router = router(OPTION);

  /** For any payload: valid, invalid, not JSON, too large, null. */
  @ParameterizedTest
  @NullSource
  @ValueSource(strings = {"{\"text\": \"a\"}", "{\"x\": 1}", "secret", "", "null", "LARGE"})
  void listedTypesBecomeTombstones(String payload) {
    String text = "LARGE".equals(payload) ? "x".repeat(5000) : payload;
    for (String type : new String[] {"NoteErased", "NoteMerged"}) {
      SourceRecord out =
          router.apply(OutboxEvents.insert().payload(text).with("event_type", type).record());
      assertEquals("library.note", out.topic());
      assertEquals("note-1", out.key());
      assertNull(out.value());
      assertNull(out.valueSchema());
      assertEquals(type, headers(out).get("event_type"));
      assertEquals(5, headers(out).size());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"NoteWritten", "noteerased", "NoteErased ", "Note"})
  void otherTypesAreNotTombstones(String type) {
    SourceRecord out = router.apply(OutboxEvents.insert().with("event_type", type).record());
    assertNotNull(out.value());
  }

  @Test
  void otherColumnsMustBeValid() {
    SourceRecord out =
        router.apply(
            OutboxEvents.insert()
                .with("event_type", "NoteErased")
                .with("aggregate_id", "")
                .record());
    assertEquals("empty-key", headers(out).get("dead_letter_reason"));
  }

  @Test
  void listedTypesApplyToOtherFormats() {
    SourceRecord out =
        router(
                "aggregate.note.tombstone.event.types", "NoteErased",
                "aggregate.note.payload.format", "avro")
            .apply(
                OutboxEvents.insert()
                    .with("event_type", "NoteErased")
                    .column("payload", Schema.OPTIONAL_BYTES_SCHEMA, new byte[] {1, 2, 3})
                    .record());
    assertEquals("library.note", out.topic());
    assertNull(out.value());
  }
}
