package io.outboxkit.smt.property;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.DateTimeException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;

/** Reads dates and times for ReferenceReader, with java.time. */
final class Instants {
  private Instants() {}

  /**
   * Return the number that represents the text in Avro.
   *
   * @param type name of the logical type
   */
  static BigInteger read(String type, String text) {
    try {
      if (type.equals("date")) {
        return BigInteger.valueOf(LocalDate.parse(text).toEpochDay());
      }
      if (type.startsWith("time-")) {
        return ticks(type, 0, LocalTime.parse(text));
      }
      LocalDateTime utc =
          type.startsWith("local-")
              ? LocalDateTime.parse(text)
              : OffsetDateTime.parse(text).withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime();
      return ticks(type, utc.toLocalDate().toEpochDay(), utc.toLocalTime());
    } catch (DateTimeException e) {
      throw new ReferenceReader.Rejected(text);
    }
  }

  /** Reject times of day outside the day. Other numbers have no limits. */
  static void requireInRange(String type, BigInteger number) {
    if (type.startsWith("time-")) {
      BigInteger day = ticks(type, 1, LocalTime.MIDNIGHT);
      ReferenceReader.require(number.signum() >= 0 && number.compareTo(day) < 0, number);
    }
  }

  private static BigInteger ticks(String type, long days, LocalTime time) {
    int digits = type.endsWith("-millis") ? 3 : type.endsWith("-micros") ? 6 : 9;
    BigDecimal nanos =
        BigDecimal.valueOf(days)
            .multiply(BigDecimal.valueOf(86_400_000_000_000L))
            .add(BigDecimal.valueOf(time.toNanoOfDay()));
    try {
      return nanos.movePointLeft(9 - digits).toBigIntegerExact();
    } catch (ArithmeticException e) {
      throw new ReferenceReader.Rejected("more digits than the type has");
    }
  }
}
