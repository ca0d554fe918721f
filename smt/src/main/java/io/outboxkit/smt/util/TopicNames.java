package io.outboxkit.smt.util;

import org.apache.kafka.common.config.ConfigException;

/** Names a broker accepts. Checked at the start: sends to any other name would only time out. */
public final class TopicNames {
  private static final String LEGAL = "[A-Za-z0-9._-]{1,249}";

  private TopicNames() {}

  public static String require(String option, String topic) {
    if (!topic.matches(LEGAL) || topic.equals(".") || topic.equals("..")) {
      throw new ConfigException(
          option, topic, "must be a topic name: 1 to 249 letters, digits, '.', '_' and '-'");
    }
    return topic;
  }
}
