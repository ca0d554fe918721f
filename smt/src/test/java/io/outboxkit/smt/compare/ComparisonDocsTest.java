package io.outboxkit.smt.compare;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.debezium.Module;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Compares the items and the Debezium version of docs/eventrouter.md with the tests. */
class ComparisonDocsTest {
  private static final Path DOCS =
      Path.of(System.getProperty("module.basedir"), "../docs/eventrouter.md");

  private static final Pattern ITEM = Pattern.compile("^- `([a-z0-9-]+)`: ", Pattern.MULTILINE);

  @Test
  void itemsAndTestsAreTheSame() throws Exception {
    List<String> items = new ArrayList<>();
    ITEM.matcher(Files.readString(DOCS)).results().forEach(match -> items.add(match.group(1)));
    assertEquals(items.stream().distinct().toList(), items, "duplicate item");
    List<String> tests = tests();
    assertEquals(tests.stream().distinct().toList(), tests, "duplicate test");
    assertEquals(tests.stream().sorted().toList(), items.stream().sorted().toList());
  }

  @Test
  void everyItemShowsBothTransforms() throws IOException {
    String docs = Files.readString(DOCS);
    long items = ITEM.matcher(docs).results().count();
    assertEquals(items, docs.lines().filter(l -> l.startsWith("  - EventRouter: ")).count());
    assertEquals(items, docs.lines().filter(l -> l.startsWith("  - OutboxRouter: ")).count());
    assertEquals(items, docs.lines().filter(l -> l.startsWith("- ")).count());
  }

  @Test
  void versionIsThatOfTheTests() throws IOException {
    assertTrue(Files.readString(DOCS).contains("Debezium " + Module.version()));
  }

  private static List<String> tests() throws Exception {
    Path classes =
        Path.of(
                ComparisonDocsTest.class
                    .getProtectionDomain()
                    .getCodeSource()
                    .getLocation()
                    .toURI())
            .resolve(ComparisonDocsTest.class.getPackageName().replace('.', '/'));
    List<String> tests = new ArrayList<>();
    try (Stream<Path> files = Files.list(classes)) {
      for (Path file : files.filter(f -> f.toString().endsWith("ComparedTest.class")).toList()) {
        String name = file.getFileName().toString().replace(".class", "");
        String type = ComparisonDocsTest.class.getPackageName() + "." + name;
        for (Method method : Class.forName(type).getDeclaredMethods()) {
          Compared compared = method.getAnnotation(Compared.class);
          if (compared != null) {
            tests.add(compared.value());
          }
        }
      }
    }
    return tests;
  }
}
