package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.api.function.Executable;

/** Assertions on the class of an error and on the names and values in its message. */
public final class Errors {
  private Errors() {}

  /** Assert that an option is rejected, or missing if the value is null. */
  static void assertRejected(String option, Object value, Executable configure) {
    String message = assertThrows(ConfigException.class, configure).getMessage();
    boolean missing = message.startsWith("Missing required configuration \"" + option + "\"");
    assertTrue(
        value == null && missing
            || message.startsWith("Invalid value " + value + " for configuration " + option + ": "),
        message);
  }

  /** Assert that a record stops the task, and return the message. */
  static String assertFails(Transformation<SourceRecord> transform, SourceRecord record) {
    return assertThrows(DataException.class, () -> transform.apply(record)).getMessage();
  }

  /** Assert that a record stops the task, and that the message has the texts. */
  static void assertFails(
      Transformation<SourceRecord> transform, SourceRecord record, String... texts) {
    String message = assertFails(transform, record);
    for (String text : texts) {
      assertTrue(message.contains(text), message);
    }
  }
}
