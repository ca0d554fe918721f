package io.outboxkit.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import org.openjdk.jmh.annotations.AuxCounters;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * CPU nanoseconds per record, which depend far less on other processes than JMH's wall-clock time.
 */
@State(Scope.Thread)
@AuxCounters(AuxCounters.Type.EVENTS)
public class ProcessorTime {
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  /** Read by JMH after each iteration. */
  public double processorNanos;

  private long records;
  private long start;

  @Setup(Level.Iteration)
  public void begin() {
    records = 0;
    start = THREADS.getCurrentThreadCpuTime();
  }

  void count() {
    records++;
  }

  @TearDown(Level.Iteration)
  public void end() {
    processorNanos = (double) (THREADS.getCurrentThreadCpuTime() - start) / records;
  }
}
