package io.outboxkit.converter;

import io.apicurio.registry.resolver.ParsedSchema;
import io.apicurio.registry.resolver.data.Record;
import io.apicurio.registry.resolver.strategy.ArtifactReference;
import io.apicurio.registry.resolver.strategy.ArtifactReferenceResolverStrategy;
import io.apicurio.registry.serde.data.KafkaSerdeMetadata;
import org.apache.avro.Schema;
import org.apache.kafka.connect.errors.DataException;

/**
 * Makes Apicurio's converter write by a schema that is registered under {@code <topic>-value}: the
 * version whose number the Struct's schema carries (ParsePayload puts it there).
 *
 * <p>What the converter can do by itself is not enough. Registering what it derives from the Struct
 * loses logical types that Connect does not know, and adds a version that nobody declared. Taking
 * the latest version instead writes a Struct of version 1 by version 2 while a schema is rolled
 * out, field by field in order, whatever the fields are.
 */
public final class DeclaredVersionStrategy
    implements ArtifactReferenceResolverStrategy<Schema, Object> {
  /** Of AvroData: the version of the Connect schema, with {@code connect.meta.data=true}. */
  private static final String VERSION = "connect.version";

  @Override
  public ArtifactReference artifactReference(Record<Object> data, ParsedSchema<Schema> schema) {
    KafkaSerdeMetadata metadata = (KafkaSerdeMetadata) data.metadata();
    Object version = schema.getParsedSchema().getObjectProp(VERSION);
    if (version == null) {
      throw new DataException(
          "A value for topic "
              + metadata.getTopic()
              + " has a schema without a version ("
              + schema.getParsedSchema().getFullName()
              + "); only what ParsePayload made can be written, with connect.meta.data=true.");
    }
    return ArtifactReference.builder()
        .artifactId(metadata.getTopic() + "-value")
        .version(version.toString())
        .build();
  }

  @Override
  public boolean loadSchema() {
    return true;
  }
}
