package io.outboxkit.smt.util;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** Operations on byte arrays and on Connect values of type BYTES. */
public final class Bytes {
  private Bytes() {}

  /** Return a byte array unchanged, the remaining bytes of a ByteBuffer, or null for null. */
  public static byte[] of(Object value) {
    if (value instanceof ByteBuffer buffer) {
      byte[] bytes = new byte[buffer.remaining()];
      buffer.duplicate().get(bytes);
      return bytes;
    }
    return (byte[]) value;
  }

  /** Return the SHA-256 hash as hexadecimal text. */
  public static String sha256(byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("this Java runtime does not support SHA-256", e);
    }
  }
}
