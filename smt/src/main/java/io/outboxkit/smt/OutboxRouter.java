package io.outboxkit.smt;

import io.outboxkit.smt.outbox.EnvelopeReader;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.InvalidRows;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RouterConfig;
import io.outboxkit.smt.outbox.RowRouter;
import io.outboxkit.smt.util.Version;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Debezium's change events of a transactional outbox, rows of its table or messages of its prefix,
 * to the records of docs/contract.md, in one pass: topic by aggregate type, key, partition,
 * headers, and a value ({@code byte[]} with schema BYTES: Avro in Confluent wire format, or text)
 * or a tombstone (null with null schema).
 *
 * <p>Heartbeats pass as they are. Records that neither are the outbox's nor named in {@code
 * pass.through} are refused with a {@link DataException}; changes of the outbox table that are no
 * inserts may be skipped by option. The incoming record is never changed.
 */
public final class OutboxRouter<R extends ConnectRecord<R>>
    implements Transformation<R>, Versioned {

  public static final String OVERVIEW_DOC =
      "Route the rows or messages of a transactional outbox: topic, key, partition, headers, and"
          + " the JSON payload as Avro in Confluent wire format or a tombstone.";

  /** Options with fixed names; the {@code aggregate.*} keys depend on {@code aggregates}. */
  public static final ConfigDef CONFIG_DEF = RouterConfig.CONFIG_DEF;

  private EnvelopeReader envelopes;
  private RowRouter router;
  private InvalidRows invalidRows;

  /**
   * @throws ConfigException naming the option, its value, why it cannot be and what can
   */
  @Override
  public void configure(Map<String, ?> props) {
    RouterConfig config = new RouterConfig(props);
    envelopes = new EnvelopeReader(config);
    router = new RowRouter(config);
    invalidRows = new InvalidRows(config);
  }

  @Override
  public R apply(R record) {
    OutboxRow row = envelopes.read(record);
    if (row == null) {
      return record;
    }
    if (row == OutboxRow.SKIPPED) {
      return null;
    }
    try {
      return router.route(record, row);
    } catch (InvalidRowException invalid) {
      return invalidRows.handle(record, row, invalid);
    }
  }

  @Override
  public ConfigDef config() {
    return CONFIG_DEF;
  }

  @Override
  public String version() {
    return Version.current();
  }

  @Override
  public void close() {}
}
