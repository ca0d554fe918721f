/** Kafka Connect transforms for a transactional outbox. */
package io.outboxkit.smt;
