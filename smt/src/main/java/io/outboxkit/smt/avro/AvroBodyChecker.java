package io.outboxkit.smt.avro;

import io.outboxkit.smt.util.Utf8;
import java.util.List;
import org.apache.avro.Schema;

/**
 * Whether bytes are one Avro value of a schema, to their last byte, without building the value.
 *
 * <p>By hand because Avro's readers take what others choke on: text that is not UTF-8, a boolean of
 * 7, an array of more nulls than memory holds, records nested until the stack ends. Types are
 * checked, logical types are not. Not thread-safe.
 */
public final class AvroBodyChecker {
  /** Levels of records, arrays and maps, as for JSON. */
  private static final int MAX_DEPTH = 200;

  /** Items that take no bytes, in one value. Those that take some are bounded by the bytes. */
  private static final int MAX_EMPTY_ITEMS = 100_000;

  /** Most bytes of a number where Avro's readers read an int. */
  private static final int MAX_INT_BYTES = 5;

  /** Most bytes where they read a long: lengths, counts of items and sizes of blocks are longs. */
  private static final int MAX_LONG_BYTES = 10;

  private final Schema schema;
  private byte[] bytes;
  private int at;
  private long itemsLeft;

  public AvroBodyChecker(Schema schema) {
    this.schema = schema;
  }

  /**
   * @param body what holds the value, from {@code start} to its end; not changed
   * @throws PayloadException if it does not decode, says where and why
   */
  public void check(byte[] body, int start) throws PayloadException {
    bytes = body;
    at = start;
    itemsLeft = (long) body.length - start + MAX_EMPTY_ITEMS;
    try {
      value(schema, 0);
      if (at != body.length) {
        throw new PayloadException((body.length - at) + " bytes after the end of the Avro value");
      }
    } finally {
      bytes = null;
    }
  }

  private void value(Schema type, int depth) throws PayloadException {
    switch (type.getType()) {
      case NULL -> {
        // Takes no bytes.
      }
      case BOOLEAN -> requireBelow(2, unsignedByte(), "boolean");
      case INT -> intNumber();
      case LONG -> varint();
      case FLOAT -> skip(Float.BYTES);
      case DOUBLE -> skip(Double.BYTES);
      case BYTES -> skip(varint());
      case FIXED -> skip(type.getFixedSize());
      case STRING -> string();
      case ENUM -> requireBelow(type.getEnumSymbols().size(), varint(MAX_INT_BYTES), "enum");
      case UNION -> {
        List<Schema> branches = type.getTypes();
        value(branches.get(requireBelow(branches.size(), varint(MAX_INT_BYTES), "union")), depth);
      }
      case RECORD -> record(type, deeper(depth));
      case ARRAY -> blocks(type.getElementType(), false, deeper(depth));
      case MAP -> blocks(type.getValueType(), true, deeper(depth));
    }
  }

  private void record(Schema type, int depth) throws PayloadException {
    for (Schema.Field field : type.getFields()) {
      try {
        value(field.schema(), depth);
      } catch (PayloadException e) {
        throw e.within(field.name());
      }
    }
  }

  private void blocks(Schema items, boolean keyed, int depth) throws PayloadException {
    long index = 0;
    for (long count = varint(); count != 0; count = varint()) {
      long size = count < 0 ? varint() : -1;
      int start = at;
      for (long left = Math.abs(count); left != 0; left--) {
        item(items, keyed, depth, index++);
      }
      if (count < 0 && at - start != size) {
        throw new PayloadException("a block of items has not the size that it says");
      }
    }
  }

  private void item(Schema type, boolean keyed, int depth, long index) throws PayloadException {
    if (--itemsLeft < 0) {
      throw new PayloadException("more items than bytes");
    }
    try {
      if (keyed) {
        string();
      }
      value(type, depth);
    } catch (PayloadException e) {
      throw e.within(keyed ? "{}" : "[" + index + "]");
    }
  }

  private void string() throws PayloadException {
    long length = varint();
    int start = at;
    skip(length);
    if (!Utf8.isValid(bytes, start, at)) {
      throw new PayloadException("expected string, found bytes that are not UTF-8");
    }
  }

  private void intNumber() throws PayloadException {
    long value = varint(MAX_INT_BYTES);
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

  private long varint() throws PayloadException {
    return varint(MAX_LONG_BYTES);
  }

  private long varint(int maxBytes) throws PayloadException {
    long value = 0;
    for (int i = 0; i < maxBytes; i++) {
      int next = unsignedByte();
      value |= (next & 0x7FL) << (7 * i);
      if (next < 0x80) {
        return value >>> 1 ^ -(value & 1);
      }
    }
    throw new PayloadException("a number of more than " + maxBytes + " bytes");
  }

  private int unsignedByte() throws PayloadException {
    int start = at;
    skip(1);
    return bytes[start] & 0xFF;
  }

  private void skip(long count) throws PayloadException {
    if (count < 0) {
      throw new PayloadException("a length below 0");
    }
    if (count > bytes.length - at) {
      throw new PayloadException("the bytes end within the value");
    }
    at += (int) count;
  }

  private static int deeper(int depth) throws PayloadException {
    if (depth == MAX_DEPTH) {
      throw new PayloadException("nested over " + MAX_DEPTH + " levels deep");
    }
    return depth + 1;
  }
}
