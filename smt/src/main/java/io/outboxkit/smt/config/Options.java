package io.outboxkit.smt.config;

import org.apache.kafka.common.config.ConfigDef;

/** Definition of a transform's options: {@code high(name, type, default, validator).doc(text)}. */
public final class Options extends ConfigDef {
  /** An option that is added to the definition by its documentation. */
  public interface Option {
    Options doc(String text);
  }

  public Option high(String name, Type type, Object defaultValue, Validator validator) {
    return option(name, type, defaultValue, validator, Importance.HIGH);
  }

  Option medium(String name, Type type, Object defaultValue, Validator validator) {
    return option(name, type, defaultValue, validator, Importance.MEDIUM);
  }

  Option low(String name, Type type, Object defaultValue, Validator validator) {
    return option(name, type, defaultValue, validator, Importance.LOW);
  }

  /** Add an option of one aggregate type, which the generated documentation does not have. */
  Options undocumented(String name, Type type, Object defaultValue, Validator validator) {
    return high(name, type, defaultValue, validator).doc("");
  }

  private Option option(
      String name, Type type, Object defaultValue, Validator validator, Importance importance) {
    return text -> (Options) define(name, type, defaultValue, validator, importance, text);
  }
}
