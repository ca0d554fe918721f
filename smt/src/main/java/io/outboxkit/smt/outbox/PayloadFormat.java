package io.outboxkit.smt.outbox;

import java.util.Arrays;
import java.util.stream.Collectors;

/** What the payload column of an aggregate type holds. */
enum PayloadFormat {
  JSON("json", false, true),
  AVRO("avro", true, true),
  CONFLUENT_AVRO("confluent-avro", true, true),
  TEXT("text", false, false);

  /** All of them in words, for messages. */
  static final String ALL =
      Arrays.stream(values()).map(format -> format.code).collect(Collectors.joining(", "));

  private final String code;
  private final boolean binary;
  private final boolean schemas;

  PayloadFormat(String code, boolean binary, boolean schemas) {
    this.code = code;
    this.binary = binary;
    this.schemas = schemas;
  }

  /** The format of that name; null if there is none. */
  static PayloadFormat of(String code) {
    return Arrays.stream(values())
        .filter(format -> format.code.equals(code))
        .findFirst()
        .orElse(null);
  }

  String code() {
    return code;
  }

  /** Whether the column has to be bytea; otherwise it has to be jsonb, json or text. */
  boolean isBinary() {
    return binary;
  }

  /** Whether there are schema versions to write or to check payloads by. */
  boolean hasSchemas() {
    return schemas;
  }
}
