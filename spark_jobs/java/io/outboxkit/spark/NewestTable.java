package io.outboxkit.spark;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * Hash table of the newest record of each key, and of all records without a key or with a malformed
 * source_sequence, because these do not supersede other records.
 */
final class NewestTable {
  private static final int INITIAL_SLOTS = 1 << 12;

  /** Slots of the table (open addressing). Records that do not supersede others also use slots. */
  private Entry[] entries = new Entry[INITIAL_SLOTS];

  private int size;
  private long sizeInBytes;

  /** Sum of the loaded values. If the values were unused, the JIT compiler would omit the loads. */
  private int prefetched;

  /**
   * Adds the first `count` entries of an array, in order. The slots of all entries are loaded
   * first, because the table may exceed the processor's caches and independent loads overlap.
   */
  void add(Entry[] batch, int count) {
    for (int i = 0; i < count; i++) {
      Entry current = entries[batch[i].hash & entries.length - 1];
      prefetched += current == null ? 0 : current.hash;
    }
    for (int i = 0; i < count; i++) {
      prefetched += prefetch(batch[i]);
    }
    for (int i = 0; i < count; i++) {
      add(batch[i]);
    }
  }

  private int prefetch(Entry entry) {
    Entry current = entries[entry.hash & entries.length - 1];
    if (current == null
        || current.hash != entry.hash
        || current.key == null
        || current.sequence == null) {
      return 0;
    }
    return current.key.length + current.sequence.length;
  }

  private void add(Entry entry) {
    int slot = entry.hash & entries.length - 1;
    while (entries[slot] != null) {
      if (entries[slot].hasSameKeyAs(entry)) {
        Entry current = entries[slot];
        entries[slot] = entry.isNewerThan(current) ? entry.merge(current) : current.merge(entry);
        sizeInBytes += entries[slot].sizeInBytes - current.sizeInBytes;
        return;
      }
      slot = slot + 1 & entries.length - 1;
    }
    entries[slot] = entry;
    sizeInBytes += entry.sizeInBytes;
    if (++size * 2 > entries.length) {
      grow();
    }
  }

  private void grow() {
    Entry[] larger = new Entry[entries.length * 2];
    for (Entry entry : entries) {
      if (entry != null) {
        int slot = entry.hash & larger.length - 1;
        while (larger[slot] != null) {
          slot = slot + 1 & larger.length - 1;
        }
        larger[slot] = entry;
      }
    }
    entries = larger;
  }

  int size() {
    return size;
  }

  boolean isEmpty() {
    return size == 0;
  }

  /** Approximate size of the entries, in bytes. */
  long sizeInBytes() {
    return sizeInBytes;
  }

  int slotCount() {
    return entries.length;
  }

  /** Removes and returns the entry of a slot; null if the slot is empty. */
  Entry take(int slot) {
    Entry entry = entries[slot];
    entries[slot] = null;
    return entry;
  }

  /** A record. Its recordCount and sequenceKinds include the records that it superseded. */
  static final class Entry {
    private static final String SEQUENCE_HEADER = "source_sequence";
    private static final String VALUE_SCHEMA_ID_HEADER = "__value_schema_id";
    private static final String KEY_SCHEMA_ID_HEADER = "__key_schema_id";
    // The same bits as in spark_jobs/outbox_spark/kafka/ordering.py.
    private static final int NO_SEQUENCE = 1;
    private static final int VALID_SEQUENCE = 2;
    private static final int MALFORMED_SEQUENCE = 4;
    private static final int SEQUENCE_LENGTH = 38;
    private static final int UNDERSCORE_INDEX = 4;
    private static final int HYPHEN_INDEX = 21;
    /** 1 for the characters 0-9 and a-f, 0 for any other byte. */
    private static final byte[] IS_HEX_DIGIT = new byte[256];

    static {
      for (byte digit : "0123456789abcdef".getBytes(StandardCharsets.US_ASCII)) {
        IS_HEX_DIGIT[digit] = 1;
      }
    }

