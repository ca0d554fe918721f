package io.outboxkit.smt.outbox;

import io.outboxkit.smt.avro.JsonAvroEncoder;
import java.util.List;

/**
 * Where the events of one aggregate type go and how their payloads are encoded.
 *
 * @param type value of the outbox column that routes
 * @param topic topic of the records
 * @param partitions partition count of the topic
 * @param partitionField outbox column whose hash picks the partition; null: the producer hashes the
 *     record key
 * @param versions schema versions, newest first, at least one
 */
public record AggregateRoute(
    String type,
    String topic,
    int partitions,
    String partitionField,
    List<SchemaVersion> versions) {

  /**
   * One version of the value schema.
   *
   * @param label the version in words of the subject, for messages
   * @param id the registry's id of the schema, as written into each record
   * @param encoder writes payloads by that schema
   */
  public record SchemaVersion(String label, int id, JsonAvroEncoder encoder) {}
}
