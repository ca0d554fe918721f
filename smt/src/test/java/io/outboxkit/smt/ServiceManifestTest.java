package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.api.Test;

/** With plugin.discovery=service_load, a worker loads only the classes in the manifest. */
class ServiceManifestTest {
  private static final Path CLASSES =
      Path.of(System.getProperty("module.basedir"), "target/classes");

  @Test
  @SuppressWarnings("rawtypes") // a class literal has no type argument
  void listsEveryTransformation() throws Exception {
    Set<String> listed =
        ServiceLoader.load(Transformation.class).stream()
            .map(provider -> provider.type().getName())
            .filter(name -> name.startsWith("io.outboxkit."))
            .collect(Collectors.toCollection(TreeSet::new));
    assertFalse(listed.isEmpty());
    assertEquals(compiledTransformations(), listed);
  }

  private static Set<String> compiledTransformations() throws IOException {
    try (Stream<Path> files = Files.walk(CLASSES)) {
      return files
          .map(file -> CLASSES.relativize(file).toString())
          .filter(file -> file.endsWith(".class") && !file.endsWith("package-info.class"))
          .map(file -> file.replace(".class", "").replace('/', '.'))
          .filter(ServiceManifestTest::isTransformation)
          .collect(Collectors.toCollection(TreeSet::new));
    }
  }

  private static boolean isTransformation(String name) {
    try {
      Class<?> type = Class.forName(name);
      return Transformation.class.isAssignableFrom(type)
          && !Modifier.isAbstract(type.getModifiers());
    } catch (ClassNotFoundException e) {
      throw new AssertionError(e);
    }
  }
}
