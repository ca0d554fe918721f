package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.util.TokenBuffer;
import java.io.IOException;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Writes a JSON value as the first branch in schema order that accepts it, because the JSON does
 * not name a branch. If unknown fields are ignored, several record branches can accept an object.
 * In that case, the branch that skips the fewest fields is written.
 */
final class UnionWriter extends ValueWriter {
  private final ValueWriter[] branches;

  UnionWriter(List<ValueWriter> branches) {
    super(branches.stream().map(ValueWriter::expected).collect(Collectors.joining(" or ")));
    this.branches = branches.toArray(ValueWriter[]::new);
  }

  @Override
  void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
    JsonToken token = parser.currentToken();
    int firstCandidate = nextCandidate(0, token);
    if (firstCandidate == branches.length) {
      throw mismatch(parser);
    }
    if (nextCandidate(firstCandidate + 1, token) == branches.length) {
      // If there is only one candidate, its error is more specific than the union's error.
      out.writeInt(firstCandidate);
      branches[firstCandidate].write(parser, out);
    } else if (token.isStructStart()) {
      writeStructure(firstCandidate, parser, out);
    } else {
      writeScalar(firstCandidate, parser, out);
    }
  }

  private void writeScalar(int firstCandidate, JsonParser parser, AvroOutput out)
      throws IOException, PayloadException {
    JsonToken token = parser.currentToken();
    for (int i = firstCandidate; i < branches.length; i = nextCandidate(i + 1, token)) {
      if (tryBranch(i, parser, out)) {
        return;
      }
    }
    throw mismatch(parser);
  }

  /** Try each branch with buffered tokens, because the parser can read the structure only once. */
  private void writeStructure(int firstCandidate, JsonParser parser, AvroOutput out)
      throws IOException, PayloadException {
    JsonToken token = parser.currentToken();
    int start = out.position();
    int slotCount = out.slotCount();
    int skippedBefore = out.skippedFieldCount();
    byte[] bestBytes = null;
    int fewestSkipped = 0;
    try (TokenBuffer tokens = new TokenBuffer(parser)) {
      tokens.forceUseOfBigDecimal(true);
      tokens.copyCurrentStructure(parser);
      for (int i = firstCandidate; i < branches.length; i = nextCandidate(i + 1, token)) {
        try (JsonParser replay = new ReplayParser(tokens.asParser(), out)) {
          replay.nextToken();
          if (!tryBranch(i, replay, out)) {
            continue;
          }
        }
        int skipped = out.skippedFieldCount() - skippedBefore;
        if (skipped == 0) {
          return;
        }
        if (bestBytes == null || skipped < fewestSkipped) {
          bestBytes = out.copyFrom(start);
          fewestSkipped = skipped;
        }
        out.rollback(start, slotCount, skippedBefore);
      }
    }
    if (bestBytes == null) {
      throw PayloadException.mismatch(expected(), token);
    }
    out.writeFixed(bestBytes);
    out.addSkippedFields(fewestSkipped);
  }

  private boolean tryBranch(int branch, JsonParser parser, AvroOutput out) throws IOException {
    int position = out.position();
    int slotCount = out.slotCount();
    int skippedCount = out.skippedFieldCount();
    try {
      out.writeInt(branch);
      branches[branch].write(parser, out);
      return true;
    } catch (PayloadException e) {
      out.rollback(position, slotCount, skippedCount);
      return false;
    }
  }

  /** Return the first branch from {@code index} that accepts the token, or the branch count. */
  private int nextCandidate(int index, JsonToken token) {
    int i = index;
    while (i < branches.length && !branches[i].accepts(token)) {
      i++;
    }
    return i;
  }
}
