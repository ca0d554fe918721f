package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.avro.NumberWriters.NumberWriter;
import io.outboxkit.smt.util.IsoDateTimeParser;
import java.io.IOException;

/** Writers of date, time and timestamp types. Values are ISO-8601 text or integers. */
final class TemporalWriters {
  private TemporalWriters() {}

  static final class DateWriter extends NumberWriter {
    private final IsoDateTimeParser isoParser = new IsoDateTimeParser();

    DateWriter() {
      super("date (YYYY-MM-DD or days since 1970-01-01)", JsonToken.VALUE_STRING);
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      if (parser.currentToken() != JsonToken.VALUE_STRING) {
        out.writeInt(readExactInt(parser));
      } else if (isoParser.parseDate(
          parser.getTextCharacters(), parser.getTextOffset(), parser.getTextLength())) {
        out.writeInt((int) isoParser.epochDay());
      } else {
        throw mismatch("a string in a different format");
      }
    }
  }

  static final class TimeWriter extends NumberWriter {
    private final IsoDateTimeParser isoParser = new IsoDateTimeParser();
    private final TimeResolution resolution;

    /** {@code type} is {@code time-millis} (an int) or {@code time-micros} (a long). */
    TimeWriter(String type) {
      super(
          "%s (HH:MM:SS with at most %d fraction digits, or an integer)"
              .formatted(type, TimeResolution.of(type).fractionDigits),
          JsonToken.VALUE_STRING);
      this.resolution = TimeResolution.of(type);
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      if (parser.currentToken() != JsonToken.VALUE_STRING) {
        long ticks = readExactLong(parser);
        if (ticks < 0 || ticks >= resolution.ticksPerDay()) {
          throw mismatch("a number out of range");
        }
        // This is also valid for time-millis, because Avro encodes ints and longs the same way.
        out.writeLong(ticks);
      } else if (isoParser.parseTime(
              parser.getTextCharacters(), parser.getTextOffset(), parser.getTextLength())
          && resolution.isExact(isoParser.nano())) {
        out.writeLong(resolution.toTicks(isoParser.epochSecond(), isoParser.nano()));
      } else {
        throw mismatch("a string in a different format");
      }
    }
  }

  /** Writes timestamps. The text has a UTC offset, unless the timestamp is local. */
  static final class TimestampWriter extends NumberWriter {
    private final IsoDateTimeParser isoParser = new IsoDateTimeParser();
    private final boolean isLocal;
    private final TimeResolution resolution;

    /** {@code type} is a logical type, such as {@code timestamp-micros}. */
    TimestampWriter(String type) {
      super(
          "%s (ISO-8601 %s UTC offset and at most %d fraction digits, or an integer)"
              .formatted(
                  type,
                  type.startsWith("local-") ? "without" : "with",
                  TimeResolution.of(type).fractionDigits),
          JsonToken.VALUE_STRING);
      this.isLocal = type.startsWith("local-");
      this.resolution = TimeResolution.of(type);
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      out.writeLong(
          parser.currentToken() == JsonToken.VALUE_STRING ? parse(parser) : readExactLong(parser));
    }

    private long parse(JsonParser parser) throws IOException, PayloadException {
      char[] text = parser.getTextCharacters();
      int offset = parser.getTextOffset();
      int length = parser.getTextLength();
      boolean valid =
          isLocal
              ? isoParser.parseLocalTimestamp(text, offset, length)
              : isoParser.parseTimestamp(text, offset, length);
      if (!valid) {
        throw mismatch("a string in a different format");
      }
      if (!resolution.isExact(isoParser.nano())) {
        throw mismatch("more than " + resolution.fractionDigits + " fraction digits");
      }
      try {
        return resolution.toTicks(isoParser.epochSecond(), isoParser.nano());
      } catch (ArithmeticException e) {
        throw mismatch("a time out of range");
      }
    }
  }

  private enum TimeResolution {
    MILLIS(3, 1_000),
    MICROS(6, 1_000_000),
    NANOS(9, 1_000_000_000);

    private static final long SECONDS_PER_DAY = 86_400;

    private final int fractionDigits;
    private final long ticksPerSecond;
    private final int nanosPerTick;

    TimeResolution(int fractionDigits, int ticksPerSecond) {
      this.fractionDigits = fractionDigits;
      this.ticksPerSecond = ticksPerSecond;
      this.nanosPerTick = 1_000_000_000 / ticksPerSecond;
    }

    /** Return the resolution of a logical type, such as {@code timestamp-micros}. */
    static TimeResolution of(String type) {
      return type.endsWith("-millis") ? MILLIS : type.endsWith("-micros") ? MICROS : NANOS;
    }

    /** Return whether the nanoseconds are a multiple of one tick. */
    boolean isExact(int nanos) {
      return nanos % nanosPerTick == 0;
    }

    /** Return the number of ticks. Throw ArithmeticException if it overflows a long. */
    long toTicks(long seconds, int nanos) {
      // Near Long.MIN_VALUE, the product can overflow although the number of ticks does not.
      return seconds < 0 && nanos > 0
          ? Math.addExact(
              Math.multiplyExact(seconds + 1, ticksPerSecond),
              nanos / nanosPerTick - ticksPerSecond)
          : Math.addExact(Math.multiplyExact(seconds, ticksPerSecond), nanos / nanosPerTick);
    }

    long ticksPerDay() {
      return SECONDS_PER_DAY * ticksPerSecond;
    }
  }
}
