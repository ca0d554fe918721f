/** Outbox rows, and their conversion to the headers and values of records. */
package io.outboxkit.smt.outbox;
