package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The input record is not changed: Connect uses it again for a retry. */
class InputUnchangedTest {

  static Stream<OutboxEvents> events() {
    return Stream.of(
        OutboxEvents.insert(),
        OutboxEvents.insert().payload(null),
        OutboxEvents.insert().with("headers", "{\"a\": \"b\"}"),
        OutboxEvents.insert().payload("{\"text\": 1}"),
        OutboxEvents.insert().payload("{\"text\": \"" + "x".repeat(3000) + "\"}"));
  }

  /** Options, and a row for them. */
  static Stream<Arguments> options() {
    String[] avro = {"aggregate.note.payload.format", "avro"};
    String[] framed = {"aggregate.note.payload.format", "confluent-avro"};
    byte[] body = {2, 'a'};
    byte[] value = {0, 1, 2, 3, 4, 2, 'a'};
    return Stream.of(
        arguments(avro, bytes(body)),
        arguments(avro, bytes(ByteBuffer.wrap(body))),
        arguments(avro, bytes(ByteBuffer.wrap(new byte[] {9}))),
        arguments(framed, bytes(value)),
        arguments(framed, bytes(ByteBuffer.wrap(value))),
        arguments(framed, bytes(ByteBuffer.wrap(body))),
        arguments(
            new String[] {"aggregate.note.unknown.fields", "ignore"},
            OutboxEvents.insert().payload("{\"text\": \"a\", \"x\": 1}")),
        arguments(
            new String[] {"aggregate.note.tombstone.event.types", "NoteWritten"},
            OutboxEvents.insert()),
        arguments(
            new String[] {
              "table.field.event.schema.version", "seq",
              "table.fields.additional.placement", "seq:header",
              "cloudevents.source", "/library"
            },
            OutboxEvents.insert().column("seq", Schema.INT64_SCHEMA, 1L)));
  }

  private static OutboxEvents bytes(Object payload) {
    return OutboxEvents.insert().column("payload", Schema.BYTES_SCHEMA, payload);
  }

  @ParameterizedTest
  @MethodSource("options")
  void recordIsUnchangedWithEveryOption(String[] more, OutboxEvents event) throws IOException {
    SourceRecord record = event.record();
    byte[] before = serialized(record);
    SourceRecord first = Routers.router(more).apply(record);
    assertArrayEquals(before, serialized(record));
    SourceRecord second = Routers.router(more).apply(record);
    assertEquals(first.topic(), second.topic());
    assertEquals(Routers.headers(first), Routers.headers(second));
    assertArrayEquals((byte[]) first.value(), (byte[]) second.value());
  }

  @ParameterizedTest
  @ValueSource(strings = {"u", "d", "t"})
  void skippedRecordIsUnchanged(String operation) throws IOException {
    SourceRecord record = OutboxEvents.insert().operation(operation).record();
    byte[] before = serialized(record);
    assertNull(
        Routers.router("table.op.invalid.behavior", "warn", "deleted.rows", "ignore")
            .apply(record));
    assertArrayEquals(before, serialized(record));
  }

  @ParameterizedTest
  @MethodSource("events")
  void recordIsUnchanged(OutboxEvents event) throws IOException {
    SourceRecord record = event.record();
    record.headers().addString("before", "1");
    byte[] before = serialized(record);
    SourceRecord first = Routers.router("max.record.bytes", "2000").apply(record);
    assertArrayEquals(before, serialized(record));
    // The second result must be equal to the first.
    SourceRecord second = Routers.router("max.record.bytes", "2000").apply(record);
    assertEquals(first.topic(), second.topic());
    assertArrayEquals((byte[]) first.value(), (byte[]) second.value());
  }

  private static byte[] serialized(SourceRecord record) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(record.topic() + record.kafkaPartition() + record.timestamp());
      out.writeObject(record.sourcePartition().toString() + record.sourceOffset());
      out.writeObject(comparable(record.value()));
      for (Header header : record.headers()) {
        out.writeObject(header.toString());
      }
    }
    return bytes.toByteArray();
  }

  private static Object comparable(Object value) {
    if (value instanceof ByteBuffer buffer) {
      // With its position, which a read from the buffer would change.
      return buffer + Arrays.toString(buffer.array());
    }
    if (!(value instanceof Struct struct)) {
      return value;
    }
    List<Object> values = new ArrayList<>();
    values.add(String.valueOf(struct.schema().name()));
    for (Field field : struct.schema().fields()) {
      values.add(field.name());
      values.add(comparable(struct.getWithoutDefault(field.name())));
    }
    return values;
  }
}
