package io.outboxkit.smt.avro;

import io.outboxkit.smt.util.Utf8;
import java.util.Arrays;
import org.apache.avro.io.BinaryData;

/**
 * The growing bytes of one Avro value, and the bookkeeping of the records that are open in it.
 * Reused from value to value; not thread-safe.
 *
 * <p>Avro's own encoders write to a stream and cannot go back. JSON fields come in any order (jsonb
 * sorts them by length), so a record is first written as it comes and its parts are then put in
 * schema order, which takes a copy of bytes instead of a tree of objects.
 */
public final class AvroOutput {
  /** Most bytes that a scalar takes. */
  private static final int MAX_SCALAR = 10;

  /** Longest string whose length takes one byte. */
  private static final int MAX_SHORT = 63;

  /** A buffer that one huge value made larger than this is not kept. */
  private static final int KEPT_CAPACITY = 1 << 20;

  private static final int MAX_ATTEMPTS = 100_000;

  private static final int INITIAL_CAPACITY = 4096;

  private byte[] bytes = new byte[INITIAL_CAPACITY];
  private int size;
  private int[] slots = new int[64];
  private int slotTop;
  private int attempts;
  private int skippedFields;

  /** Starts a new value in Confluent wire format: 0x00 and the schema id, big-endian. */
  public void startFramed(int schemaId) {
    reset();
    ensure(5);
    bytes[size++] = 0;
    bytes[size++] = (byte) (schemaId >>> 24);
    bytes[size++] = (byte) (schemaId >>> 16);
    bytes[size++] = (byte) (schemaId >>> 8);
    bytes[size++] = (byte) schemaId;
  }

  /** Forgets everything written. */
  public void reset() {
    size = 0;
    slotTop = 0;
    attempts = 0;
    skippedFields = 0;
    if (bytes.length > KEPT_CAPACITY) {
      bytes = new byte[INITIAL_CAPACITY];
    }
  }

  /** A copy of exactly the bytes written. */
  public byte[] toByteArray() {
    return Arrays.copyOf(bytes, size);
  }

  /**
   * Fields of the value that the schema does not have, with {@link UnknownFields#IGNORE}: what one
   * schema leaves out and another keeps tells which of them the value is of.
   */
  public int skippedFields() {
    return skippedFields;
  }

  void skipFields(int count) {
    skippedFields += count;
  }

  int position() {
    return size;
  }

  /** A copy of the bytes from there on. */
  byte[] writtenFrom(int position) {
    return Arrays.copyOfRange(bytes, position, size);
  }

  /** What {@link #rollback} needs besides the position and {@link #skippedFields}. */
  int openSlots() {
    return slotTop;
  }

  void rollback(int position, int openSlots, int skipped) {
    size = position;
    slotTop = openSlots;
    skippedFields = skipped;
  }

  /**
   * Counts a try of one branch of a union with several that might fit.
   *
   * @return false when the value took too many: with unions nested in themselves, a misfit deep
   *     inside makes the tries double with every level
   */
  boolean mayTryBranch() {
    return ++attempts <= MAX_ATTEMPTS;
  }

  void writeBoolean(boolean value) {
    ensure(MAX_SCALAR);
    size += BinaryData.encodeBoolean(value, bytes, size);
  }

  void writeInt(int value) {
    ensure(MAX_SCALAR);
    size += BinaryData.encodeInt(value, bytes, size);
  }

  void writeLong(long value) {
    ensure(MAX_SCALAR);
    size += BinaryData.encodeLong(value, bytes, size);
  }

  void writeFloat(float value) {
    ensure(MAX_SCALAR);
    size += BinaryData.encodeFloat(value, bytes, size);
  }

  void writeDouble(double value) {
    ensure(MAX_SCALAR);
    size += BinaryData.encodeDouble(value, bytes, size);
  }

  /** Writes the bytes as they are, without a length. */
  public void writeFixed(byte[] value) {
    ensure(value.length);
    System.arraycopy(value, 0, bytes, size, value.length);
    size += value.length;
  }

  void writeBytes(byte[] value) {
    writeLong(value.length);
    writeFixed(value);
  }

  /**
   * Writes text as an Avro string.
   *
   * @return false, with nothing written, if the text holds half a surrogate pair
   */
  boolean writeString(char[] text, int offset, int length) {
    return writeShortAscii(text, offset, length) || writeAnyString(text, offset, length);
  }

  /**
   * One pass over what most strings are: ASCII, and so short that the length takes one byte.
   *
   * @return false, with nothing written, if the text is anything else
   */
  private boolean writeShortAscii(char[] text, int offset, int length) {
    if (length > MAX_SHORT) {
      return false;
    }
    ensure(1 + length);
    int to = size + 1;
    int seen = 0;
    for (int i = 0; i < length; i++) {
      char c = text[offset + i];
      seen |= c;
      bytes[to + i] = (byte) c;
    }
    if (seen >= 0x80) {
      return false;
    }
    bytes[size] = (byte) (length << 1);
    size = to + length;
    return true;
  }

  private boolean writeAnyString(char[] text, int offset, int length) {
    int encoded = Utf8.length(text, offset, length);
    if (encoded < 0) {
      return false;
    }
    writeLong(encoded);
    ensure(encoded);
    Utf8.encode(text, offset, length, bytes, size);
    size += encoded;
    return true;
  }

  /** Puts an array's or map's item count in front of the items written since {@code start}. */
  void closeBlock(int start, int count) {
    if (count > 0) {
      ensure(2 * MAX_SCALAR);
      // Written behind the items only to learn its length.
      int header = BinaryData.encodeLong(count, bytes, size);
      System.arraycopy(bytes, start, bytes, start + header, size - start);
      BinaryData.encodeLong(count, bytes, start);
      size += header;
    }
    writeLong(0);
  }

  /**
   * Opens a record of so many fields.
   *
   * @return the frame to name in the other calls
   */
  int openRecord(int fields) {
    int frame = slotTop;
    slotTop += 2 * fields;
    if (slotTop > slots.length) {
      slots = Arrays.copyOf(slots, Math.max(slotTop, 2 * slots.length));
    }
    Arrays.fill(slots, frame, slotTop, -1);
    return frame;
  }

  boolean hasField(int frame, int field) {
    return slots[frame + 2 * field] >= 0;
  }

  /** Notes that the bytes from {@code start} to here are this field's. */
  void fieldWritten(int frame, int field, int start) {
    slots[frame + 2 * field] = start;
    slots[frame + 2 * field + 1] = size;
  }

  void closeRecord(int frame) {
    slotTop = frame;
  }

  /** Copies the bytes of a field to the end. */
  void repeatField(int frame, int field) {
    int start = slots[frame + 2 * field];
    int length = slots[frame + 2 * field + 1] - start;
    ensure(length);
    System.arraycopy(bytes, start, bytes, size, length);
    size += length;
  }

  /** Replaces everything from {@code start} by what was written from {@code replacement} on. */
  void replace(int start, int replacement) {
    int length = size - replacement;
    System.arraycopy(bytes, replacement, bytes, start, length);
    size = start + length;
  }

  private void ensure(int more) {
    if (bytes.length - size < more) {
      bytes = Arrays.copyOf(bytes, Math.max(Math.addExact(size, more), 2 * bytes.length));
    }
  }
}
