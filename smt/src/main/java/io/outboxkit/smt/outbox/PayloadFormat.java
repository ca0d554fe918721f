package io.outboxkit.smt.outbox;

import java.util.Arrays;
import java.util.Locale;

/** Formats of the payload column. Their codes are values of {@code aggregate.T.payload.format}. */
public enum PayloadFormat {
  JSON,
  AVRO,
  CONFLUENT_AVRO,
  TEXT,
  BYTES;

  public String code() {
    return name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  /** Return true if the column must be bytea, false if it must be jsonb, json or text. */
  public boolean isBinary() {
    return this == AVRO || this == CONFLUENT_AVRO || this == BYTES;
  }

  public static String[] codes() {
    return Arrays.stream(values()).map(PayloadFormat::code).toArray(String[]::new);
  }

  /** Throw IllegalArgumentException if the code is not one of {@link #codes}. */
  public static PayloadFormat of(String code) {
    return valueOf(code.toUpperCase(Locale.ROOT).replace('-', '_'));
  }
}
