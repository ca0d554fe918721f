package io.outboxkit.smt.avro;

import io.outboxkit.smt.util.Utf8;
import java.util.Arrays;
import org.apache.avro.io.BinaryData;

/**
 * Reusable buffer for one Avro value, with the positions of fields. To avoid building an object
 * tree, the fields of a record are written in the order of the JSON text, which jsonb sorts by name
 * length, and then copied in the order of the schema. Avro's encoders write to a stream, in which
 * fields cannot be moved. Not thread-safe.
 */
public final class AvroOutput {
  /** Maximum size, in bytes, of an encoded boolean, number or item count. */
  private static final int MAX_NUMBER_BYTES = 10;

  /** Maximum length, in chars, of an ASCII string whose length prefix takes one byte. */
  private static final int MAX_SHORT_LENGTH = 63;

  /** Maximum size, in bytes, of a buffer that is reused for the next value. */
  private static final int MAX_RETAINED_CAPACITY = 1 << 20;

  /** Tokens and chars that {@link #countReplay} allows per char of the JSON text. */
  private static final int MAX_REPLAY_PER_CHAR = 20;

  /** Tokens and chars that {@link #countReplay} also allows, regardless of the text's length. */
  private static final int MIN_REPLAY = 100_000;

  private static final int INITIAL_CAPACITY = 4096;

  private byte[] bytes = new byte[INITIAL_CAPACITY];
  private int size;

  /** Start and end position of each field of the open records, or -1 for unwritten fields. */
  private int[] slots = new int[64];

  private int slotCount;
  private int skippedFieldCount;
  private long remainingReplay;

  /** Start a value in Confluent wire format: byte 0x00 and the big-endian schema id. */
  public void startWireFormat(int schemaId) {
    reset();
    ensureCapacity(5);
    bytes[size++] = 0;
    bytes[size++] = (byte) (schemaId >>> 24);
    bytes[size++] = (byte) (schemaId >>> 16);
    bytes[size++] = (byte) (schemaId >>> 8);
    bytes[size++] = (byte) schemaId;
  }

  public void reset() {
    size = 0;
    slotCount = 0;
    skippedFieldCount = 0;
    if (bytes.length > MAX_RETAINED_CAPACITY) {
      bytes = new byte[INITIAL_CAPACITY];
    }
  }

  public byte[] toByteArray() {
    return Arrays.copyOf(bytes, size);
  }

  /** Return the number of JSON fields that were skipped because the schema lacks them. */
  public int skippedFieldCount() {
    return skippedFieldCount;
  }

  void addSkippedFields(int count) {
    skippedFieldCount += count;
  }

  int position() {
    return size;
  }

  /** Return a copy of the bytes from {@code position} to the end. */
  byte[] copyFrom(int position) {
    return Arrays.copyOfRange(bytes, position, size);
  }

  int slotCount() {
    return slotCount;
  }

  void rollback(int oldPosition, int oldSlotCount, int oldSkippedFieldCount) {
    size = oldPosition;
    slotCount = oldSlotCount;
    skippedFieldCount = oldSkippedFieldCount;
  }

  /** Limit the work of union branches to a multiple of the JSON text's length. */
  void limitReplay(int jsonLength) {
    remainingReplay = MIN_REPLAY + (long) MAX_REPLAY_PER_CHAR * jsonLength;
  }

  /** Count tokens and chars that union branches read. Return false if the limit is exceeded. */
  boolean countReplay(int count) {
    remainingReplay -= count;
    return remainingReplay >= 0;
  }

  void writeBoolean(boolean value) {
    ensureCapacity(MAX_NUMBER_BYTES);
    size += BinaryData.encodeBoolean(value, bytes, size);
  }

  void writeInt(int value) {
    ensureCapacity(MAX_NUMBER_BYTES);
    size += BinaryData.encodeInt(value, bytes, size);
  }

  void writeLong(long value) {
    ensureCapacity(MAX_NUMBER_BYTES);
    size += BinaryData.encodeLong(value, bytes, size);
  }

