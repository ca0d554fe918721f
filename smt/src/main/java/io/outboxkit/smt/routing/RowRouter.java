package io.outboxkit.smt.routing;

import io.outboxkit.smt.config.AggregateRoute;
import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.CloudEventHeaders;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.InvalidRowException.Reason;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RecordHeaders;
import io.outboxkit.smt.outbox.RowHeaders;
import io.outboxkit.smt.util.KeyPartitioner;
import io.outboxkit.smt.util.MessageText;
import io.outboxkit.smt.util.Utf8;
import java.util.Map;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;

/** Converts outbox rows into the records that docs/contract.md specifies. */
public final class RowRouter {
  private final Map<String, AggregateRoute> routes;
  private final int maxRecordBytes;
  private final RowHeaders headerParser;

  /** Null if cloudevents.source is not set. */
  private final CloudEventHeaders cloudEvents;

  public RowRouter(RouterConfig config) {
    this.routes = config.routes();
    this.maxRecordBytes = config.getInt(ConfigName.MAX_RECORD_BYTES);
    this.headerParser = new RowHeaders(config.reservedHeaders());
    this.cloudEvents = config.cloudEvents();
  }

  /** Return the record for a row. Throw InvalidRowException if the row violates the contract. */
  public <R extends ConnectRecord<R>> R route(R record, OutboxRow row) throws InvalidRowException {
    row.columns().requireValid();
    AggregateRoute route = routeOf(row);
    requireComplete(row);
    ConnectHeaders headers = RecordHeaders.of(row);
    row.columns().addColumnHeaders(headers);
    headerParser.addTo(headers, row.headers());
    Integer partition = partition(route, row);
    byte[] value = route.encoder().encode(row);
    if (cloudEvents != null) {
      cloudEvents.addTo(headers, row, value == null ? null : route.encoder().contentType(row));
    }
    requireMaxSize(row.key(), value, headers);
    return record.newRecord(
        route.topic(),
        partition,
        Schema.STRING_SCHEMA,
        row.key(),
        value == null ? null : Schema.BYTES_SCHEMA,
        value,
        row.commitMillis(),
        headers);
  }

  private AggregateRoute routeOf(OutboxRow row) throws InvalidRowException {
    AggregateRoute route = routes.get(row.aggregateType());
    if (route == null) {
      throw new InvalidRowException(
          Reason.UNKNOWN_AGGREGATE_TYPE,
          "aggregate type %s is not in the option aggregates"
              .formatted(MessageText.quote(row.aggregateType())));
    }
    return route;
  }

  private static void requireComplete(OutboxRow row) throws InvalidRowException {
    requireNonEmpty(row.key(), Reason.EMPTY_KEY, "the aggregate id");
    requireNonEmpty(row.id(), Reason.EMPTY_EVENT_ID, "the event id");
    requireNonEmpty(row.eventType(), Reason.EMPTY_EVENT_TYPE, "the event type");
    if (row.eventTime() == null) {
      throw new InvalidRowException(
          Reason.EVENT_TIME_INVALID,
          "the event time is null or not a timestamp of the years 0 to 9999");
    }
  }

  private static void requireNonEmpty(String text, Reason reason, String description)
      throws InvalidRowException {
    if (text == null || text.isEmpty()) {
      throw new InvalidRowException(reason, description + " is null or empty");
    }
  }

  /** Return the partition, or null to let the producer partition by the record key. */
  private static Integer partition(AggregateRoute route, OutboxRow row) throws InvalidRowException {
    if (route.partitionField() == null) {
      return null;
    }
    String column = route.partitionField();
    String text = row.columns().partitionText(column, route.type());
    requireNonEmpty(text, Reason.EMPTY_PARTITION_FIELD, "column " + column);
    return KeyPartitioner.partition(text, route.partitionCount());
  }

  private void requireMaxSize(String key, byte[] value, ConnectHeaders headers)
      throws InvalidRowException {
    // Nearly every record passes this cheap check, which assumes the maximum of 3 bytes per char.
    if (3L * (key.length() + RecordHeaders.countChars(headers)) + (value == null ? 0 : value.length)
        <= maxRecordBytes) {
      return;
    }
    long size =
        Utf8.length(key) + (value == null ? 0 : value.length) + RecordHeaders.sizeOf(headers);
    if (size > maxRecordBytes) {
      throw new InvalidRowException(
          Reason.RECORD_TOO_LARGE,
          "key, value and headers take " + size + " bytes; max.record.bytes is " + maxRecordBytes);
    }
  }
}