    private static final long MAX_MILLIS = Long.MAX_VALUE / 1000;

    /** Approximate size in bytes of an entry without its key and value. */
    private static final int OVERHEAD_BYTES = 200;

    private final byte[] key;
    private final byte[] value;
    private final long offset;
    private final long timestamp;
    private byte[] sequence;
    private byte[] valueSchemaId;
    private byte[] keySchemaId;
    private final int hash;
    private final int sizeInBytes;
    private long recordCount = 1;
    private int sequenceKinds;

    Entry(ConsumerRecord<byte[], byte[]> record, boolean requiresSequence) {
      key = record.key();
      value = record.value();
      offset = record.offset();
      timestamp = record.timestamp();
      // If several headers have the same name, the last one applies.
      for (Header header : record.headers()) {
        switch (header.key()) {
          case SEQUENCE_HEADER -> sequence = header.value();
          case VALUE_SCHEMA_ID_HEADER -> valueSchemaId = header.value();
          case KEY_SCHEMA_ID_HEADER -> keySchemaId = header.value();
          default -> {}
        }
      }
      int keyBytes = key == null ? 0 : key.length;
      sizeInBytes = OVERHEAD_BYTES + keyBytes + (value == null ? 0 : value.length);
      sequenceKinds = sequence == null && requiresSequence ? MALFORMED_SEQUENCE : kindOf(sequence);
      if (sequenceKinds == MALFORMED_SEQUENCE) {
        sequence = null;
      }
      hash =
          key == null || sequenceKinds == MALFORMED_SEQUENCE
              ? Long.hashCode(offset)
              : Murmur3_x86_32.hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, key.length, 0);
    }

    /** Applies the same rule as sequence_kind() in spark_jobs/outbox_spark/kafka/ordering.py. */
    private static int kindOf(byte[] sequence) {
      if (sequence == null) {
        return NO_SEQUENCE;
      }
      if (sequence.length != SEQUENCE_LENGTH
          || sequence[UNDERSCORE_INDEX] != '_'
          || sequence[HYPHEN_INDEX] != '-') {
        return MALFORMED_SEQUENCE;
      }
      // This loop has no branches, because digits are unpredictable. The separators are not digits.
      int otherCharacters = 0;
      for (byte character : sequence) {
        otherCharacters += 1 - IS_HEX_DIGIT[character & 0xFF];
      }
      return otherCharacters == 2 ? VALID_SEQUENCE : MALFORMED_SEQUENCE;
    }

    private boolean hasSameKeyAs(Entry other) {
      return hash == other.hash
          && ((sequenceKinds | other.sequenceKinds) & MALFORMED_SEQUENCE) == 0
          && key != null
          && Arrays.equals(key, other.key);
    }

    /** Adds recordCount and sequenceKinds of a superseded entry, and returns this entry. */
    private Entry merge(Entry superseded) {
      recordCount += superseded.recordCount;
      sequenceKinds |= superseded.sequenceKinds;
      return this;
    }

    /** Compares (sequence, offset) like newest_per_key.py: null is lowest, bytes are unsigned. */
    private boolean isNewerThan(Entry other) {
      int order;
      if (sequence == null || other.sequence == null) {
        order = Boolean.compare(sequence != null, other.sequence != null);
      } else {
        order = Arrays.compareUnsigned(sequence, other.sequence);
      }
      return order > 0 || order == 0 && offset > other.offset;
    }

    /** Returns this record as a row with the schema NewestRecords.SCHEMA. */
    InternalRow toRow(int partition) {
      return new GenericInternalRow(
          new Object[] {
            key,
            value,
            partition,
            offset,
            // The value is limited, so that it cannot overflow to a different, valid timestamp.
            Math.max(-MAX_MILLIS, Math.min(timestamp, MAX_MILLIS)) * 1000,
            sequence,
            valueSchemaId,
            keySchemaId,
            recordCount,
            sequenceKinds
          });
    }
  }
}
