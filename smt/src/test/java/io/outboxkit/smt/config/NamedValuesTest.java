package io.outboxkit.smt.config;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Lists of name:value. */
class NamedValuesTest {
  static Stream<Arguments> lists() {
    return Stream.of(
        arguments(List.of(), Map.of()),
        arguments(List.of("a:1"), Map.of("a", "1")),
        arguments(List.of(" a : 1 ", "b:2"), Map.of("a", "1", "b", "2")),
        // Aggregate types can contain colons, topics and counts cannot.
        arguments(List.of("urn:note:library.note"), Map.of("urn:note", "library.note")));
  }

  @ParameterizedTest
  @MethodSource("lists")
  void lastColonSeparatesNameAndValue(List<String> entries, Map<String, String> values) {
    assertEquals(values, NamedValues.parse("topics", entries));
  }

  @ParameterizedTest
  @ValueSource(strings = {"a", "", ":", "a:", ":1"})
  void otherEntriesAreRejected(String entry) {
    List<String> entries = List.of("ok:1", entry);
    assertThrows(ConfigException.class, () -> NamedValues.parse("topics", entries));
  }

  @Test
  void validatorAcceptsNull() {
    ConfigDef.Validator validator = NamedValues.validator("TOPIC:COUNT");
    assertEquals("list of TOPIC:COUNT", validator.toString());
    validator.ensureValid("topics", null);
    validator.ensureValid("topics", List.of("a:1"));
    assertThrows(
        ConfigException.class, () -> validator.ensureValid("topics", List.of("a:1", "a:2")));
  }
}
