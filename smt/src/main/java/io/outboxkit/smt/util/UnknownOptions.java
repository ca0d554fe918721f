package io.outboxkit.smt.util;

import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigException;

/** Names that are no option: a mistyped one must not leave its default in force in silence. */
public final class UnknownOptions {
  /** What Connect itself keeps under the name of a transform. */
  private static final Set<String> OF_CONNECT =
      Set.of("type", "plugin.version", "predicate", "negate");

  private UnknownOptions() {}

  /**
   * @throws ConfigException if one of the properties is no option of that transform
   */
  public static void refuse(String transform, Map<String, ?> props, Set<String> options) {
    for (String name : new TreeSet<>(props.keySet())) {
      refuseUnknown(transform, name, props.get(name), options, Map.of());
    }
  }

  /**
   * The same of a transform that reads the options with a prefix by itself.
   *
   * @param instead what to do instead of some options of other transforms
   */
  public static void refuse(
      String transform,
      Map<String, ?> props,
      Set<String> options,
      String prefix,
      Map<String, String> instead) {
    for (String name : new TreeSet<>(props.keySet())) {
      if (!name.startsWith(prefix)) {
        refuseUnknown(transform, name, props.get(name), options, instead);
      }
    }
  }

  private static void refuseUnknown(
      String transform,
      String name,
      Object value,
      Set<String> options,
      Map<String, String> instead) {
    if (!options.contains(name) && !OF_CONNECT.contains(name)) {
      String remedy = instead.getOrDefault(name, "the options are " + options);
      throw new ConfigException(name, value, "not an option of " + transform + "; " + remedy);
    }
  }
}
