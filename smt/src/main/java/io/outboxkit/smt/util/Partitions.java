package io.outboxkit.smt.util;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Utils;

/** The partition that Kafka's Java producer picks for a key. */
public final class Partitions {
  private Partitions() {}

  /**
   * murmur2 of the text's UTF-8 bytes, modulo the partition count.
   *
   * @param partitions number of partitions of the topic, above 0
   * @return a partition from 0 to {@code partitions - 1}
   */
  public static int of(String text, int partitions) {
    return Utils.toPositive(Utils.murmur2(text.getBytes(StandardCharsets.UTF_8))) % partitions;
  }
}
