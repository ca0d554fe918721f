package io.outboxkit.bench;

import java.util.Locale;
import java.util.Random;
import java.util.UUID;

/**
 * Payload types. The payloads are JSON as PostgreSQL writes jsonb, with members sorted by name
 * length. All payloads of a type have the same members and no null, so that schema inference yields
 * a single schema.
 */
enum Payload {
  /** 100 bytes: four members. */
  LOAN("loan"),
  /** 300 bytes: a book of the worked example. */
  BOOK("book"),
  /** 2 KB: an order of twelve lines. */
  ORDER("order"),
  /** SQL NULL. */
  TOMBSTONE("book");

  private static final String[] TITLES = {
    "Die Blendung",
    "Ultramarine",
    "Omensetter",
    "Fünf Kühe",
    "Stiller",
    "Vrouw Jenny",
    "Нос",
    "Molloy"
  };
  private static final String[] TAGS = {"poetry", "history", "novel", "letters"};
  private static final String[] STATES = {"AVAILABLE", "LENT", "LOST"};
  private static final int LINES = 12;

  private final String aggregate;

  Payload(String aggregate) {
    this.aggregate = aggregate;
  }

  String aggregate() {
    return aggregate;
  }

  String text(Random random) {
    return switch (this) {
      case LOAN -> loan(random);
      case BOOK -> book(random);
      case ORDER -> order(random);
      case TOMBSTONE -> null;
    };
  }

  private static String loan(Random random) {
    return format(
        "{\"id\": \"%s\", \"due\": \"%s\", \"days\": %d, \"status\": \"%s\"}",
        uuid(random), date(random), 1 + random.nextInt(90), choose(STATES, random));
  }

  private static String book(Random random) {
    return format(
        "{\"id\": \"%s\", \"tags\": [\"%s\"], \"pages\": %d, \"price\": %d.%d, \"title\": \"%s\","
            + " \"status\": \"%s\", \"subtitle\": \"%s\", \"author_id\": \"%s\","
            + " \"updated_at\": \"%s\", \"published_on\": \"%s\"}",
        uuid(random),
        choose(TAGS, random),
        40 + random.nextInt(900),
        5 + random.nextInt(90),
        // The last digit is not 0, so that all prices have the same scale.
        11 + 10 * random.nextInt(9),
        choose(TITLES, random),
        choose(STATES, random),
        choose(TITLES, random),
        uuid(random),
        timestamp(random),
        date(random));
  }

  private static String order(Random random) {
    StringBuilder lines = new StringBuilder();
    for (int i = 0; i < LINES; i++) {
      lines
          .append(i == 0 ? "" : ", ")
          .append(
              format(
                  "{\"price\": %d.%d, \"title\": \"%s, edition of %d\", \"book_id\": \"%s\","
                      + " \"quantity\": %d, \"in_stock\": %b}",
                  5 + random.nextInt(90),
                  11 + 10 * random.nextInt(9),
                  choose(TITLES, random),
                  1900 + random.nextInt(120),
                  uuid(random),
                  1 + random.nextInt(20),
                  random.nextBoolean()));
    }
    return format(
        "{\"id\": \"%s\", \"lines\": [%s], \"total\": %d.%d, \"status\": \"%s\","
            + " \"ordered_at\": \"%s\", \"customer_id\": \"%s\"}",
        uuid(random),
        lines,
        500 + random.nextInt(9000),
        11 + 10 * random.nextInt(9),
        choose(STATES, random),
        timestamp(random),
        uuid(random));
  }

  static UUID uuid(Random random) {
    return new UUID(random.nextLong(), random.nextLong());
  }

  /** Return a timestamptz value in Debezium's form. */
  static String instant(Random random) {
    return localTimestamp(random) + "Z";
  }

  /** Return a timestamptz value in the form of PostgreSQL's JSON. */
  private static String timestamp(Random random) {
    return localTimestamp(random) + "+00:00";
  }

  private static String localTimestamp(Random random) {
    return format(
        "%sT%02d:%02d:%02d.%06d",
        date(random),
        random.nextInt(24),
        random.nextInt(60),
        random.nextInt(60),
        // The last digit is not 0, because PostgreSQL omits trailing zeros.
        100_001 + random.nextInt(89_999) * 10);
  }

  private static String date(Random random) {
    return format(
        "%d-%02d-%02d", 1950 + random.nextInt(76), 1 + random.nextInt(12), 1 + random.nextInt(28));
  }

  private static String choose(String[] texts, Random random) {
    return texts[random.nextInt(texts.length)];
  }

  private static String format(String pattern, Object... values) {
    return String.format(Locale.ROOT, pattern, values);
  }
}
