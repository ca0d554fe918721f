package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonToken;

/**
 * A JSON value that does not fit its Avro schema. Names the path of the value and what was expected
 * there, never the value.
 *
 * <p>Carries no stack trace: a backlog written under an older schema version raises one per row.
 */
public final class PayloadException extends Exception {
  private static final long serialVersionUID = 1L;

  private final String path;
  private final String problem;

  /**
   * @param problem what was expected and what kind of value was found
   */
  public PayloadException(String problem) {
    this("", problem);
  }

  private PayloadException(String path, String problem) {
    super(null, null, false, false);
    this.path = path;
    this.problem = problem;
  }

  static PayloadException mismatch(String expected, JsonToken found) {
    return new PayloadException("expected " + expected + ", found " + kindOf(found));
  }

  /**
   * The same problem seen from one level further out.
   *
   * @param step a field name, or {@code [3]} for an array item, or {@code {}} for a map value (the
   *     keys of a map are data and stay out of messages)
   */
  PayloadException within(String step) {
    String separator = path.isEmpty() || path.startsWith("[") || path.startsWith("{") ? "" : ".";
    return new PayloadException(step + separator + path, problem);
  }

  @Override
  public String getMessage() {
    return (path.isEmpty() ? "payload" : path) + ": " + problem;
  }

  private static String kindOf(JsonToken token) {
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
