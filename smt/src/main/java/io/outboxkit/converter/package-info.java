/**
 * What Apicurio's Avro converter lacks to write the schemas that are declared. A jar of its own, in
 * the converter's plugin folder.
 */
package io.outboxkit.converter;
