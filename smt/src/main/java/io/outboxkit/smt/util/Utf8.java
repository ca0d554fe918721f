package io.outboxkit.smt.util;

/** UTF-8 encoding and validation. The methods allocate no memory and replace no characters. */
public final class Utf8 {
  private Utf8() {}

  /** Return the encoded size in bytes, or -1 if the text has an unpaired surrogate. */
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

  /** Return the encoded size in bytes, or an upper bound if there are unpaired surrogates. */
  public static int length(String text) {
    if (text == null) {
      return 0;
    }
    int bytes = text.length();
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c >= 0x80) {
        // A surrogate pair takes 4 bytes. String.getBytes writes an unpaired surrogate as '?'.
        bytes += c < 0x800 || Character.isSurrogate(c) ? 1 : 2;
      }
    }
    return bytes;
  }

  /** Encode text without unpaired surrogates into {@code target}, starting at {@code position}. */
  public static void encode(char[] text, int offset, int length, byte[] target, int position) {
    int index = position;
    int end = offset + length;
    for (int i = offset; i < end; i++) {
      char c = text[i];
      if (c < 0x80) {
        target[index++] = (byte) c;
      } else if (c < 0x800) {
        target[index++] = (byte) (0xC0 | c >> 6);
        target[index++] = (byte) (0x80 | c & 0x3F);
      } else if (!Character.isSurrogate(c)) {
        target[index++] = (byte) (0xE0 | c >> 12);
        target[index++] = (byte) (0x80 | c >> 6 & 0x3F);
        target[index++] = (byte) (0x80 | c & 0x3F);
      } else {
        int codePoint = Character.toCodePoint(c, text[++i]);
        target[index++] = (byte) (0xF0 | codePoint >> 18);
        target[index++] = (byte) (0x80 | codePoint >> 12 & 0x3F);
        target[index++] = (byte) (0x80 | codePoint >> 6 & 0x3F);
        target[index++] = (byte) (0x80 | codePoint & 0x3F);
      }
    }
  }

  /** Return whether the text has an unpaired surrogate. */
  public static boolean hasUnpairedSurrogate(String text) {
    int i = 0;
    while (i < text.length()) {
      int codePoint = text.codePointAt(i);
      if (codePoint >= Character.MIN_SURROGATE && codePoint <= Character.MAX_SURROGATE) {
        return true;
      }
      i += Character.charCount(codePoint);
    }
    return false;
  }

  /** Return whether the bytes in [from, to) are valid UTF-8 (RFC 3629). */
  public static boolean isValid(byte[] bytes, int from, int to) {
    int i = from;
    while (i < to) {
      int length = sequenceLength(bytes, i, to);
      if (length == 0) {
        return false;
      }
      i += length;
    }
    return true;
  }

  /** Return the length of the UTF-8 sequence at index {@code i}, or 0 if it is not valid. */
  private static int sequenceLength(byte[] bytes, int i, int to) {
    int first = bytes[i];
    if (first >= 0) {
      return 1;
    }
    int lead = first & 0xFF;
    if (lead < 0xC2 || lead > 0xF4) {
      return 0;
    }
    int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (to - i < length) {
      return 0;
    }
    int second = bytes[i + 1] & 0xFF;
    // This range excludes overlong forms, surrogates and code points above U+10FFFF.
    int min = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    int max = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    boolean valid = second >= min && second <= max;
    for (int k = 2; valid && k < length; k++) {
      valid = (bytes[i + k] & 0xC0) == 0x80;
    }
    return valid ? length : 0;
  }
}
