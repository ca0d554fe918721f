/** Converts outbox rows into records for the aggregates' topics or the dead letter topic. */
package io.outboxkit.smt.routing;
