package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.debezium.data.Json;
import io.debezium.data.Uuid;
import io.debezium.schema.SchemaFactory;
import io.debezium.schema.SchemaNameAdjuster;
import io.debezium.time.ZonedTimestamp;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.junit.jupiter.api.Test;

/** Compares the schema names and fields that the transforms rely on with Debezium's classes. */
class DebeziumShapesTest {
  private static final SchemaFactory SCHEMAS = SchemaFactory.get();

  @Test
  void heartbeatSchemaHasTheExpectedName() {
    assertEquals(Records.HEARTBEAT, SCHEMAS.heartbeatValueSchema(SchemaNameAdjuster.NO_OP).name());
  }

  @Test
  void transactionMetadataSchemaHasTheExpectedName() {
    assertEquals(
        Records.TRANSACTION, SCHEMAS.transactionValueSchema(SchemaNameAdjuster.NO_OP).name());
  }

  @Test
  void notificationSchemaHasTheExpectedName() {
    assertEquals(
        Records.NOTIFICATION, SCHEMAS.notificationValueSchema(SchemaNameAdjuster.NO_OP).name());
  }

  /** The fields of source that all connectors have. */
  @Test
  void sourceSchemaOfOutboxEventsHasDebeziumsFields() {
    Schema actual = OutboxEvents.sourceSchema();
    for (Field field : SCHEMAS.sourceInfoSchemaBuilder().fields()) {
      assertEquals(field.schema().type(), actual.field(field.name()).schema().type(), field.name());
    }
  }

  @Test
  void columnSchemasHaveTheExpectedNames() {
    assertEquals("io.debezium.data.Json", Json.schema().name());
    assertEquals("io.debezium.data.Uuid", Uuid.schema().name());
    assertEquals("io.debezium.time.ZonedTimestamp", ZonedTimestamp.schema().name());
    assertEquals(Schema.Type.STRING, ZonedTimestamp.schema().type());
  }
}
