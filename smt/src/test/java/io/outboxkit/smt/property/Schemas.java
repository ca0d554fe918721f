package io.outboxkit.smt.property;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.Tuple;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;

/** Random Avro schemas of records with all types, logical types, unions and defaults. */
final class Schemas {
  private static final int FIXED_SIZE = 5;
  private static final int MAX_FIELDS = 5;

  private static final Schema TREE =
      new Schema.Parser()
          .parse(
              "{\"type\":\"record\",\"name\":\"Tree\",\"fields\":["
                  + "{\"name\":\"value\",\"type\":\"int\"},"
                  + "{\"name\":\"next\",\"type\":[\"null\",\"Tree\"],\"default\":null}]}");

  /** A schema whose names are generated later, because they must be unique in the root schema. */
  private interface Draft {
    Schema build(Names names);
  }

  private static final class Names {
    private int count;

    String next(String prefix) {
      return prefix + count++;
    }
  }

  private record DraftField(Draft type, boolean withDefault) {}

  private Schemas() {}

  /**
   * @param depth maximum number of nested arrays, maps, unions and records
   */
  static Arbitrary<Schema> records(int depth) {
    return Arbitraries.frequencyOf(
        Tuple.of(19, record(depth).map(draft -> draft.build(new Names()))),
        Tuple.of(1, Arbitraries.just(TREE)));
  }

  private static Arbitrary<Draft> record(int depth) {
    return Combinators.combine(type(depth), Arbitraries.of(true, false))
        .as(DraftField::new)
        .list()
        .ofMaxSize(MAX_FIELDS)
        .map(fields -> names -> recordOf(fields, names));
  }

  private static Schema recordOf(List<DraftField> drafts, Names names) {
    String name = names.next("R");
    List<Schema.Field> fields = new ArrayList<>();
    for (DraftField draft : drafts) {
      Schema type = draft.type().build(names);
      Object value = draft.withDefault() ? defaultOf(type) : null;
      fields.add(new Schema.Field("f" + fields.size(), type, null, value));
    }
    return Schema.createRecord(name, null, null, false, fields);
  }

  private static Arbitrary<Draft> type(int depth) {
    if (depth == 0) {
      return leaf();
    }
    Arbitrary<Draft> inner = Arbitraries.lazy(() -> type(depth - 1));
    return Arbitraries.frequencyOf(
        Tuple.of(8, leaf()),
        Tuple.of(1, inner.map(items -> names -> Schema.createArray(items.build(names)))),
        Tuple.of(1, inner.map(values -> names -> Schema.createMap(values.build(names)))),
        Tuple.of(3, inner.list().ofMinSize(1).ofMaxSize(3).map(Schemas::union)),
        Tuple.of(1, record(depth - 1)));
  }

  /** Return a union of null and the types, without nested unions and duplicate types. */
  private static Draft union(List<Draft> drafts) {
    return names -> {
      Map<String, Schema> branches = new LinkedHashMap<>();
      branches.put("null", Schema.create(Schema.Type.NULL));
      for (Draft draft : drafts) {
        Schema branch = draft.build(names);
        if (branch.getType() != Schema.Type.UNION) {
          branches.putIfAbsent(branch.getFullName(), branch);
        }
      }
      return Schema.createUnion(List.copyOf(branches.values()));
    };
  }

  private static Arbitrary<Draft> leaf() {
    return Arbitraries.of(
        plain(Schema.Type.BOOLEAN),
        plain(Schema.Type.INT),
        plain(Schema.Type.LONG),
        plain(Schema.Type.FLOAT),
        plain(Schema.Type.DOUBLE),
        plain(Schema.Type.STRING),
        plain(Schema.Type.BYTES),
        names -> Schema.createFixed(names.next("F"), null, null, FIXED_SIZE),
        names -> Schema.createEnum(names.next("E"), null, null, List.of("A", "B", "C")),
        logical(Schema.Type.BYTES, LogicalTypes.decimal(25, 3)),
        logical(Schema.Type.BYTES, LogicalTypes.bigDecimal()),
        names ->
            LogicalTypes.decimal(9, 2)
                .addToSchema(Schema.createFixed(names.next("D"), null, null, FIXED_SIZE)),
        names ->
            LogicalTypes.uuid().addToSchema(Schema.createFixed(names.next("U"), null, null, 16)),
        logical(Schema.Type.STRING, LogicalTypes.uuid()),
        logical(Schema.Type.INT, LogicalTypes.date()),
        logical(Schema.Type.INT, LogicalTypes.timeMillis()),
        logical(Schema.Type.LONG, LogicalTypes.timeMicros()),
        logical(Schema.Type.LONG, LogicalTypes.timestampMillis()),
        logical(Schema.Type.LONG, LogicalTypes.timestampMicros()),
        logical(Schema.Type.LONG, LogicalTypes.timestampNanos()),
        logical(Schema.Type.LONG, LogicalTypes.localTimestampMillis()),
        logical(Schema.Type.LONG, LogicalTypes.localTimestampMicros()),
        logical(Schema.Type.LONG, LogicalTypes.localTimestampNanos()));
  }

  private static Draft plain(Schema.Type type) {
    return names -> Schema.create(type);
  }

  private static Draft logical(Schema.Type type, LogicalType logical) {
    return names -> logical.addToSchema(Schema.create(type));
  }

  /** Return the default for Avro's Schema.Field; null for no default. */
  private static Object defaultOf(Schema type) {
    return switch (type.getType()) {
      case BOOLEAN -> true;
      case INT -> 7;
      case LONG -> -7L;
      case FLOAT -> 1.5f;
      case DOUBLE -> -2.25;
      case STRING -> "d";
      case BYTES -> new byte[] {-1, 0, 65};
      case ENUM -> "B";
      case ARRAY -> List.of();
      case MAP -> new HashMap<>();
      case UNION -> Schema.Field.NULL_DEFAULT_VALUE;
      default -> null;
    };
  }
}
