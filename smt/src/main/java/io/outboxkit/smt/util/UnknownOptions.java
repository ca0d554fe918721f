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
      if (!isKnown(name, options)) {
        throw refusal(transform, name, props.get(name), "the options are " + options);
      }
    }
  }

  public static boolean isKnown(String name, Set<String> options) {
    return options.contains(name) || OF_CONNECT.contains(name);
  }

  /**
   * What to throw for one name.
   *
   * @param remedy what to do instead
   */
  public static ConfigException refusal(
      String transform, String name, Object value, String remedy) {
    return new ConfigException(name, value, "not an option of " + transform + "; " + remedy);
  }
}
