package io.outboxkit.smt.util;

import java.nio.ByteBuffer;

/** The bytes of a Connect value of type BYTES. */
public final class Bytes {
  private Bytes() {}

  /**
   * @param value an array, which is returned as it is, or a buffer, which is not changed
   * @return null for null
   * @throws ClassCastException if it is neither
   */
  public static byte[] of(Object value) {
    if (value instanceof ByteBuffer buffer) {
      byte[] bytes = new byte[buffer.remaining()];
      buffer.duplicate().get(bytes);
      return bytes;
    }
    return (byte[]) value;
  }
}
