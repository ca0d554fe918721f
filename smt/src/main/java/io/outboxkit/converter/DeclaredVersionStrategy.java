package io.outboxkit.converter;

import io.apicurio.registry.resolver.ParsedSchema;
import io.apicurio.registry.resolver.data.Record;
import io.apicurio.registry.resolver.strategy.ArtifactReference;
import io.apicurio.registry.resolver.strategy.ArtifactReferenceResolverStrategy;
import io.apicurio.registry.serde.data.KafkaSerdeMetadata;
import org.apache.avro.Schema;
import org.apache.kafka.connect.errors.DataException;

/**
 * Selects the version of the artifact {@code <topic>-value} with which Apicurio's converter writes
 * a Struct. ParsePayload sets the number of this version on the Struct's schema.
 *
 * <p>The converter's own strategies are not sufficient. One registers the Struct's schema, which
 * lacks logical types that Connect does not support. Another uses the latest version. During the
 * roll-out of version 2, it would write Structs of version 1 to fields of version 2 by position.
 */
public final class DeclaredVersionStrategy
    implements ArtifactReferenceResolverStrategy<Schema, Object> {
  /** Avro property with the version of a schema. AvroData sets it if connect.meta.data=true. */
  private static final String VERSION_PROPERTY = "connect.version";

  @Override
  public ArtifactReference artifactReference(Record<Object> record, ParsedSchema<Schema> schema) {
    KafkaSerdeMetadata metadata = (KafkaSerdeMetadata) record.metadata();
    Object version = schema.getParsedSchema().getObjectProp(VERSION_PROPERTY);
    if (version == null) {
      throw new DataException(
          String.format(
              "Schema %s of a value for topic %s has no version; set connect.meta.data=true on the"
                  + " converter, and parse the values with the transform ParsePayload",
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
