package io.outboxkit.smt;

import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.routing.InvalidRowHandler;
import io.outboxkit.smt.routing.RowRouter;
import io.outboxkit.smt.source.EnvelopeReader;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;

/**
 * Converts inserts into an outbox table, and logical decoding messages with a configured prefix,
 * into the records that docs/contract.md specifies. A record value is a {@code byte[]} with schema
 * BYTES (Avro in Confluent wire format, or text), or null with a null schema (a tombstone).
 *
 * <p>Heartbeats and records of the kinds that {@code pass.through} lists are returned unchanged.
 * Updates and deletes of outbox rows are dropped if the options allow it. Any other record causes a
 * {@link DataException}.
 */
public final class OutboxRouter<R extends ConnectRecord<R>> extends BaseTransform<R> {
  public static final String OVERVIEW_DOC =
      "Convert the rows or messages of a transactional outbox to records that have a topic, key,"
          + " partition and headers. The value is the payload, as Avro in Confluent wire format or"
          + " as text; the value of a tombstone is null.";

  /** All options, except the keys {@code aggregate.T.*} of each aggregate type T. */
  public static final ConfigDef CONFIG_DEF = RouterConfig.CONFIG_DEF;

  private EnvelopeReader envelopeReader;
  private RowRouter router;
  private InvalidRowHandler invalidRowHandler;

  public OutboxRouter() {
    super(CONFIG_DEF);
  }

  @Override
  void initialize(Map<String, ?> props) {
    RouterConfig config = new RouterConfig(props);
    envelopeReader = new EnvelopeReader(config);
    router = new RowRouter(config);
    invalidRowHandler = new InvalidRowHandler(config);
  }

  @Override
  public R apply(R record) {
    OutboxRow row = envelopeReader.read(record);
    if (row == null) {
      return record;
    }
    if (row == OutboxRow.SKIPPED) {
      return null;
    }
    try {
      return router.route(record, row);
    } catch (InvalidRowException e) {
      return invalidRowHandler.handle(record, row, e);
    }
  }
}
