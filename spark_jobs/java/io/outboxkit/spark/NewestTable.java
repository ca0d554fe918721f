package io.outboxkit.spark;

import java.util.Arrays;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** The newest record of each key, by the bytes of the key. Records without a key are all kept. */
final class NewestTable {
  private static final int FIRST_SIZE = 1 << 12;

  /** Entries by open addressing; those without a key take a place too. */
  private Entry[] entries = new Entry[FIRST_SIZE];

  private int size;
  private long bytes;

  /** What touch() saw. Only there so that its loads are not left out as useless. */
  private int touched;

  /**
   * Adds the first entries of an array, in their order. The table is far larger than the processor's
   * cache, so an entry has to be waited for; the processor loads those of several records at once
   * when nothing of one depends on another.
   */
  void add(Entry[] next, int count) {
    for (int i = 0; i < count; i++) {
      Entry kept = entries[next[i].hash & entries.length - 1];
      touched += kept == null ? 0 : kept.hash;
    }
    for (int i = 0; i < count; i++) {
      touched += touch(next[i]);
    }
    for (int i = 0; i < count; i++) {
      add(next[i]);
    }
  }

  private int touch(Entry entry) {
    Entry kept = entries[entry.hash & entries.length - 1];
    if (kept == null || kept.hash != entry.hash || kept.key == null || kept.sequence == null) {
      return 0;
    }
    return kept.key.length + kept.sequence.length;
  }

  private void add(Entry entry) {
    int at = entry.hash & entries.length - 1;
    while (entries[at] != null) {
      if (entries[at].hasKeyOf(entry)) {
        Entry kept = entries[at];
        entries[at] = entry.isNewerThan(kept) ? entry.standingFor(kept) : kept.standingFor(entry);
        bytes += entries[at].bytes - kept.bytes;
        return;
      }
      at = at + 1 & entries.length - 1;
    }
    entries[at] = entry;
    bytes += entry.bytes;
    if (++size * 2 > entries.length) {
      grow();
    }
  }

  private void grow() {
    Entry[] larger = new Entry[entries.length * 2];
    for (Entry entry : entries) {
      if (entry != null) {
        int at = entry.hash & larger.length - 1;
        while (larger[at] != null) {
          at = at + 1 & larger.length - 1;
        }
        larger[at] = entry;
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

  /** Roughly what the entries take. */
  long bytes() {
    return bytes;
  }

  int slots() {
    return entries.length;
  }

  /** What is in a slot, which is empty afterwards; or null. */
  Entry take(int slot) {
    Entry entry = entries[slot];
    entries[slot] = null;
    return entry;
  }

  /** A record, and what is known of those that it replaced. */
  static final class Entry {
    private static final String SEQUENCE = "source_sequence";
    private static final String VALUE_ID = "__value_schema_id";
    private static final String KEY_ID = "__key_schema_id";
    // See order.py.
    private static final int NO_SEQUENCE = 1;
    private static final int GOOD_SEQUENCE = 2;
    private static final int MALFORMED_SEQUENCE = 4;
    private static final int SEQUENCE_LENGTH = 38;

    /** Roughly what an entry costs besides its bytes. */
    private static final int OVERHEAD = 200;

    private final byte[] key;
    private final byte[] value;
    private final long offset;
    private final long timestamp;
    private byte[] sequence;
    private byte[] valueId;
    private byte[] keyId;
    private final int hash;
    private final int bytes;
    private long records = 1;
    private int kinds;

    Entry(ConsumerRecord<byte[], byte[]> record) {
      key = record.key();
      value = record.value();
      offset = record.offset();
      timestamp = record.timestamp();
      // Of several headers of a name the last counts.
      for (Header header : record.headers()) {
        switch (header.key()) {
          case SEQUENCE -> sequence = header.value();
          case VALUE_ID -> valueId = header.value();
          case KEY_ID -> keyId = header.value();
          default -> {}
        }
      }
      bytes = OVERHEAD + (key == null ? 0 : key.length) + (value == null ? 0 : value.length);
      kinds = kindOf(sequence);
      hash =
          key == null
              ? Long.hashCode(offset)
              : Murmur3_x86_32.hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, key.length, 0);
    }

    private static int kindOf(byte[] sequence) {
      if (sequence == null) {
        return NO_SEQUENCE;
      }
      return sequence.length == SEQUENCE_LENGTH ? GOOD_SEQUENCE : MALFORMED_SEQUENCE;
    }

    private boolean hasKeyOf(Entry other) {
      return hash == other.hash && key != null && Arrays.equals(key, other.key);
    }

    /** Itself, which stands for what the other one stands for too. */
    private Entry standingFor(Entry other) {
      records += other.records;
      kinds |= other.kinds;
      return this;
    }

    /** By (sequence, offset) as the aggregation compares them: NULL first, bytes unsigned. */
    private boolean isNewerThan(Entry other) {
      int order;
      if (sequence == null || other.sequence == null) {
        order = Boolean.compare(sequence != null, other.sequence != null);
      } else {
        order = Arrays.compareUnsigned(sequence, other.sequence);
      }
      return order > 0 || order == 0 && offset > other.offset;
    }

    /** In the columns of NewestRecords.SCHEMA. */
    InternalRow row(int partition) {
      return new GenericInternalRow(
          new Object[] {
            key,
            value,
            partition,
            offset,
            timestamp * 1000,
            sequence,
            valueId,
            keyId,
            records,
            kinds
          });
    }
  }
}
