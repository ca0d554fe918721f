/**
 * What {@link io.outboxkit.smt.OutboxRouter} is made of: its options, the rows it reads, what it
 * writes.
 */
package io.outboxkit.smt.outbox;
