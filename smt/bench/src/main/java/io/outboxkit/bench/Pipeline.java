package io.outboxkit.bench;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Transforms, predicates and value converter of a connector config, without a worker. */
final class Pipeline implements AutoCloseable {
  private static final Headers NO_HEADERS = new RecordHeaders();
  private static final String VALUE_CONVERTER = "value.converter";

  private record Step(Transformation<SourceRecord> transform, Predicate<SourceRecord> predicate) {}

  private final Step[] steps;
  private final Converter converter;
  private final RegistryStub registry;

  private Pipeline(Map<String, String> config) {
    this.registry = RegistryStub.of(config);
    this.steps = steps(config);
    this.converter = config.containsKey(VALUE_CONVERTER) ? converter(config) : null;
  }

  static Pipeline of(Path config) {
    try {
      return new Pipeline(
          new ObjectMapper()
              .readValue(
                  Files.readAllBytes(config), new TypeReference<HashMap<String, String>>() {}));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Return the bytes of the value, or the record if the config has no converter. */
  Object convert(SourceRecord record) {
    SourceRecord transformed = transform(record);
    return converter == null
        ? transformed
        : converter.fromConnectData(
            transformed.topic(), NO_HEADERS, transformed.valueSchema(), transformed.value());
  }

  private SourceRecord transform(SourceRecord record) {
    SourceRecord current = record;
    for (Step step : steps) {
      if (step.predicate() == null || step.predicate().test(current)) {
        current = step.transform().apply(current);
      }
    }
    return current;
  }

  /** Throw IllegalStateException if the config does not convert the record as intended. */
  void check(SourceRecord record, String payload) {
    SourceRecord transformed = transform(record);
    boolean tombstone = payload.equals(Payload.TOMBSTONE.name());
    if (transformed.topic().equals("library.dead-letter")
        || tombstone != (transformed.value() == null)) {
      throw new IllegalStateException(
          "Routed to " + transformed.topic() + " with a value of " + transformed.value());
    }
    if (converter != null) {
      Object bytes = convert(record);
      boolean framed = bytes instanceof byte[] value && value[0] == 0;
      boolean text = converter.getClass().getSimpleName().equals("StringConverter");
      if (tombstone ? bytes != null : framed == text) {
        throw new IllegalStateException("The value converter wrote unexpected bytes.");
      }
    } else if (transformed.kafkaPartition() == null) {
      throw new IllegalStateException("No partition was set.");
    }
  }

  int registryRequests() {
    return registry == null ? 0 : registry.requests();
  }

  @Override
  public void close() {
    if (registry != null) {
      registry.close();
    }
  }

  private static Step[] steps(Map<String, String> config) {
    List<Step> steps = new ArrayList<>();
    for (String name : config.get("transforms").split(",")) {
      String prefix = "transforms." + name + ".";
      Transformation<SourceRecord> transform = newInstance(config.get(prefix + "type"));
      transform.configure(optionsUnder(prefix, config));
      String predicate = config.get(prefix + "predicate");
      steps.add(new Step(transform, predicate == null ? null : predicate(predicate, config)));
    }
    return steps.toArray(new Step[0]);
  }

  private static Predicate<SourceRecord> predicate(String name, Map<String, String> config) {
    String prefix = "predicates." + name + ".";
    Predicate<SourceRecord> predicate = newInstance(config.get(prefix + "type"));
    predicate.configure(optionsUnder(prefix, config));
    return predicate;
  }

  private static Converter converter(Map<String, String> config) {
    Converter converter = newInstance(config.get(VALUE_CONVERTER));
    converter.configure(optionsUnder(VALUE_CONVERTER + ".", config), false);
    return converter;
  }

  private static Map<String, String> optionsUnder(String prefix, Map<String, String> config) {
    Map<String, String> options = new HashMap<>();
    config.forEach(
        (name, value) -> {
          if (name.startsWith(prefix)) {
            options.put(name.substring(prefix.length()), value);
          }
        });
    // Connect does not pass these keys to a transform.
    options.keySet().removeAll(List.of("type", "predicate", "negate"));
    return options;
  }

  @SuppressWarnings("unchecked")
  private static <T> T newInstance(String className) {
    try {
      return (T) Class.forName(className).getConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(className + " cannot be loaded", e);
    }
  }
}
