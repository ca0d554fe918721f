package io.outboxkit.smt.util;

/** UTF-8 lengths and bytes without the String and the array that {@code getBytes} makes. */
public final class Utf8 {
  private Utf8() {}

  /** Bytes the text takes; -1 if it holds half a surrogate pair, which UTF-8 cannot express. */
  public static int length(char[] text, int offset, int length) {
    int bytes = 0;
    int end = offset + length;
    for (int i = offset; i < end; i++) {
      char c = text[i];
      if (c < 0x80) {
        bytes++;
      } else if (c < 0x800) {
        bytes += 2;
      } else if (!Character.isSurrogate(c)) {
        bytes += 3;
      } else if (Character.isHighSurrogate(c)
          && i + 1 < end
          && Character.isLowSurrogate(text[i + 1])) {
        bytes += 4;
        i++;
      } else {
        return -1;
      }
    }
    return bytes;
  }

  /** Bytes the text takes in a record, as {@code String.getBytes} counts: 0 for null. */
  public static int length(String text) {
    if (text == null) {
      return 0;
    }
    int bytes = text.length();
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c >= 0x80) {
        // A pair is two chars and four bytes; half a pair becomes one '?', so this can only
        // overstate.
        bytes += c < 0x800 || Character.isSurrogate(c) ? 1 : 2;
      }
    }
    return bytes;
  }

  /** Writes text that {@link #length(char[], int, int)} found sound to {@code target}. */
  public static void encode(char[] text, int offset, int length, byte[] target, int position) {
    int at = position;
    int end = offset + length;
    for (int i = offset; i < end; i++) {
      char c = text[i];
      if (c < 0x80) {
        target[at++] = (byte) c;
      } else if (c < 0x800) {
        target[at++] = (byte) (0xC0 | c >> 6);
        target[at++] = (byte) (0x80 | c & 0x3F);
      } else if (!Character.isSurrogate(c)) {
        target[at++] = (byte) (0xE0 | c >> 12);
        target[at++] = (byte) (0x80 | c >> 6 & 0x3F);
        target[at++] = (byte) (0x80 | c & 0x3F);
      } else {
        int codePoint = Character.toCodePoint(c, text[++i]);
        target[at++] = (byte) (0xF0 | codePoint >> 18);
        target[at++] = (byte) (0x80 | codePoint >> 12 & 0x3F);
        target[at++] = (byte) (0x80 | codePoint >> 6 & 0x3F);
        target[at++] = (byte) (0x80 | codePoint & 0x3F);
      }
    }
  }
}
