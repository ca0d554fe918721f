package io.outboxkit.smt;

import java.util.ArrayList;
import java.util.List;
import org.apache.log4j.AppenderSkeleton;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.spi.LoggingEvent;

/** Log events of a package, by default io.outboxkit, until the object is closed. */
public final class CapturedLog extends AppenderSkeleton implements AutoCloseable {
  private final List<LoggingEvent> events = new ArrayList<>();
  private final Logger logger;

  CapturedLog() {
    this("io.outboxkit");
  }

  public CapturedLog(String packageName) {
    logger = Logger.getLogger(packageName);
    logger.setLevel(Level.TRACE);
    logger.addAppender(this);
  }

  String text() {
    StringBuilder text = new StringBuilder();
    events.forEach(event -> text.append(event.getRenderedMessage()).append('\n'));
    return text.toString();
  }

  public long warnings() {
    return count(Level.WARN);
  }

  long count(Level level) {
    return events.stream().filter(event -> event.getLevel() == level).count();
  }

  @Override
  protected void append(LoggingEvent event) {
    events.add(event);
  }

  @Override
  public void close() {
    logger.removeAppender(this);
  }

  @Override
  public boolean requiresLayout() {
    return false;
  }
}
