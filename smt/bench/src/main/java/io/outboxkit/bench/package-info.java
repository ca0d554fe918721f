/**
 * JMH benchmarks of the transforms against those that others publish. What is measured is a
 * connector config: transforms, predicates and value converter as Connect would make them from it.
 */
package io.outboxkit.bench;
