package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Errors.assertRejected;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Topics by the value of a field. A value that is not listed fails. */
class RouteByFieldTest {
  private static RouteByField<SourceRecord> route(String field, String topics) {
    Map<String, String> props = new HashMap<>();
    props.put("field", field);
    props.put("topics", topics);
    RouteByField<SourceRecord> transform = new RouteByField<>();
    transform.configure(props);
    return transform;
  }

  static Stream<Arguments> routes() {
    return Stream.of(
        arguments("header.aggregate_type", "note:to.note,book:to.book", Rows.row(), "to.note"),
        arguments("key", "note-1 : to.key", Rows.row(), "to.key"),
        arguments("value.event_type", "NoteWritten:w", Rows.row(), "w"),
        arguments("header.n", "7:seven", Rows.row().header("n", 7), "seven"),
        // The last colon separates: aggregate types can contain colons, topic names cannot.
        arguments("header.n", "a:b:c", Rows.row().header("n", "a:b"), "c"));
  }

  @ParameterizedTest
  @MethodSource("routes")
  void valueDeterminesTheTopic(String field, String topics, Rows row, String topic) {
    assertEquals(topic, route(field, topics).apply(row.record()).topic());
  }

  @Test
  void onlyTheTopicChanges() {
    SourceRecord record = Rows.row().record();
    SourceRecord routed = route("key", "note-1:t").apply(record);
    assertSame(record.key(), routed.key());
    assertSame(record.value(), routed.value());
    assertSame(record.valueSchema(), routed.valueSchema());
    assertEquals(record.timestamp(), routed.timestamp());
    assertEquals(record.headers(), routed.headers());
  }

  @ParameterizedTest
  @CsvSource({
    "magazine, '\"magazine\"'",
    "jane@example.org, (a name of 16 characters)",
    "'', (a name of 0 characters)",
    ", null"
  })
  void valuesThatAreNotListedFail(String value, String reported) {
    assertFails(
        route("header.type", "a:b"),
        Rows.row().header("type", value).record(),
        "Field header.type on topic library.note",
        " is " + reported + ",");
  }

  @ParameterizedTest
  @CsvSource({
    ", a:b, field,",
    "key, , topics,",
    "key, '', topics, []",
    "key, a, topics, [a]",
    "key, a:b/c, topics, b/c"
  })
  void invalidOptionsAreRejected(String field, String topics, String option, String reported) {
    Map<String, String> props = Routers.with(new HashMap<>(), "field", field, "topics", topics);
    assertRejected(option, reported, () -> new RouteByField<>().configure(props));
  }
}