  void writeFloat(float value) {
    ensureCapacity(MAX_NUMBER_BYTES);
    size += BinaryData.encodeFloat(value, bytes, size);
  }

  void writeDouble(double value) {
    ensureCapacity(MAX_NUMBER_BYTES);
    size += BinaryData.encodeDouble(value, bytes, size);
  }

  /** Write bytes without a length prefix. */
  public void writeFixed(byte[] value) {
    ensureCapacity(value.length);
    System.arraycopy(value, 0, bytes, size, value.length);
    size += value.length;
  }

  void writeBytes(byte[] value) {
    writeLong(value.length);
    writeFixed(value);
  }

  /** Write a string. If it has an unpaired surrogate, write nothing and return false. */
  boolean writeString(char[] text, int offset, int length) {
    return writeShortAscii(text, offset, length) || writeAnyString(text, offset, length);
  }

  /** Write a short ASCII string in one pass. Return false for longer or non-ASCII text. */
  private boolean writeShortAscii(char[] text, int offset, int length) {
    if (length > MAX_SHORT_LENGTH) {
      return false;
    }
    ensureCapacity(1 + length);
    int start = size + 1;
    int bits = 0;
    for (int i = 0; i < length; i++) {
      char c = text[offset + i];
      bits |= c;
      bytes[start + i] = (byte) c;
    }
    if (bits >= 0x80) {
      return false;
    }
    bytes[size] = (byte) (length << 1);
    size = start + length;
    return true;
  }

  private boolean writeAnyString(char[] text, int offset, int length) {
    int encodedLength = Utf8.length(text, offset, length);
    if (encodedLength < 0) {
      return false;
    }
    writeLong(encodedLength);
    ensureCapacity(encodedLength);
    Utf8.encode(text, offset, length, bytes, size);
    size += encodedLength;
    return true;
  }

  /** Insert the count before the items, which begin at {@code start}. Append the end marker. */
  void closeBlock(int start, int count) {
    if (count > 0) {
      ensureCapacity(2 * MAX_NUMBER_BYTES);
      // First encode the count after the items, to determine the length of the encoded count.
      int countLength = BinaryData.encodeLong(count, bytes, size);
      System.arraycopy(bytes, start, bytes, start + countLength, size - start);
      BinaryData.encodeLong(count, bytes, start);
      size += countLength;
    }
    writeLong(0);
  }

  /** Add one slot per field of a record. Return the record's frame: the index of its first slot. */
  int openRecord(int fieldCount) {
    int frame = slotCount;
    slotCount += 2 * fieldCount;
    if (slotCount > slots.length) {
      slots = Arrays.copyOf(slots, Math.max(slotCount, 2 * slots.length));
    }
    Arrays.fill(slots, frame, slotCount, -1);
    return frame;
  }

  boolean hasField(int frame, int field) {
    return slots[frame + 2 * field] >= 0;
  }

  /** Store the start position of a field, and the current position as its end. */
  void storeFieldBounds(int frame, int field, int start) {
    slots[frame + 2 * field] = start;
    slots[frame + 2 * field + 1] = size;
  }

  void closeRecord(int frame) {
    slotCount = frame;
  }

  void copyField(int frame, int field) {
    int start = slots[frame + 2 * field];
    int length = slots[frame + 2 * field + 1] - start;
    ensureCapacity(length);
    System.arraycopy(bytes, start, bytes, size, length);
    size += length;
  }

  /** Replace all bytes from {@code start} with the bytes from {@code replacementStart}. */
  void replace(int start, int replacementStart) {
    int length = size - replacementStart;
    System.arraycopy(bytes, replacementStart, bytes, start, length);
    size = start + length;
  }

  private void ensureCapacity(int count) {
    if (bytes.length - size < count) {
      bytes = Arrays.copyOf(bytes, Math.max(Math.addExact(size, count), 2 * bytes.length));
    }
  }
}
