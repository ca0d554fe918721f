package io.outboxkit.converter;

import io.apicurio.registry.resolver.ParsedSchema;
import io.apicurio.registry.resolver.data.Record;
import io.apicurio.registry.resolver.strategy.ArtifactReference;
import io.apicurio.registry.resolver.strategy.ArtifactReferenceResolverStrategy;
import io.apicurio.registry.serde.data.KafkaSerdeMetadata;
import org.apache.avro.Schema;
import org.apache.kafka.connect.errors.DataException;

/**
 * Lets Apicurio's converter write with the registered version of {@code <topic>-value} whose number
 * the Struct's schema has, as set by ParsePayload.
 *
 * <p>The converter's own strategies do not suffice. The schema that it derives from the Struct
 * lacks logical types unknown to Connect. With the latest version, a Struct of version 1 is written
 * with the fields of version 2, matched by order, while a new version is rolled out.
 */
public final class DeclaredVersionStrategy
    implements ArtifactReferenceResolverStrategy<Schema, Object> {
  /** Property of AvroData with {@code connect.meta.data=true}. */
  private static final String VERSION = "connect.version";

  @Override
  public ArtifactReference artifactReference(Record<Object> data, ParsedSchema<Schema> schema) {
    KafkaSerdeMetadata metadata = (KafkaSerdeMetadata) data.metadata();
    Object version = schema.getParsedSchema().getObjectProp(VERSION);
    if (version == null) {
      throw new DataException(
          String.format(
              "Schema %s of a value for topic %s has no version; set connect.meta.data=true and"
                  + " write only values of ParsePayload",
              schema.getParsedSchema().getFullName(), metadata.getTopic()));
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
