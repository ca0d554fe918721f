/**
 * JMH benchmarks of the transforms and of published alternatives, each by a connector config:
 * transforms, predicates and value converter as Connect creates them.
 */
package io.outboxkit.bench;
