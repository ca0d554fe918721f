package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.avro.TemporalWriters.TextOrNumberWriter;
import io.outboxkit.smt.util.IsoText;
import java.io.IOException;

/**
 * The timestamp and local-timestamp types: ISO-8601 text with or without an offset, as the type
 * asks, or the whole number that Avro keeps. Fraction digits beyond the unit are refused.
 */
final class TimestampWriter extends TextOrNumberWriter {
  private final IsoText iso = new IsoText();
  private final boolean local;
  private final Ticks unit;

  /**
   * @param type Avro's name of the logical type, {@code timestamp-micros}
   */
  TimestampWriter(String type) {
    super(
        String.format(
            "%s (ISO-8601 %s offset and at most %d fraction digits, or a whole number)",
            type, type.startsWith("local-") ? "without" : "with", digitsOf(type)));
    this.local = type.startsWith("local-");
    this.unit = new Ticks(digitsOf(type));
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    out.writeLong(json.currentToken() == JsonToken.VALUE_STRING ? parse(json) : exactLong(json));
  }

  private long parse(JsonParser json) throws IOException, PayloadException {
    char[] text = json.getTextCharacters();
    int offset = json.getTextOffset();
    int length = json.getTextLength();
    boolean read =
        local ? iso.localTimestamp(text, offset, length) : iso.timestamp(text, offset, length);
    if (!read) {
      throw mismatch("another string");
    }
    if (!unit.holds(iso.nano())) {
      throw mismatch("more fraction digits");
    }
    try {
      return unit.of(iso.epochSecond(), iso.nano());
    } catch (ArithmeticException e) {
      throw mismatch("a time out of range");
    }
  }

  private static int digitsOf(String type) {
    if (type.endsWith("-millis")) {
      return 3;
    }
    return type.endsWith("-micros") ? 6 : 9;
  }
}
