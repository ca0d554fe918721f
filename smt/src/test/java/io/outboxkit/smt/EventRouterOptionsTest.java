package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Every option of Debezium's EventRouter is supported by OutboxRouter or rejected with its
 * replacement, and is documented in docs/smt-chains.md.
 */
class EventRouterOptionsTest {
  private static final Path BASE = Path.of(System.getProperty("module.basedir"));
  private static final Path CONNECTOR =
      BASE.resolve("../build/runtime/connect-plugins/debezium-connector-postgres");

  /** Options of EventRouter in Debezium 3.7, with those of ActivateTracingSpan. */
  static Stream<String> options() {
    return Stream.of(
        "table.field.event.id",
        "table.field.event.key",
        "table.field.event.type",
        "table.field.event.payload",
        "table.field.event.timestamp",
        "table.field.event.schema.version",
        "table.fields.additional.placement",
        "table.field.additional.missing",
        "table.op.invalid.behavior",
        "table.expand.json.payload",
        "table.json.payload.null.behavior",
        "table.json.payload.empty.array.behavior",
        "route.by.field",
        "route.topic.regex",
        "route.topic.replacement",
        "route.tombstone.on.empty.payload",
        "tracing.span.context.field",
        "tracing.operation.name",
        "tracing.with.context.field.only");
  }

  @ParameterizedTest
  @MethodSource("options")
  void isSupportedOrHasAReplacement(String option) {
    if (OutboxRouter.CONFIG_DEF.names().contains(option)) {
      return;
    }
    String message =
        assertThrows(ConfigException.class, () -> Routers.router(option, "x")).getMessage();
    assertTrue(message.startsWith("Invalid value x for configuration " + option + ": "), message);
    assertTrue(!message.contains("the options are"), message);
  }

  @ParameterizedTest
  @MethodSource("options")
  void isDocumented(String option) throws IOException {
    String docs = Files.readString(BASE.resolve("../docs/smt-chains.md"));
    String section = docs.substring(docs.indexOf("## Coming from EventRouter"));
    section = section.substring(0, section.indexOf("\n## ", 1));
    assertTrue(section.contains("\n| `" + option), option);
  }

  /** Skipped if `make setup` has not resolved Debezium's jars. */
  @Test
  void listHasEveryEventRouterOption() throws Exception {
    assumeTrue(Files.isDirectory(CONNECTOR), "the connector has not been resolved");
    Set<String> listed = new TreeSet<>(options().toList());
    try (URLClassLoader debezium = debezium()) {
      ConfigDef definition =
          (ConfigDef)
              debezium
                  .loadClass("io.debezium.transforms.outbox.EventRouterConfigDefinition")
                  .getMethod("configDef")
                  .invoke(null);
      Set<String> missing = new TreeSet<>(definition.names());
      missing.removeAll(listed);
      assertEquals(Set.of(), missing);
    }
  }

  private static URLClassLoader debezium() throws IOException {
    try (Stream<Path> files = Files.list(CONNECTOR)) {
      List<URL> jars =
          files
              .filter(file -> file.toString().endsWith(".jar"))
              .map(EventRouterOptionsTest::url)
              .toList();
      return new URLClassLoader(
          jars.toArray(new URL[0]), EventRouterOptionsTest.class.getClassLoader());
    }
  }

  private static URL url(Path path) {
    try {
      return path.toUri().toURL();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }
}
