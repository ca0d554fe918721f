package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonToken;

/**
 * Thrown for a payload that does not fit its Avro schema. The message contains the path and the
 * problem, but never the value. The exception has no stack trace, because stack traces are costly:
 * each backlog row with an older schema version causes an exception.
 */
public final class PayloadException extends Exception {
  private static final long serialVersionUID = 1L;

  private final String path;
  private final String problem;

  public PayloadException(String problem) {
    this("", problem);
  }

  private PayloadException(String path, String problem) {
    super(null, null, false, false);
    this.path = path;
    this.problem = problem;
  }

  static PayloadException mismatch(String expected, JsonToken actual) {
    return new PayloadException("expected " + expected + ", found " + describeType(actual));
  }

  /**
   * Return a copy of the exception with a step prepended to its path.
   *
   * @param step a field name, {@code [3]} for an array item, or {@code {}} for a map value, whose
   *     key is data and must not appear in messages
   */
  PayloadException within(String step) {
    String separator = path.isEmpty() || path.startsWith("[") || path.startsWith("{") ? "" : ".";
    return new PayloadException(step + separator + path, problem);
  }

  @Override
  public String getMessage() {
    return (path.isEmpty() ? "payload" : path) + ": " + problem;
  }

  private static String describeType(JsonToken token) {
    if (token == null) {
      return "no value";
    }
    return switch (token) {
      case START_OBJECT -> "object";
      case START_ARRAY -> "array";
      case VALUE_STRING -> "string";
      case VALUE_NUMBER_INT, VALUE_NUMBER_FLOAT -> "number";
      case VALUE_TRUE, VALUE_FALSE -> "boolean";
      case VALUE_NULL -> "null";
      default -> "no value";
    };
  }
}
