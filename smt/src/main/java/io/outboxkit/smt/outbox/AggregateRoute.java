package io.outboxkit.smt.outbox;

/**
 * Where the events of one aggregate type go and how their payloads are encoded.
 *
 * @param type value of the outbox column that routes
 * @param topic topic of the records
 * @param partitions partition count of the topic
 * @param partitionField outbox column whose hash picks the partition; null: the producer hashes the
 *     record key
 * @param format what the payload column holds
 */
record AggregateRoute(
    String type,
    String topic,
    int partitions,
    String partitionField,
    PayloadFormat format,
    PayloadEncoder payloads) {}
