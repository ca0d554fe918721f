package io.outboxkit.smt.util;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** The version of this plugin, as the build wrote it. */
public final class Version {
  private static final String CURRENT = read();

  private Version() {}

  public static String current() {
    return CURRENT;
  }

  private static String read() {
    Properties properties = new Properties();
    try (InputStream in =
        Version.class.getResourceAsStream("/io/outboxkit/smt/version.properties")) {
      if (in != null) {
        properties.load(in);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return properties.getProperty("version", "undefined");
  }
}
