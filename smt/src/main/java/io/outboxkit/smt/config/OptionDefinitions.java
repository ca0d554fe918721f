package io.outboxkit.smt.config;

import org.apache.kafka.common.config.ConfigDef;

/** ConfigDef with options defined by {@code high(name, type, default, validator).doc(text)}. */
public final class OptionDefinitions extends ConfigDef {
  /** An option without documentation. {@link #doc} adds the option with the given text. */
  public interface PendingOption {
    OptionDefinitions doc(String text);
  }

  public PendingOption high(String name, Type type, Object defaultValue, Validator validator) {
    return pendingOption(name, type, defaultValue, validator, Importance.HIGH);
  }

  PendingOption medium(String name, Type type, Object defaultValue, Validator validator) {
    return pendingOption(name, type, defaultValue, validator, Importance.MEDIUM);
  }

  PendingOption low(String name, Type type, Object defaultValue, Validator validator) {
    return pendingOption(name, type, defaultValue, validator, Importance.LOW);
  }

  /** Define a key of one aggregate type. The generated documentation does not list such keys. */
  OptionDefinitions aggregateKey(String name, Type type, Object defaultValue, Validator validator) {
    return high(name, type, defaultValue, validator).doc("");
  }

  private PendingOption pendingOption(
      String name, Type type, Object defaultValue, Validator validator, Importance importance) {
    return text ->
        (OptionDefinitions) define(name, type, defaultValue, validator, importance, text);
  }
}
