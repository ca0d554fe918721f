package io.outboxkit.smt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;

/** Routers in several threads, because the tasks of a worker share static state. */
class RoutersInParallelTest {
  private static final int THREADS = 4;
  private static final int RECORDS = 3000;

  @Test
  void resultsEqualThoseOfASingleRouter() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    try {
      List<Callable<List<SourceRecord>>> tasks = new ArrayList<>();
      for (int i = 0; i < THREADS; i++) {
        tasks.add(RoutersInParallelTest::routeAll);
      }
      List<SourceRecord> expected = routeAll();
      for (Future<List<SourceRecord>> routed : threads.invokeAll(tasks)) {
        assertSame(expected, routed.get());
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private static List<SourceRecord> routeAll() {
    OutboxRouter<SourceRecord> router =
        Routers.router("cloudevents.source", "/library", "max.record.bytes", "900");
    List<SourceRecord> routed = new ArrayList<>();
    for (int i = 0; i < RECORDS; i++) {
      String text = "x".repeat(i % 700);
      String field = i % 5 == 0 ? "unknown" : "text";
      routed.add(
          router.apply(
              OutboxEvents.insert()
                  .with("aggregate_id", "note-" + i)
                  .with("headers", "{\"n\": [" + i + "]}")
                  .payload("{\"" + field + "\": \"" + text + "\"}")
                  .record()));
    }
    return routed;
  }

  private static void assertSame(List<SourceRecord> expected, List<SourceRecord> actual) {
    for (int i = 0; i < RECORDS; i++) {
      assertEquals(expected.get(i).topic(), actual.get(i).topic());
      assertEquals(expected.get(i).key(), actual.get(i).key());
      assertEquals(Routers.headers(expected.get(i)), Routers.headers(actual.get(i)));
      assertArrayEquals((byte[]) expected.get(i).value(), (byte[]) actual.get(i).value());
    }
  }
}
