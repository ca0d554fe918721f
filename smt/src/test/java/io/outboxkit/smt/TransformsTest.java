package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Definition and version, which every transform must report to Connect. */
class TransformsTest {
  static Stream<Arguments> transforms() {
    return Stream.of(
        arguments(new OutboxRouter<SourceRecord>(), OutboxRouter.CONFIG_DEF),
        arguments(new ParsePayload<SourceRecord>(), ParsePayload.CONFIG_DEF),
        arguments(new RouteByField<SourceRecord>(), RouteByField.CONFIG_DEF),
        arguments(new SetPartition<SourceRecord>(), SetPartition.CONFIG_DEF),
        arguments(new SetTombstone<SourceRecord>(), SetTombstone.CONFIG_DEF));
  }

  /** Connect validates by config() and shows version() in its list of plugins. */
  @ParameterizedTest
  @MethodSource("transforms")
  void definitionAndVersionAreReported(Transformation<SourceRecord> transform, ConfigDef options) {
    assertSame(options, transform.config());
    String version = ((Versioned) transform).version();
    assertTrue(version.matches("[0-9]+\\.[0-9]+\\.[0-9]+.*"), version);
    transform.close();
  }
}
