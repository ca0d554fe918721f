/** Extends Apicurio's Avro converter. Its separate jar belongs in the converter's plugin folder. */
package io.outboxkit.converter;
