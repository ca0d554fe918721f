package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.util.TokenBuffer;
import java.io.IOException;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Writes untagged JSON values as the first branch, in schema order, that accepts the value. If
 * unknown fields are ignored, several record branches can accept an object. The branch that skips
 * the fewest fields is then written.
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
    int first = nextCandidate(0, token);
    if (first == branches.length) {
      throw mismatch(parser);
    }
    if (nextCandidate(first + 1, token) == branches.length) {
      // Usually a union is null and one type, whose branch throws a more specific error.
      out.writeInt(first);
      branches[first].write(parser, out);
    } else if (token.isStructStart()) {
      tryStructures(first, parser, out);
    } else {
      tryScalars(first, parser, out);
    }
  }

  private void tryScalars(int first, JsonParser parser, AvroOutput out)
      throws IOException, PayloadException {
    JsonToken token = parser.currentToken();
    for (int i = first; i < branches.length; i = nextCandidate(i + 1, token)) {
      if (tryBranch(i, parser, out)) {
        return;
      }
    }
    throw mismatch(parser);
  }

  /** Try the branches with buffered tokens, because the parser can read the structure only once. */
  private void tryStructures(int first, JsonParser parser, AvroOutput out)
      throws IOException, PayloadException {
    JsonToken token = parser.currentToken();
    int start = out.position();
    int openSlots = out.openSlots();
    int skippedBefore = out.skippedFields();
    byte[] best = null;
    int fewestSkipped = 0;
    try (TokenBuffer tokens = new TokenBuffer(parser)) {
      tokens.forceUseOfBigDecimal(true);
      tokens.copyCurrentStructure(parser);
      for (int i = first; i < branches.length; i = nextCandidate(i + 1, token)) {
        try (JsonParser replay = tokens.asParser()) {
          replay.nextToken();
          if (!tryBranch(i, replay, out)) {
            continue;
          }
        }
        int skipped = out.skippedFields() - skippedBefore;
        if (skipped == 0) {
          return;
        }
        if (best == null || skipped < fewestSkipped) {
          best = out.writtenFrom(start);
          fewestSkipped = skipped;
        }
        out.rollback(start, openSlots, skippedBefore);
      }
    }
    if (best == null) {
      throw PayloadException.mismatch(expected(), token);
    }
    out.writeFixed(best);
    out.skipFields(fewestSkipped);
  }

  private boolean tryBranch(int branch, JsonParser parser, AvroOutput out)
      throws IOException, PayloadException {
    if (!out.countAttempt()) {
      throw new PayloadException("too many combinations of union branches");
    }
    int position = out.position();
    int openSlots = out.openSlots();
    int skipped = out.skippedFields();
    try {
      out.writeInt(branch);
      branches[branch].write(parser, out);
      return true;
    } catch (PayloadException e) {
      out.rollback(position, openSlots, skipped);
      return false;
    }
  }

  /** Return the first branch from {@code index} on that accepts the token, or the branch count. */
  private int nextCandidate(int index, JsonToken token) {
    int i = index;
    while (i < branches.length && !branches[i].accepts(token)) {
      i++;
    }
    return i;
  }
}
