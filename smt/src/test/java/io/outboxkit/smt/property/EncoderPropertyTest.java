package io.outboxkit.smt.property;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.PayloadException;
import java.io.IOException;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.EdgeCasesMode;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.statistics.Statistics;
import net.jqwik.api.statistics.StatisticsReport;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * For random schemas and JSON, Avro's reader decodes the encoder's bytes to the value that {@link
 * ReferenceReader} reads, or both reject the payload.
 */
class EncoderPropertyTest {
  private static final int DEPTH = 3;
  private static final int MIN_PERCENTAGE = 15;

  /** A schema and JSON text. */
  record Case(Schema schema, String json) {
    @Override
    public String toString() {
      return schema + "\n" + json;
    }
  }

  @Property(edgeCases = EdgeCasesMode.NONE)
  @StatisticsReport(StatisticsReport.StatisticsReportMode.OFF)
  void matchesTheReference(@ForAll("payloads") Case payload) throws IOException {
    boolean accepted = matchesReference(payload);
    // Both outcomes must be frequent, or one of them would not be tested.
    Statistics.collect(accepted);
    Statistics.coverage(
        checker -> {
          checker.check(true).percentage(percent -> percent > MIN_PERCENTAGE);
          checker.check(false).percentage(percent -> percent > MIN_PERCENTAGE);
        });
  }

  @Provide
  Arbitrary<Case> payloads() {
    return Schemas.records(DEPTH)
        .flatMap(schema -> Payloads.of(schema).map(json -> new Case(schema, json)));
  }

  /** JSON that was generated for a different schema. */
  @Property(edgeCases = EdgeCasesMode.NONE)
  void payloadsOfOtherSchemasMatchTheReference(@ForAll("mismatched") Case payload)
      throws IOException {
    matchesReference(payload);
  }

  @Provide
  Arbitrary<Case> mismatched() {
    return Schemas.records(1)
        .tuple2()
        .flatMap(
            schemas -> Payloads.of(schemas.get1()).map(json -> new Case(schemas.get2(), json)));
  }

  /** Any exception other than PayloadException would stop the task instead of a dead letter. */
  @Property(edgeCases = EdgeCasesMode.NONE)
  void truncatedTextIsRejected(@ForAll("truncated") Case payload) {
    assertThrows(PayloadException.class, () -> encode(payload));
  }

  @Provide
  Arbitrary<Case> truncated() {
    return payloads()
        .filter(payload -> payload.json().endsWith("}"))
        .flatMap(
            payload ->
                Arbitraries.integers()
                    .between(0, payload.json().length() - 1)
                    .map(end -> new Case(payload.schema(), payload.json().substring(0, end))));
  }

  private static boolean matchesReference(Case payload) throws IOException {
    Object expected;
    try {
      expected = ReferenceReader.read(payload.schema(), payload.json());
    } catch (ReferenceReader.Rejected e) {
      assertThrows(PayloadException.class, () -> encode(payload), e.getMessage());
      return false;
    }
    byte[] bytes;
    try {
      bytes = encode(payload);
    } catch (PayloadException e) {
      throw new AssertionError("only JsonAvroEncoder rejects: " + e.getMessage(), e);
    }
    BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
    assertEquals(expected, new GenericDatumReader<>(payload.schema()).read(null, decoder));
    assertTrue(decoder.isEnd(), "bytes after the value");
    return true;
  }

  private static byte[] encode(Case payload) throws PayloadException {
    AvroOutput out = new AvroOutput();
    new JsonAvroEncoder(payload.schema()).encode(payload.json(), out);
    return out.toByteArray();
  }
}
