package io.outboxkit.smt.config;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.List;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/** Validators of option values. They accept null, which stands for an option that is not set. */
public final class Validators {
  private static final Pattern TOPIC = Pattern.compile("(?!\\.{1,2}$)[A-Za-z0-9._-]{1,249}");

  /** Sending to a topic with another name would time out. */
  public static final ConfigDef.Validator TOPIC_NAME =
      ofString("topic name: 1 to 249 letters, digits, '.', '_' and '-'", Validators::isTopic);

  static final ConfigDef.Validator TABLE_NAME =
      ofString("schema.table", table -> table.matches("[^.]+\\..+"));

  static final ConfigDef.Validator URI_REFERENCE =
      ofString("URI reference, such as /library", Validators::isUriReference);

  static final ConfigDef.Validator PASS_THROUGH =
      ofList(
          "list of transactions, schema-changes, messages, table:<schema.table>",
          list ->
              list.stream()
                  .allMatch(
                      entry ->
                          entry.matches("transactions|schema-changes|messages")
                              || entry.matches("table:\\S+\\.\\S+")));

  static final ConfigDef.Validator DISTINCT_LIST =
      ofList("list without empty entries and duplicates", Validators::isDistinct);

  static final ConfigDef.Validator NON_EMPTY_DISTINCT_LIST =
      ofList("non-empty list without duplicates", list -> !list.isEmpty() && isDistinct(list));

  private Validators() {}

  static boolean isTopic(String name) {
    return TOPIC.matcher(name).matches();
  }

  private static boolean isUriReference(String text) {
    try {
      new URI(text);
      return !text.isBlank();
    } catch (URISyntaxException e) {
      return false;
    }
  }

  private static boolean isDistinct(List<String> list) {
    return !list.contains("") && list.stream().distinct().count() == list.size();
  }

  private static ConfigDef.Validator ofString(String allowed, Predicate<String> valid) {
    return validator(allowed, value -> valid.test((String) value));
  }

  private static ConfigDef.Validator ofList(String allowed, Predicate<List<String>> valid) {
    return validator(
        allowed, value -> valid.test(((List<?>) value).stream().map(String.class::cast).toList()));
  }

  private static ConfigDef.Validator validator(String allowed, Predicate<Object> valid) {
    return ConfigDef.LambdaValidator.with(
        (name, value) -> {
          if (value != null && !valid.test(value)) {
            throw new ConfigException(name, value, "must be a " + allowed);
          }
        },
        () -> allowed);
  }
}
