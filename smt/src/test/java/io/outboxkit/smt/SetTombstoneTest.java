package io.outboxkit.smt;

import static io.outboxkit.smt.Errors.assertFails;
import static io.outboxkit.smt.Errors.assertRejected;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import io.apicurio.registry.utils.converter.AvroConverter;
import io.debezium.converters.BinaryDataConverter;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.StringConverter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Conditions of SetTombstone, and the tombstones that converters write. */
class SetTombstoneTest {
  private static final Map<String, String> BY_PAYLOAD = Map.of("payload.field", "value.payload");
  private static final Map<String, String> BY_TYPE =
      Map.of("type.field", "value.event_type", "types", "NoteDeleted,NoteErased");
  private static final Map<String, String> BY_BOTH =
      Map.of(
          "payload.field", "value.payload",
          "type.field", "value.event_type",
          "types", "NoteDeleted");

  private static SetTombstone<SourceRecord> setTombstone(Map<String, String> props) {
    SetTombstone<SourceRecord> transform = new SetTombstone<>();
    transform.configure(props);
    return transform;
  }

  private static Rows deleted() {
    return Rows.row().column("event_type", Schema.STRING_SCHEMA, "NoteDeleted");
  }

  static Stream<Arguments> records() {
    return Stream.of(
        arguments(BY_PAYLOAD, Rows.row().record(), false),
        arguments(BY_PAYLOAD, Rows.row().payload(null).record(), true),
        arguments(BY_PAYLOAD, Rows.row().payload("null").record(), true),
        arguments(BY_PAYLOAD, Rows.row().payload(" null\n").record(), true),
        arguments(BY_PAYLOAD, Rows.row().payload("\u2003null").record(), false),
        arguments(BY_PAYLOAD, Rows.row().payload("\"null\"").record(), false),
        arguments(BY_PAYLOAD, Rows.row().payload("").record(), false),
        arguments(BY_PAYLOAD, Rows.row().payload("nulls").record(), false),
        arguments(BY_PAYLOAD, Rows.row().tombstone(), true),
        arguments(BY_TYPE, Rows.row().record(), false),
        arguments(BY_TYPE, Rows.row().payload(null).record(), false),
        arguments(BY_TYPE, deleted().record(), true),
        arguments(BY_TYPE, deleted().schemaless().record(), true),
        arguments(BY_TYPE, Rows.row().tombstone(), true),
        arguments(BY_BOTH, Rows.row().record(), false),
        arguments(BY_BOTH, Rows.row().payload(null).record(), true),
        arguments(BY_BOTH, deleted().record(), true),
        arguments(Map.of("type.field", "header.none", "types", "x"), Rows.row().record(), false),
        arguments(Map.of(), Rows.row().record(), true),
        arguments(Map.of(), Records.heartbeat(), true));
  }

  @ParameterizedTest
  @MethodSource("records")
  void conditionsDetermineTombstones(
      Map<String, String> props, SourceRecord record, boolean tombstone) {
    SourceRecord after = setTombstone(props).apply(record);
    if (!tombstone) {
      assertSame(record, after);
      return;
    }
    assertNull(after.value());
    assertNull(after.valueSchema());
    assertEquals(record.topic(), after.topic());
    assertEquals(record.kafkaPartition(), after.kafkaPartition());
    assertSame(record.key(), after.key());
    assertSame(record.keySchema(), after.keySchema());
    assertEquals(record.timestamp(), after.timestamp());
    assertEquals(record.headers(), after.headers());
  }

  /** Other transforms can set the value to null but keep its schema. */
  @Test
  void schemaOfANullValueIsRemoved() {
    SourceRecord row = Rows.row().tombstone();
    SourceRecord nullWithSchema =
        row.newRecord(
            row.topic(), null, row.keySchema(), row.key(), Schema.OPTIONAL_STRING_SCHEMA, null, 1L);
    assertNull(setTombstone(BY_PAYLOAD).apply(nullWithSchema).valueSchema());
  }

  static Stream<Arguments> converters() {
    return Stream.of(
        arguments(new JsonConverter(), Map.of("schemas.enable", "true")),
        arguments(new JsonConverter(), Map.of("schemas.enable", "false")),
        arguments(new StringConverter(), Map.of()),
        arguments(new ByteArrayConverter(), Map.of()),
        arguments(
            new BinaryDataConverter(),
            Map.of("delegate.converter.type", JsonConverter.class.getName())),
        arguments(
            new AvroConverter<>(), Map.of("apicurio.registry.url", "http://127.0.0.1:1/not-used")));
  }

  @ParameterizedTest
  @MethodSource("converters")
  void convertersWriteNull(Converter converter, Map<String, String> props) {
    converter.configure(props, false);
    SourceRecord tombstone = setTombstone(BY_PAYLOAD).apply(Rows.row().payload(null).record());
    assertNull(
        converter.fromConnectData(tombstone.topic(), tombstone.valueSchema(), tombstone.value()));
  }

  @Test
  void missingFieldFails() {
    SetTombstone<SourceRecord> transform = setTombstone(Map.of("payload.field", "value.paylod"));
    assertFails(transform, Rows.row().record(), "value.paylod", "topic library.note");
  }

  @Test
  void invalidOptionsAreRejected() {
    assertRejected("type.field", null, () -> setTombstone(Map.of("types", "a")));
    assertRejected("types", "[]", () -> setTombstone(Map.of("type.field", "key")));
    assertRejected(
        "payload.field", "payload", () -> setTombstone(Map.of("payload.field", "payload")));
  }

  @Test
  void typesAreComparedExactly() {
    assertEquals(List.of("x"), Stream.of("x", "xy", "").filter(type -> isTombstone(type)).toList());
  }

  private static boolean isTombstone(String type) {
    SourceRecord record = Rows.row().header("t", type).record();
    return setTombstone(Map.of("type.field", "header.t", "types", "x")).apply(record).value()
        == null;
  }
}
