package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertRejected;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Misspelled options of the transforms for chains. For OutboxRouter see RouterConfigTest. */
class UnknownOptionsTest {
  static Stream<Arguments> transforms() {
    Supplier<Transformation<SourceRecord>> tombstone = SetTombstone::new;
    Supplier<Transformation<SourceRecord>> partition = SetPartition::new;
    Supplier<Transformation<SourceRecord>> route = RouteByField::new;
    Supplier<Transformation<SourceRecord>> parse = ParsePayload::new;
    return Stream.of(
        // If the option were ignored, SetTombstone would apply to every record.
        arguments(tombstone, "SetTombstone", Map.of(), "payload.feild"),
        arguments(partition, "SetPartition", Map.of("partitions", "3"), "topic.partition"),
        arguments(
            route, "RouteByField", Map.of("field", "key", "topics", "a:b"), "aggregate.a.topic"),
        arguments(
            parse,
            "ParsePayload",
            Map.of(
                "aggregates",
                "note",
                "aggregate.note.schema.versions",
                "1",
                "aggregate.note.schema.1",
                Routers.NOTE_V1),
            "typ.field"));
  }

  @ParameterizedTest
  @MethodSource("transforms")
  void unknownOptionsAreRejected(
      Supplier<Transformation<SourceRecord>> transform,
      String name,
      Map<String, String> props,
      String option) {
    Map<String, String> misspelled = new HashMap<>(props);
    misspelled.put(option, "value.payload");
    assertRejected(option, "value.payload", () -> transform.get().configure(misspelled));
  }

  @ParameterizedTest
  @MethodSource("transforms")
  void keysOfConnectAreAccepted(
      Supplier<Transformation<SourceRecord>> transform, String name, Map<String, String> props) {
    Map<String, String> more = new HashMap<>(props);
    more.put("type", "io.outboxkit.smt." + name);
    more.put("predicate", "p");
    more.put("negate", "true");
    more.put("plugin.version", "[0.1.0]");
    transform.get().configure(more);
  }
}
