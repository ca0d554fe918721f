package io.outboxkit.smt.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.Date;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class EventTimeTest {
  private static final String ZONED = "io.debezium.time.ZonedTimestamp";

  static Stream<Arguments> times() {
    return Stream.of(
        arguments("2026-11-20T18:31:38.123456Z", ZONED, "2026-11-20T18:31:38.123456Z"),
        arguments("2026-11-20T18:31:38.1Z", ZONED, "2026-11-20T18:31:38.100000Z"),
        arguments("2026-11-20T18:31:38Z", ZONED, "2026-11-20T18:31:38.000000Z"),
        arguments("2026-11-20T19:31:38.1234+01:00", ZONED, "2026-11-20T18:31:38.123400Z"),
        arguments("0001-01-01T00:00:00Z", ZONED, "0001-01-01T00:00:00.000000Z"),
        arguments(1_500L, "io.debezium.time.Timestamp", "1970-01-01T00:00:01.500000Z"),
        arguments(-1L, "io.debezium.time.MicroTimestamp", "1969-12-31T23:59:59.999999Z"),
        arguments(1_000L, "io.debezium.time.NanoTimestamp", "1970-01-01T00:00:00.000001Z"),
        arguments(
            new Date(1_500L),
            "org.apache.kafka.connect.data.Timestamp",
            "1970-01-01T00:00:01.500000Z"));
  }

  @ParameterizedTest
  @MethodSource("times")
  void isUtcWithSixFractionDigits(Object value, String schemaName, String expected) {
    assertEquals(expected, new EventTime().format(value, schemaName));
  }

  static Stream<Arguments> others() {
    return Stream.of(
        arguments(null, ZONED),
        arguments("infinity", ZONED),
        arguments("10000-01-01T00:00:00Z", ZONED),
        // The values of PostgreSQL's JDBC driver for infinity and -infinity.
        arguments(Long.MAX_VALUE, "io.debezium.time.MicroTimestamp"),
        arguments(Long.MIN_VALUE, "io.debezium.time.MicroTimestamp"),
        arguments(1L, null),
        arguments(1L, "io.debezium.time.Date"),
        arguments(1, "io.debezium.time.Timestamp"));
  }

  @ParameterizedTest
  @MethodSource("others")
  void otherValuesHaveNoTime(Object value, String schemaName) {
    assertNull(new EventTime().format(value, schemaName));
  }
}
