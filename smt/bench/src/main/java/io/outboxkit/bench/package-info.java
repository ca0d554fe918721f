/**
 * JMH benchmarks of the transforms and of published alternatives. Each runs the transforms,
 * predicates and value converter of a connector config, created as Connect creates them.
 */
package io.outboxkit.bench;
