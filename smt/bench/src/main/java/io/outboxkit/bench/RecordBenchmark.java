package io.outboxkit.bench;

import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * Time per record of a connector config and a payload type, from Debezium's change event to the
 * bytes of the record's value.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class RecordBenchmark {
  /**
   * {@code CONFIG/PAYLOAD}: file name of a connector config, without suffix, in the folder of the
   * system property {@code bench.connectors}, and a {@link Payload}.
   */
  @Param("")
  public String run;

  private Pipeline pipeline;
  private ChangeEvents events;
  private int requestsOfSetup;

  @Setup
  public void start() {
    String[] parts = run.split("/");
    Path folder = Path.of(System.getProperty("bench.connectors"));
    pipeline = Pipeline.of(folder.resolve(parts[0] + ".json"));
    events = new ChangeEvents(Payload.valueOf(parts[1]));
    for (int i = 0; i < ChangeEvents.COUNT; i++) {
      pipeline.check(events.next(), parts[1]);
    }
    requestsOfSetup = pipeline.registryRequests();
  }

  @Benchmark
  public Object record(ProcessorTime processor) {
    processor.count();
    return pipeline.convert(events.next());
  }

  /** Throw if the converter sent requests, which would be part of the measured time. */
  @TearDown(Level.Iteration)
  public void requireWarmCache() {
    if (pipeline.registryRequests() != requestsOfSetup) {
      throw new IllegalStateException(
          "Registry requests during the measurement: "
              + (pipeline.registryRequests() - requestsOfSetup));
    }
  }

  @TearDown
  public void stop() {
    pipeline.close();
  }
}
