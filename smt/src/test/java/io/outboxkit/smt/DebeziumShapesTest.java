package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * The names and fields that the transforms go by, asked of the connector's own jars. Skipped where
 * `make setup` has not fetched them.
 */
class DebeziumShapesTest {
  private static final Path CONNECTOR =
      Path.of(
          System.getProperty("module.basedir"),
          "../build/runtime/connect-plugins/debezium-connector-postgres");

  private static URLClassLoader debezium;

  @BeforeAll
  static void openJars() throws IOException {
    assumeTrue(Files.isDirectory(CONNECTOR), "the connector has not been fetched");
    try (Stream<Path> files = Files.list(CONNECTOR)) {
      List<URL> jars =
          files.filter(f -> f.toString().endsWith(".jar")).map(DebeziumShapesTest::url).toList();
      debezium =
          new URLClassLoader(jars.toArray(new URL[0]), DebeziumShapesTest.class.getClassLoader());
    }
  }

  @AfterAll
  static void closeJars() throws IOException {
    if (debezium != null) {
      debezium.close();
    }
  }

  @Test
  void heartbeatsHaveTheNameWeKnow() throws Exception {
    assertEquals(Records.HEARTBEAT, adjusted("heartbeatValueSchema").name());
  }

  @Test
  void transactionMetadataHasTheNameWeKnow() throws Exception {
    assertEquals(Records.TRANSACTION, adjusted("transactionValueSchema").name());
  }

  @Test
  void notificationsHaveTheNameWeKnow() throws Exception {
    assertEquals(Records.NOTIFICATION, adjusted("notificationValueSchema").name());
  }

  /** The part of source that all connectors share; the connector adds to it. */
  @Test
  void sourceHasTheFieldsOfOurFixture() throws Exception {
    Object builder = factoryClass().getMethod("sourceInfoSchemaBuilder").invoke(factory());
    Schema ours = OutboxEvents.sourceSchema();
    for (Field field : ((SchemaBuilder) builder).fields()) {
      assertEquals(field.schema().type(), ours.field(field.name()).schema().type(), field.name());
    }
  }

  @Test
  void columnTypesHaveTheNamesWeKnow() throws Exception {
    assertEquals("io.debezium.data.Json", columnSchema("io.debezium.data.Json").name());
    assertEquals("io.debezium.data.Uuid", columnSchema("io.debezium.data.Uuid").name());
    Schema time = columnSchema("io.debezium.time.ZonedTimestamp");
    assertEquals("io.debezium.time.ZonedTimestamp", time.name());
    assertEquals(Schema.Type.STRING, time.type());
  }

  private static Schema columnSchema(String className) throws Exception {
    return (Schema) debezium.loadClass(className).getMethod("schema").invoke(null);
  }

  private static Schema adjusted(String method) throws Exception {
    Class<?> adjuster = debezium.loadClass("io.debezium.schema.SchemaNameAdjuster");
    Object unchanged =
        Proxy.newProxyInstance(
            debezium, new Class<?>[] {adjuster}, (proxy, called, args) -> args[0]);
    return (Schema) factoryClass().getMethod(method, adjuster).invoke(factory(), unchanged);
  }

  private static Class<?> factoryClass() throws ClassNotFoundException {
    return debezium.loadClass("io.debezium.schema.SchemaFactory");
  }

  private static Object factory() throws Exception {
    return factoryClass().getMethod("get").invoke(null);
  }

  private static URL url(Path path) {
    try {
      return path.toUri().toURL();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }
}
