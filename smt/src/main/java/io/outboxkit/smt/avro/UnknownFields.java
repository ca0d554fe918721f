package io.outboxkit.smt.avro;

/** What becomes of a JSON field that the Avro record does not have. */
public enum UnknownFields {
  /** The payload does not fit: a field dropped in silence is loss. */
  REFUSE,
  /** The field is left out, whatever it holds. */
  IGNORE
}
