package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Connect retries with the same record, and other transforms may hold on to it. */
class InputUnchangedTest {

  static Stream<OutboxEvents> events() {
    return Stream.of(
        OutboxEvents.insert(),
        OutboxEvents.insert().payload(null),
        OutboxEvents.insert().with("headers", "{\"a\": \"b\"}"),
        OutboxEvents.insert().payload("{\"text\": 1}"),
        OutboxEvents.insert().payload("{\"text\": \"" + "x".repeat(3000) + "\"}"));
  }

  @ParameterizedTest
  @MethodSource("events")
  void recordIsTheSameAfterwards(OutboxEvents event) throws IOException {
    SourceRecord record = event.record();
    record.headers().addString("before", "1");
    byte[] before = serialized(record);
    SourceRecord first = Routers.router("max.record.bytes", "2000").apply(record);
    assertArrayEquals(before, serialized(record));
    // A second pass gives the same again: nothing was used up.
    SourceRecord second = Routers.router("max.record.bytes", "2000").apply(record);
    assertEquals(first.topic(), second.topic());
    assertArrayEquals((byte[]) first.value(), (byte[]) second.value());
  }

  private static byte[] serialized(SourceRecord record) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(record.topic() + record.kafkaPartition() + record.timestamp());
      out.writeObject(record.sourcePartition().toString() + record.sourceOffset());
      out.writeObject(plain(record.value()));
      for (Header header : record.headers()) {
        out.writeObject(header.toString());
      }
    }
    return bytes.toByteArray();
  }

  private static Object plain(Object value) {
    if (!(value instanceof Struct struct)) {
      return value;
    }
    List<Object> parts = new ArrayList<>();
    parts.add(String.valueOf(struct.schema().name()));
    for (Field field : struct.schema().fields()) {
      parts.add(field.name());
      parts.add(plain(struct.getWithoutDefault(field.name())));
    }
    return parts;
  }
}
