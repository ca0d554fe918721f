package io.outboxkit.smt.avro;

/** A unit of time: 3 digits of a second are milliseconds, 6 microseconds, 9 nanoseconds. */
final class Ticks {
  private static final long SECONDS_PER_DAY = 86_400;
  private static final int NANOS_PER_SECOND = 1_000_000_000;

  private final int perSecond;
  private final int nanosPerTick;

  Ticks(int fractionDigits) {
    int ticks = 1;
    for (int i = 0; i < fractionDigits; i++) {
      ticks *= 10;
    }
    this.perSecond = ticks;
    this.nanosPerTick = NANOS_PER_SECOND / ticks;
  }

  /** Whether the nanoseconds are a whole number of ticks. */
  boolean holds(int nanos) {
    return nanos % nanosPerTick == 0;
  }

  /**
   * @throws ArithmeticException if the ticks do not fit a long
   */
  long of(long seconds, int nanos) {
    // The product alone can overflow at the lower end where the sum does not.
    return seconds < 0 && nanos > 0
        ? Math.addExact(
            Math.multiplyExact(seconds + 1, (long) perSecond), nanos / nanosPerTick - perSecond)
        : Math.addExact(Math.multiplyExact(seconds, (long) perSecond), nanos / nanosPerTick);
  }

  long perDay() {
    return SECONDS_PER_DAY * perSecond;
  }
}
