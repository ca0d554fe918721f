package io.outboxkit.smt.outbox;

/**
 * One event: an inserted row of the outbox, or a message of its prefix. Any of the texts may be
 * null: whether that is allowed is not decided here.
 *
 * @param columns the whole row or message
 * @param id the event's id
 * @param key the aggregate's id
 * @param schemaVersion label of the schema version that the payload was written by; null if the row
 *     names none, or there is no such column
 * @param payload text, or bytes as array or buffer, as the column is; null for SQL NULL and for
 *     JSON null in a message. Of a message that is no JSON object, its content
 * @param headers JSON text; null for SQL NULL or no such column
 * @param eventTime UTC with six fraction digits; null if the column holds no such time
 * @param sequence see {@link SourceSequence}
 * @param lsn position of the event in the log; null if the source has none
 * @param commitMillis commit time in milliseconds since 1970; null if the source has none
 */
public record OutboxRow(
    RowColumns columns,
    String id,
    String key,
    String aggregateType,
    String eventType,
    String schemaVersion,
    Object payload,
    String headers,
    String eventTime,
    String sequence,
    Long lsn,
    Long commitMillis) {

  /** In place of a row: a change of the outbox table from which nothing follows. */
  public static final OutboxRow SKIPPED =
      new OutboxRow(null, null, null, null, null, null, null, null, null, null, null, null);
}
