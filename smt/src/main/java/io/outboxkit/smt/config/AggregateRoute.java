package io.outboxkit.smt.config;

import io.outboxkit.smt.outbox.PayloadEncoder;
import io.outboxkit.smt.outbox.PayloadFormat;

/**
 * Topic, partitioning and payload encoding of one aggregate type.
 *
 * @param partitionField outbox column whose hash determines the partition, or null if the producer
 *     hashes the record key
 */
public record AggregateRoute(
    String type,
    String topic,
    int partitionCount,
    String partitionField,
    PayloadFormat format,
    PayloadEncoder encoder) {}
