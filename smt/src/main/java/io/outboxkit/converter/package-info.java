/** Extension of Apicurio's Avro converter, in a separate jar for the converter's plugin folder. */
package io.outboxkit.converter;
