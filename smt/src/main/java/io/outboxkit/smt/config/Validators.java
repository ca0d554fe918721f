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

  /** Rejects invalid topic names, because sending a record to such a topic would time out. */
  public static final Validator TOPIC_NAME =
      ofString(
          "topic name: 1 to 249 letters, digits, '.', '_' and '-'",
          name -> TOPIC.matcher(name).matches());

  static final Validator TABLE_NAME =
      ofString("schema.table", name -> TABLE.matcher(name).matches());

  static final Validator URI_REFERENCE =
      ofString("URI reference, such as /library", Validators::isUriReference);

  static final Validator PASS_THROUGH =
      ofList(
          "list of transactions, schema-changes, messages, table:<schema.table>",
          list -> list.stream().allMatch(entry -> PASS_THROUGH_ENTRY.matcher(entry).matches()));

  static final Validator PLACEMENTS =
      optional(
          HeaderPlacements.SYNTAX,
          (name, value) -> HeaderPlacements.parse(name, strings(value), false));

  static final Validator DISTINCT_LIST =
      ofList("list without empty entries and duplicates", Validators::isDistinct);

  static final Validator AGGREGATE_TYPES =
      ofList("non-empty list without duplicates", list -> !list.isEmpty() && isDistinct(list));

  private Validators() {}

  /** Return a validator that accepts null and all values that the check accepts. */
  public static Validator optional(String allowed, Validator check) {
    return LambdaValidator.with(
        (name, value) -> {
          if (value != null) {
            check.ensureValid(name, value);
          }
        },
        () -> allowed);
  }

  static List<String> strings(Object list) {
    return ((List<?>) list).stream().map(String.class::cast).toList();
  }

  private static Validator ofString(String allowed, Predicate<String> valid) {
    return optional(
        allowed, (name, value) -> require(valid.test((String) value), name, value, allowed));
  }

  private static Validator ofList(String allowed, Predicate<List<String>> valid) {
    return optional(
        allowed, (name, value) -> require(valid.test(strings(value)), name, value, allowed));
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
