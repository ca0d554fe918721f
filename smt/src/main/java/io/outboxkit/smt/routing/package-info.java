/** Writes outbox rows as records of their aggregate's topic or of the dead letter topic. */
package io.outboxkit.smt.routing;
