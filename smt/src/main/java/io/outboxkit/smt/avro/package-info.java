/**
 * JSON text to Avro's binary form in one pass. An Avro schema is compiled once into a tree of
 * {@link io.outboxkit.smt.avro.ValueWriter}s; nothing is built per value.
 */
package io.outboxkit.smt.avro;
