/** JSON to Avro binary in one pass, by a tree of writers that is compiled from the schema. */
package io.outboxkit.smt.avro;
