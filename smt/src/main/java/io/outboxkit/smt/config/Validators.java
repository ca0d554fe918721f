package io.outboxkit.smt.config;

import io.outboxkit.smt.outbox.HeaderPlacements;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.List;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigDef.LambdaValidator;
import org.apache.kafka.common.config.ConfigDef.Validator;
import org.apache.kafka.common.config.ConfigException;

/** Validators of option values. They accept null, which is the value of an unset option. */
public final class Validators {
  private static final Pattern TOPIC = Pattern.compile("(?!\\.{1,2}$)[A-Za-z0-9._-]{1,249}");
  private static final Pattern TABLE = Pattern.compile("[^.]+\\..+");
  private static final Pattern PASS_THROUGH_ENTRY =
      Pattern.compile("transactions|schema-changes|messages|table:\\S+\\.\\S+");

  /** Rejects an invalid topic name when the task starts, before records are sent to the topic. */
  public static final Validator TOPIC_NAME =
      ofString(
          "topic name: 1 to 249 letters, digits, '.', '_' and '-', but not '.' or '..'",
          name -> TOPIC.matcher(name).matches());

  static final Validator TABLE_NAME =
      ofString("table as SCHEMA.TABLE", name -> TABLE.matcher(name).matches());

  static final Validator URI_REFERENCE =
      ofString("URI reference, such as /library", Validators::isUriReference);

  static final Validator PASS_THROUGH =
      ofList(
          "list of transactions, schema-changes, messages, table:SCHEMA.TABLE",
          list -> list.stream().allMatch(entry -> PASS_THROUGH_ENTRY.matcher(entry).matches()));

  static final Validator PLACEMENTS =
      optional(
          "list of " + HeaderPlacements.ENTRY_SYNTAX,
          (name, value) -> HeaderPlacements.parse(name, strings(value), false));

  static final Validator DISTINCT_LIST =
      ofList("list without empty entries or duplicates", Validators::isDistinct);

  static final Validator AGGREGATE_TYPES =
      ofList("non-empty list of distinct types", list -> !list.isEmpty() && isDistinct(list));

  private Validators() {}

  /** Return a validator that also accepts null. {@code allowed} describes the accepted values. */
  public static Validator optional(String allowed, Validator validator) {
    return LambdaValidator.with(
        (name, value) -> {
          if (value != null) {
            validator.ensureValid(name, value);
          }
        },
        () -> allowed);
  }

  static List<String> strings(Object list) {
    return ((List<?>) list).stream().map(String.class::cast).toList();
  }

  private static Validator ofString(String allowed, Predicate<String> isValid) {
    return optional(
        allowed, (name, value) -> require(isValid.test((String) value), name, value, allowed));
  }

  private static Validator ofList(String allowed, Predicate<List<String>> isValid) {
    return optional(
        allowed, (name, value) -> require(isValid.test(strings(value)), name, value, allowed));
  }

  private static void require(boolean valid, String name, Object value, String allowed) {
    if (!valid) {
      throw new ConfigException(name, value, "must be a " + allowed);
    }
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
}
