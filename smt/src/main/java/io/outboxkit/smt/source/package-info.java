/** Reads outbox rows from Debezium's change events and logical decoding messages. */
package io.outboxkit.smt.source;
