package io.outboxkit.smt.property;

import java.math.BigDecimal;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.Tuple;
import org.apache.avro.LogicalType;
import org.apache.avro.Schema;

/** Random JSON texts that fit a schema, with some random invalid values. */
final class Payloads {
  private static final int FITTING_WEIGHT = 40;
  private static final int MAX_DEPTH = 8;
  private static final long MICROS_PER_DAY = 86_400_000_000L;

  private Payloads() {}

  static Arbitrary<String> of(Schema schema) {
    return Combinators.combine(
            value(schema, 0), Arbitraries.frequency(Tuple.of(30, ""), Tuple.of(1, " x")))
        .as((json, after) -> " " + json + after);
  }

  private static Arbitrary<String> value(Schema schema, int depth) {
    return Arbitraries.frequencyOf(
        Tuple.of(FITTING_WEIGHT, Arbitraries.lazy(() -> fitting(schema, depth))),
        Tuple.of(1, any()));
  }

  /** Any small JSON value. */
  private static Arbitrary<String> any() {
    return Arbitraries.oneOf(
        Arbitraries.of("null", "true", "[]", "{}", "[1]", "{\"f0\": 1}", "\"A\"", ""),
        number(),
        text());
  }

  private static Arbitrary<String> fitting(Schema schema, int depth) {
    return switch (schema.getType()) {
      case NULL -> Arbitraries.just("null");
      case BOOLEAN -> Arbitraries.of("true", "false");
      case INT, LONG -> schema.getLogicalType() == null ? integer(schema) : temporal(schema);
      case FLOAT, DOUBLE -> number();
      case STRING -> schema.getLogicalType() == null ? text() : uuid();
      case BYTES, FIXED -> binary(schema);
      case ENUM ->
          Arbitraries.frequency(Tuple.of(9, "A"), Tuple.of(9, "C"), Tuple.of(1, "a"))
              .map(Payloads::quote);
      case ARRAY ->
          value(schema.getElementType(), depth + 1)
              .list()
              .ofMaxSize(4)
              .map(items -> "[" + String.join(", ", items) + "]");
      case MAP -> map(schema, depth);
      case UNION -> union(schema, depth);
      case RECORD -> record(schema, depth);
    };
  }

  private static Arbitrary<String> union(Schema schema, int depth) {
    if (depth > MAX_DEPTH) {
      return Arbitraries.just("null");
    }
    List<Arbitrary<String>> branches = new ArrayList<>();
    schema.getTypes().forEach(branch -> branches.add(fitting(branch, depth + 1)));
    return Arbitraries.oneOf(branches);
  }

  private static Arbitrary<String> map(Schema schema, int depth) {
    Arbitrary<String> key = Arbitraries.oneOf(Arbitraries.of("\"k\"", "\"\"", "\"é\""), text());
    return Combinators.combine(key, value(schema.getValueType(), depth + 1))
        .as((name, value) -> name + ": " + value)
        .list()
        .ofMaxSize(3)
        .map(members -> "{" + String.join(", ", members) + "}");
  }

  private static Arbitrary<String> record(Schema schema, int depth) {
    List<Arbitrary<String>> members = new ArrayList<>();
    for (Schema.Field field : schema.getFields()) {
      String name = quote(field.name()) + ": ";
      members.add(value(field.schema(), depth + 1).map(name::concat));
    }
    return Combinators.combine(
            Combinators.combine(members).as(ArrayList::new),
            Arbitraries.integers().between(0, FITTING_WEIGHT),
            Arbitraries.longs())
        .as((list, change, seed) -> "{" + String.join(", ", changed(list, change, seed)) + "}");
  }

  /** Shuffle, remove, repeat or add a member, or return the members unchanged. */
  private static List<String> changed(List<String> members, int change, long seed) {
    Random random = new Random(seed);
    int any = members.isEmpty() ? -1 : random.nextInt(members.size());
    if (any >= 0 && change < 3) {
      members.remove(any);
    } else if (any >= 0 && change == 3) {
      members.add(members.get(any));
    } else if (change == 4) {
      members.add("\"unknown\": {\"f0\": [1]}");
    } else if (change % 2 == 0) {
      Collections.shuffle(members, random);
    }
    return members;
  }

  /** Integers in the type's range, and some numbers that are similar to integers. */
  private static Arbitrary<String> integer(Schema schema) {
    Arbitrary<String> inRange =
        schema.getType() == Schema.Type.INT
            ? Arbitraries.integers().map(String::valueOf)
            : Arbitraries.longs().map(String::valueOf);
    return Arbitraries.frequencyOf(
        Tuple.of(12, inRange),
        Tuple.of(2, Arbitraries.of("1.0", "1e3", "-0", "120E-1", "2147483647.0")),
        Tuple.of(1, number()));
  }

