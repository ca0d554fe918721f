package io.outboxkit.smt.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.kafka.connect.errors.DataException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.NullSource;
import org.junit.jupiter.params.provider.ValueSource;

class SourceSequenceTest {

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      nullValues = "-",
      value = {
        "1 | [\"45767952\",\"45768008\"] | 45768008 | 0001_0000000002ba5d10-0000000002ba5d48",
        "0 | [null,\"188902120\"] | 188902120 | 0000_0000000000000000-000000000b426ae8",
        "65535 | [\"1\", null] | 16 | ffff_0000000000000001-0000000000000010",
        "255 | - | 16 | 00ff_0000000000000000-0000000000000010",
        "1 | - | - | 0001_0000000000000000-0000000000000000",
        "1 | [null,null] | - | 0001_0000000000000000-0000000000000000",
        "1 | [ \"1\" , \"9223372036854775807\" ] | - | 0001_0000000000000001-7fffffffffffffff"
      })
  void sequenceHasEpochCommitAndEvent(int epoch, String sourceSequence, Long lsn, String expected) {
    String sequence = SourceSequence.format(epoch, sourceSequence, lsn);
    assertEquals(expected, sequence);
    assertEquals(SourceSequence.LENGTH, sequence.length());
  }

  @Test
  void sequencesSortByWalOrder() {
    String earlier = SourceSequence.format(1, "[\"99\",\"255\"]", null);
    String later = SourceSequence.format(1, "[\"100\",\"9\"]", null);
    assertTrue(earlier.compareTo(later) < 0);
    assertTrue(later.compareTo(SourceSequence.format(2, "[null,\"1\"]", null)) < 0);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "7",
        "[1,2]",
        "[\"1\"]",
        "[\"1\",\"x\"]",
        "[\"\",\"1\"]",
        "{\"1\",\"2\"}",
        "[\"1\",\"-2\"]",
        "[\"1\",\"9223372036854775808\"]",
        "[\"1\",\"10000000000000000000\"]"
      })
  void otherFormsAreRejected(String sourceSequence) {
    assertThrows(DataException.class, () -> SourceSequence.format(1, sourceSequence, 1L));
  }

  @ParameterizedTest
  @NullSource
  void sourceWithoutSequenceUsesItsLsn(String sourceSequence) {
    assertEquals(
        "0001_0000000000000000-0000000000000005", SourceSequence.format(1, sourceSequence, 5L));
  }
}
