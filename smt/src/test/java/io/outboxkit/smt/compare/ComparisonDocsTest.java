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

/** docs/eventrouter.md: every line has its test, every test its line, and the version is ours. */
class ComparisonDocsTest {
  private static final Path DOCS =
      Path.of(System.getProperty("module.basedir"), "../docs/eventrouter.md");

  /** Name, record, EventRouter, OutboxRouter. */
  private static final Pattern LINE =
      Pattern.compile("^\\| `([a-z0-9-]+)` \\|( [^|]+ \\|){3}$", Pattern.MULTILINE);

  @Test
  void linesAndTestsAreTheSame() throws Exception {
    List<String> lines = new ArrayList<>();
    LINE.matcher(Files.readString(DOCS)).results().forEach(found -> lines.add(found.group(1)));
    assertEquals(lines.stream().distinct().toList(), lines, "a line is there twice");
    List<String> tests = tests();
    assertEquals(tests.stream().distinct().toList(), tests, "a test is there twice");
    assertEquals(tests.stream().sorted().toList(), lines.stream().sorted().toList());
  }

  /** A row of a table that the pattern above does not know would be a line without a test. */
  @Test
  void everyRowOfATableIsALine() throws IOException {
    List<String> rows = Files.readAllLines(DOCS).stream().filter(l -> l.startsWith("|")).toList();
    for (String row : rows) {
      assertTrue(
          LINE.matcher(row).matches()
              || row.equals("| Line | Record or option | EventRouter | OutboxRouter |")
              || row.equals("|---|---|---|---|"),
          row);
    }
  }

  @Test
  void versionIsTheOneThatWasRun() throws IOException {
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
