package io.outboxkit.smt.compare;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.debezium.transforms.outbox.EventRouter;
import io.debezium.transforms.partitions.PartitionRouting;
import io.outboxkit.smt.Routers;
import io.outboxkit.smt.SetPartition;
import java.util.HashMap;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/** Transforms of Debezium and of outbox-kit, configured for the table of {@code OutboxEvents}. */
final class Sides {
  private boolean usedDebezium;
  private boolean usedOutboxKit;

  /** EventRouter with the same columns and topics, and further options as name, value, ... */
  UnaryOperator<SourceRecord> eventRouter(String... more) {
    Map<String, String> props = new HashMap<>();
    props.put("table.field.event.key", "aggregate_id");
    props.put("table.field.event.type", "event_type");
    props.put("route.by.field", "aggregate_type");
    props.put("route.topic.replacement", "library.${routedByValue}");
    usedDebezium = true;
    return configured(new EventRouter<>(), props, more);
  }

  /** PartitionRouting by the aggregate's id, over 12 partitions. */
  UnaryOperator<SourceRecord> partitionRouting(String... more) {
    Map<String, String> props = new HashMap<>();
    props.put("partition.payload.fields", "change.aggregate_id");
    props.put("partition.topic.num", "12");
    usedDebezium = true;
    return configured(new PartitionRouting<>(), props, more);
  }

  UnaryOperator<SourceRecord> outboxRouter(String... more) {
    usedOutboxKit = true;
    return Routers.router(more)::apply;
  }

  /** OutboxRouter with this schema, whose id is {@link Routers#NOTE_V1_ID}, for all payloads. */
  UnaryOperator<SourceRecord> outboxRouterBy(String schema) {
    return outboxRouter("aggregate.note.schema.1", schema);
  }

  /** SetPartition by the record's key, over 12 partitions. */
  UnaryOperator<SourceRecord> setPartition(String... more) {
    Map<String, String> props = new HashMap<>();
    props.put("partitions", "12");
    usedOutboxKit = true;
    return configured(new SetPartition<>(), props, more);
  }

  private static UnaryOperator<SourceRecord> configured(
      Transformation<SourceRecord> transform, Map<String, String> props, String... more) {
    transform.configure(Routers.with(props, more));
    return transform::apply;
  }

  /** Creates the parameter of each test, and fails tests that used transforms of one side only. */
  static final class Parameter implements ParameterResolver, AfterTestExecutionCallback {
    private static final ExtensionContext.Namespace NAMESPACE =
        ExtensionContext.Namespace.create(Sides.class);

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
      return parameter.getParameter().getType() == Sides.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
      Sides sides = new Sides();
      context.getStore(NAMESPACE).put(Sides.class, sides);
      return sides;
    }

    @Override
    public void afterTestExecution(ExtensionContext context) {
      Sides sides = context.getStore(NAMESPACE).get(Sides.class, Sides.class);
      assertTrue(
          context.getExecutionException().isPresent()
              || sides != null && sides.usedDebezium && sides.usedOutboxKit,
          "a comparison must use a transform of Debezium and one of outbox-kit");
    }
  }
}
