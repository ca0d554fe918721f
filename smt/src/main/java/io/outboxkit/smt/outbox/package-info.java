/** Represents outbox rows, and converts them to the headers and values of records. */
package io.outboxkit.smt.outbox;