  private static Arbitrary<String> number() {
    return Arbitraries.oneOf(
        Arbitraries.longs().map(String::valueOf),
        Arbitraries.bigIntegers().map(String::valueOf),
        Arbitraries.doubles().map(String::valueOf),
        Arbitraries.floats().map(String::valueOf),
        Arbitraries.bigDecimals().ofScale(20).map(BigDecimal::toString),
        Arbitraries.of(
            "-0",
            "-0.0",
            "1e3",
            "1E400",
            "1e-400",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "2147483648",
            "3.4028236e38",
            "1.00000000000000000000000001",
            "0.1e1",
            "01",
            "+1",
            "1.",
            "NaN"));
  }

  private static Arbitrary<String> text() {
    return Arbitraries.oneOf(
            Arbitraries.strings().ofMaxLength(20),
            Arbitraries.strings()
                .withChars("ab\"\\/\n\t é€ß\u2028中{}[]:,0\ud83d\ude00")
                .ofMaxLength(12),
            Arbitraries.of("", "1", "1.5", "null", "2026-11-20", "x".repeat(5000)))
        .map(Payloads::quote);
  }

  private static Arbitrary<String> uuid() {
    return Arbitraries.frequencyOf(
        Tuple.of(
            20,
            Arbitraries.longs()
                .tuple2()
                .map(halves -> quote(new UUID(halves.get1(), halves.get2()).toString()))),
        Tuple.of(1, Arbitraries.of("\"6F1C1F0E-3C1B-4D8E-9A53-0D6A2F9B7C11\"", "\"0\"")));
  }

  private static Arbitrary<String> binary(Schema schema) {
    LogicalType type = schema.getLogicalType();
    if (type == null) {
      boolean fixed = schema.getType() == Schema.Type.FIXED;
      int minSize = fixed ? schema.getFixedSize() : 0;
      int maxSize = fixed ? minSize : 20;
      Arbitrary<byte[]> bytes =
          Arbitraries.bytes().array(byte[].class).ofMinSize(minSize).ofMaxSize(maxSize);
      return Arbitraries.frequencyOf(
          Tuple.of(10, bytes.map(b -> quote(Base64.getEncoder().encodeToString(b)))),
          Tuple.of(10, bytes.map(b -> quote("\\x" + HexFormat.of().formatHex(b)))),
          Tuple.of(1, Arbitraries.of("\"a\"", "\"\\\\xZZ\"", "\"\\\\xA\"", "\"AAAAAAA=\"")));
    }
    if (type.getName().equals("uuid")) {
      return uuid();
    }
    Arbitrary<String> decimal =
        Combinators.combine(Arbitraries.longs(), Arbitraries.integers().between(-3, 4))
            .as((unscaled, scale) -> BigDecimal.valueOf(unscaled >> 32, scale).toString());
    return Arbitraries.frequencyOf(
        Tuple.of(8, decimal),
        Tuple.of(8, decimal.map(Payloads::quote)),
        Tuple.of(1, number()),
        Tuple.of(1, number().map(Payloads::quote)));
  }

  private static Arbitrary<String> temporal(Schema schema) {
    String type = schema.getLogicalType().getName();
    Arbitrary<LocalDateTime> times =
        Combinators.combine(
                Arbitraries.longs().between(-62_000_000_000L, 250_000_000_000L),
                Arbitraries.of(0, 120_000_000, 123_000_000, 123_456_000, 123_456_789, 1))
            .as((second, nano) -> LocalDateTime.ofEpochSecond(second, nano, UTC));
    Arbitrary<String> texts;
    if (type.equals("date")) {
      texts = times.map(time -> time.toLocalDate().toString());
    } else if (type.startsWith("time-")) {
      texts = times.map(time -> timeOfDay(time));
    } else if (type.startsWith("local-")) {
      texts = times.map(time -> time.toLocalDate() + "T" + timeOfDay(time));
    } else {
      texts =
          Combinators.combine(times, Arbitraries.of("Z", "+00:00", "+05:30", "-11:00"))
              .as((time, offset) -> time.toLocalDate() + "T" + timeOfDay(time) + offset);
    }
    return Arbitraries.frequencyOf(
        Tuple.of(10, texts.map(Payloads::quote)),
        Tuple.of(5, Arbitraries.longs().between(0, MICROS_PER_DAY / 1000).map(String::valueOf)),
        Tuple.of(1, integer(schema)),
        Tuple.of(1, text()));
  }

  private static final java.time.ZoneOffset UTC = java.time.ZoneOffset.UTC;

  /** Return the time with seconds, and with a fraction if it is not 0. */
  private static String timeOfDay(LocalDateTime time) {
    String text = time.toLocalTime().toString();
    return text.length() == "18:31".length() ? text + ":00" : text;
  }

  static String quote(String text) {
    StringBuilder json = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c < 0x20 || c == '"' || c == '\\') {
        json.append(String.format("\\u%04x", (int) c));
      } else {
        json.append(c);
      }
    }
    return json.append('"').toString();
  }
}
