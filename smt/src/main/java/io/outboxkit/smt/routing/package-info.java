/** Converts outbox rows to records for the topics of aggregates or for the dead letter topic. */
package io.outboxkit.smt.routing;
