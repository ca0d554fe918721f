/** Encodes JSON as Avro binary in one pass, with writers that are compiled from the schema. */
package io.outboxkit.smt.avro;
