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
 * Whatever the schema and the JSON: the encoder's bytes read, by Avro's own reader, as what Avro's
 * own JSON path writes, or both reject the payload.
 */
class EncoderPropertyTest {
  private static final int DEPTH = 3;
  private static final int LEAST_OF_EITHER = 15;

  /** A schema and JSON, most of it made for that schema. */
  record Case(Schema schema, String json) {
    @Override
    public String toString() {
      return schema + "\n" + json;
    }
  }

  @Property(edgeCases = EdgeCasesMode.NONE)
  @StatisticsReport(StatisticsReport.StatisticsReportMode.OFF)
  void matchesTheReference(@ForAll("payloads") Case payload) throws IOException {
    boolean accepted = isSameAsReference(payload);
    // Neither outcome may be so rare that the property says nothing of it.
    Statistics.collect(accepted);
    Statistics.coverage(
        checker -> {
          checker.check(true).percentage(percent -> percent > LEAST_OF_EITHER);
          checker.check(false).percentage(percent -> percent > LEAST_OF_EITHER);
        });
  }

  @Provide
  Arbitrary<Case> payloads() {
    return Schemas.records(DEPTH)
        .flatMap(schema -> Payloads.of(schema).map(json -> new Case(schema, json)));
  }

  /** JSON that was made for another schema. */
  @Property(edgeCases = EdgeCasesMode.NONE)
  void payloadsOfOtherSchemasMatchTheReference(@ForAll("strangers") Case payload)
      throws IOException {
    isSameAsReference(payload);
  }

  @Provide
  Arbitrary<Case> strangers() {
    return Schemas.records(1)
        .tuple2()
        .flatMap(two -> Payloads.of(two.get1()).map(json -> new Case(two.get2(), json)));
  }

  /** Only PayloadException: any other one would stop the task instead of making a dead letter. */
  @Property(edgeCases = EdgeCasesMode.NONE)
  void textThatWasCutOffIsRejected(@ForAll("cutOff") Case payload) {
    assertThrows(PayloadException.class, () -> encode(payload));
  }

  @Provide
  Arbitrary<Case> cutOff() {
    return payloads()
        .filter(payload -> payload.json().endsWith("}"))
        .flatMap(
            payload ->
                Arbitraries.integers()
                    .between(0, payload.json().length() - 1)
                    .map(end -> new Case(payload.schema(), payload.json().substring(0, end))));
  }

  private static boolean isSameAsReference(Case payload) throws IOException {
    Object expected;
    try {
      expected = ReferencePath.read(payload.schema(), payload.json());
    } catch (ReferencePath.Rejected e) {
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
