package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.util.IsoText;
import java.io.IOException;

/** Writers of date and time of day: ISO-8601 text, or the number that Avro keeps. */
final class TemporalWriters {
  private TemporalWriters() {}

  static ValueWriter date() {
    return new TextOrNumberWriter("date (YYYY-MM-DD or whole days since 1970-01-01)") {
      private final IsoText iso = new IsoText();

      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        if (json.currentToken() != JsonToken.VALUE_STRING) {
          out.writeInt(exactInt(json));
        } else if (iso.date(json.getTextCharacters(), json.getTextOffset(), json.getTextLength())) {
          out.writeInt((int) iso.epochDay());
        } else {
          throw mismatch("another string");
        }
      }
    };
  }

  static ValueWriter timeMillis() {
    return new TimeOfDayWriter("time-millis", 3) {
      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        out.writeInt((int) ticks(json));
      }
    };
  }

  static ValueWriter timeMicros() {
    return new TimeOfDayWriter("time-micros", 6) {
      @Override
      void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
        out.writeLong(ticks(json));
      }
    };
  }

  /** A number or a string. */
  abstract static class TextOrNumberWriter extends NumberWriter {
    TextOrNumberWriter(String expected) {
      super(expected);
    }

    @Override
    final boolean takes(JsonToken token) {
      return token.isNumeric() || token == JsonToken.VALUE_STRING;
    }
  }

  private abstract static class TimeOfDayWriter extends TextOrNumberWriter {
    private final IsoText iso = new IsoText();
    private final Ticks unit;

    TimeOfDayWriter(String type, int digits) {
      super(type + " (HH:MM:SS with at most " + digits + " fraction digits, or a whole number)");
      this.unit = new Ticks(digits);
    }

    final long ticks(JsonParser json) throws IOException, PayloadException {
      if (json.currentToken() != JsonToken.VALUE_STRING) {
        long ticks = exactLong(json);
        if (ticks < 0 || ticks >= unit.perDay()) {
          throw mismatch("a number out of range");
        }
        return ticks;
      }
      if (!iso.time(json.getTextCharacters(), json.getTextOffset(), json.getTextLength())
          || !unit.holds(iso.nano())) {
        throw mismatch("another string");
      }
      return unit.of(iso.epochSecond(), iso.nano());
    }
  }
}
