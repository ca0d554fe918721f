package io.outboxkit.smt.outbox;

/**
 * One event: an inserted row of the outbox, or a message of its prefix. Any of the texts may be
 * null: whether that is allowed is not decided here.
 *
 * @param columns the whole row or message
 * @param id the event's id
 * @param key the aggregate's id
 * @param payload JSON text; null for SQL NULL. Of a message that is no JSON object, its content
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
    String payload,
    String headers,
    String eventTime,
    String sequence,
    Long lsn,
    Long commitMillis) {}
