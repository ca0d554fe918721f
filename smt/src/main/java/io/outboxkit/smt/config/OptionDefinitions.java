package io.outboxkit.smt.config;

import org.apache.kafka.common.config.ConfigDef;

/** Definitions of options, each by {@code high(name, type, default, validator).doc(text)}. */
public final class OptionDefinitions extends ConfigDef {
  /** An option without documentation; {@link #doc} adds it to the definitions. */
  public interface PendingOption {
    OptionDefinitions doc(String text);
  }

  public PendingOption high(String name, Type type, Object defaultValue, Validator validator) {
    return option(name, type, defaultValue, validator, Importance.HIGH);
  }

  PendingOption medium(String name, Type type, Object defaultValue, Validator validator) {
    return option(name, type, defaultValue, validator, Importance.MEDIUM);
  }

  PendingOption low(String name, Type type, Object defaultValue, Validator validator) {
    return option(name, type, defaultValue, validator, Importance.LOW);
  }

  /** Add a key of one aggregate type, which is not part of the generated documentation. */
  OptionDefinitions undocumented(String name, Type type, Object defaultValue, Validator validator) {
    return high(name, type, defaultValue, validator).doc("");
  }

  private PendingOption option(
      String name, Type type, Object defaultValue, Validator validator, Importance importance) {
    return text ->
        (OptionDefinitions) define(name, type, defaultValue, validator, importance, text);
  }
}
