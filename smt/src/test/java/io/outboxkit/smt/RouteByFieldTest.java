package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Topics by the value of a field; a value that is not listed has none. */
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
        // The last colon divides: types may have some, topics cannot.
        arguments("header.n", "a:b:c", Rows.row().header("n", "a:b"), "c"));
  }

  @ParameterizedTest
  @MethodSource("routes")
  void valuePicksTheTopic(String field, String topics, Rows row, String topic) {
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

  static Stream<Arguments> refusedRecords() {
    return Stream.of(
        arguments("magazine", "\"magazine\""),
        arguments("jane@example.org", "(a name of 16 characters)"),
        arguments("", "(a name of 0 characters)"),
        arguments(null, "null"));
  }

  @ParameterizedTest
  @MethodSource("refusedRecords")
  void otherValuesAreRefused(String value, String shown) {
    SourceRecord record = Rows.row().header("type", value).record();
    assertEquals(
        "Field header.type on topic library.note is " + shown + ", which is not in topics.",
        assertThrows(DataException.class, () -> route("header.type", "a:b").apply(record))
            .getMessage());
  }

  static Stream<Arguments> misconfigurations() {
    return Stream.of(
        arguments(
            null, "a:b", "Missing required configuration \"field\" which has no default value."),
        arguments(
            "key", null, "Missing required configuration \"topics\" which has no default value."),
        arguments(
            "key",
            "",
            "Invalid value [] for configuration topics: must list one or more value:topic"),
        arguments(
            "key", "a", "Invalid value [a] for configuration topics: must be a list of name:value"),
        arguments(
            "key",
            "a:b/c",
            "Invalid value b/c for configuration topics: must be a topic name: 1 to 249 letters,"
                + " digits, '.', '_' and '-'"));
  }

  @ParameterizedTest
  @MethodSource("misconfigurations")
  void misconfigurationIsRefused(String field, String topics, String message) {
    Map<String, String> props = new HashMap<>();
    props.put("field", field);
    props.put("topics", topics);
    props.values().removeIf(value -> value == null);
    RouteByField<SourceRecord> transform = new RouteByField<>();
    assertEquals(
        message,
        assertThrows(ConfigException.class, () -> transform.configure(props)).getMessage());
  }
}
