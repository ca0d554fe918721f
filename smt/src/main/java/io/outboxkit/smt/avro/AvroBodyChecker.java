package io.outboxkit.smt.avro;

import io.outboxkit.smt.util.Json;
import io.outboxkit.smt.util.Utf8;
import java.util.List;
import org.apache.avro.Schema;

/**
 * Checks that bytes are exactly one Avro value of a schema, without creating objects. Unlike Avro's
 * readers, the checker rejects strings that are not UTF-8, booleans other than 0 and 1, and arrays
 * or nesting that would exhaust the memory or the stack. It ignores logical types. Not thread-safe.
 */
public final class AvroBodyChecker {
  /** Number of items allowed in addition to one per byte, because an item can take zero bytes. */
  private static final int MAX_EMPTY_ITEMS = 100_000;

  /** Maximum size, in bytes, of an encoded int, enum symbol or union branch. */
  private static final int MAX_INT_BYTES = 5;

  /** Maximum size, in bytes, of an encoded long, length, item count or block size. */
  private static final int MAX_LONG_BYTES = 10;

  private final Schema schema;
  private byte[] bytes;
  private int offset;
  private long remainingItemCount;

  public AvroBodyChecker(Schema schema) {
    this.schema = schema;
  }

  /** Check that the bytes from {@code start} to the end are exactly one value of the schema. */
  public void check(byte[] body, int start) throws PayloadException {
    bytes = body;
    offset = start;
    remainingItemCount = (long) body.length - start + MAX_EMPTY_ITEMS;
    try {
      checkValue(schema, 0);
      if (offset != body.length) {
        throw new PayloadException(
            (body.length - offset) + " bytes after the end of the Avro value");
      }
    } finally {
      bytes = null;
    }
  }

  private void checkValue(Schema type, int depth) throws PayloadException {
    switch (type.getType()) {
      case NULL -> {}
      case BOOLEAN -> requireBelow(2, readUnsignedByte(), "boolean");
      case INT -> checkInt();
      case LONG -> readVarint();
      case FLOAT -> skip(Float.BYTES);
      case DOUBLE -> skip(Double.BYTES);
      case BYTES -> skip(readVarint());
      case FIXED -> skip(type.getFixedSize());
      case STRING -> checkString();
      case ENUM -> requireBelow(type.getEnumSymbols().size(), readVarint(MAX_INT_BYTES), "enum");
      case UNION -> {
        List<Schema> branches = type.getTypes();
        checkValue(
            branches.get(requireBelow(branches.size(), readVarint(MAX_INT_BYTES), "union")), depth);
      }
      case RECORD -> checkRecord(type, nextDepth(depth));
      case ARRAY -> checkBlocks(type.getElementType(), false, nextDepth(depth));
      case MAP -> checkBlocks(type.getValueType(), true, nextDepth(depth));
    }
  }

  private void checkRecord(Schema type, int depth) throws PayloadException {
    for (Schema.Field field : type.getFields()) {
      try {
        checkValue(field.schema(), depth);
      } catch (PayloadException e) {
        throw e.within(field.name());
      }
    }
  }

  private void checkBlocks(Schema items, boolean isMap, int depth) throws PayloadException {
    long index = 0;
    for (long count = readVarint(); count != 0; count = readVarint()) {
      // After a negative item count, Avro writes the size of the block in bytes.
      long declaredSize = count < 0 ? readVarint() : -1;
      int start = offset;
      for (long itemsInBlock = Math.abs(count); itemsInBlock != 0; itemsInBlock--) {
        checkItem(items, isMap, depth, index++);
      }
      if (count < 0 && offset - start != declaredSize) {
        throw new PayloadException("the size of a block of items differs from its declared size");
      }
    }
  }

  private void checkItem(Schema type, boolean isMap, int depth, long index)
      throws PayloadException {
    if (--remainingItemCount < 0) {
      throw new PayloadException("too many array and map items for the size of the body");
    }
    try {
      if (isMap) {
        checkString();
      }
      checkValue(type, depth);
    } catch (PayloadException e) {
      throw e.within(isMap ? "{}" : "[" + index + "]");
    }
  }

  private void checkString() throws PayloadException {
    long length = readVarint();
    int start = offset;
    skip(length);
    if (!Utf8.isValid(bytes, start, offset)) {
      throw new PayloadException("expected string, found bytes that are not UTF-8");
    }
  }

  private void checkInt() throws PayloadException {
    long value = readVarint(MAX_INT_BYTES);
    if (value != (int) value) {
      throw new PayloadException("expected int, found a number out of range");
    }
  }

  private static int requireBelow(int count, long value, String expected) throws PayloadException {
    if (value < 0 || value >= count) {
      throw new PayloadException("expected " + expected + ", found a number out of range");
    }
    return (int) value;
  }

  private long readVarint() throws PayloadException {
    return readVarint(MAX_LONG_BYTES);
  }

  private long readVarint(int maxBytes) throws PayloadException {
    long value = 0;
    for (int i = 0; i < maxBytes; i++) {
      int nextByte = readUnsignedByte();
      value |= (nextByte & 0x7FL) << (7 * i);
      if (nextByte < 0x80) {
        return value >>> 1 ^ -(value & 1);
      }
    }
    throw new PayloadException("a varint has more than " + maxBytes + " bytes");
  }

  private int readUnsignedByte() throws PayloadException {
    int start = offset;
    skip(1);
    return bytes[start] & 0xFF;
  }

  private void skip(long count) throws PayloadException {
    if (count < 0) {
      throw new PayloadException("a length is negative");
    }
    if (count > bytes.length - offset) {
      throw new PayloadException("the bytes end before the end of the value");
    }
    offset += (int) count;
  }

  private static int nextDepth(int depth) throws PayloadException {
    if (depth == Json.MAX_DEPTH) {
      throw new PayloadException("nested over " + Json.MAX_DEPTH + " levels deep");
    }
    return depth + 1;
  }
}
