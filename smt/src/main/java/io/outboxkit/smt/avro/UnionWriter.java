package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.util.TokenBuffer;
import java.io.IOException;
import java.util.Arrays;
import java.util.stream.Collectors;

/**
 * JSON values as unions, without a tag that names the branch: the first branch, in the order of the
 * schema, that takes the value. Where unknown fields are ignored, any record takes any object that
 * has its required fields; so it is the branch that leaves out the fewest fields, the first of
 * them.
 */
final class UnionWriter extends ValueWriter {
  private final ValueWriter[] branches;

  UnionWriter(ValueWriter[] branches) {
    super(Arrays.stream(branches).map(ValueWriter::expected).collect(Collectors.joining(" or ")));
    this.branches = branches;
  }

  @Override
  boolean takes(JsonToken token) {
    return firstFrom(0, token) < branches.length;
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    JsonToken token = json.currentToken();
    int first = firstFrom(0, token);
    if (first == branches.length) {
      throw mismatch(json);
    }
    if (firstFrom(first + 1, token) == branches.length) {
      // The usual case, null and one more type: nothing to try, and the error is the branch's own.
      out.writeInt(first);
      branches[first].write(json, out);
    } else if (token.isStructStart()) {
      tryStructures(first, json, out);
    } else {
      tryScalars(first, json, out);
    }
  }

  private void tryScalars(int first, JsonParser json, AvroOutput out)
      throws IOException, PayloadException {
    JsonToken token = json.currentToken();
    for (int i = first; i < branches.length; i = firstFrom(i + 1, token)) {
      if (tried(i, json, out)) {
        return;
      }
    }
    throw mismatch(json);
  }

  /** A structure can be read only once, so its tokens are kept while branches are tried. */
  private void tryStructures(int first, JsonParser json, AvroOutput out)
      throws IOException, PayloadException {
    JsonToken token = json.currentToken();
    int start = out.position();
    int openSlots = out.openSlots();
    int before = out.skippedFields();
    byte[] best = null;
    int fewest = 0;
    try (TokenBuffer tokens = new TokenBuffer(json)) {
      tokens.forceUseOfBigDecimal(true);
      tokens.copyCurrentStructure(json);
      for (int i = first; i < branches.length; i = firstFrom(i + 1, token)) {
        try (JsonParser again = tokens.asParser()) {
          again.nextToken();
          if (!tried(i, again, out)) {
            continue;
          }
        }
        int skipped = out.skippedFields() - before;
        if (skipped == 0) {
          return;
        }
        if (best == null || skipped < fewest) {
          best = out.writtenFrom(start);
          fewest = skipped;
        }
        out.rollback(start, openSlots, before);
      }
    }
    if (best == null) {
      throw PayloadException.mismatch(expected(), token);
    }
    out.writeFixed(best);
    out.skipFields(fewest);
  }

  private boolean tried(int branch, JsonParser json, AvroOutput out)
      throws IOException, PayloadException {
    if (!out.mayTryBranch()) {
      throw new PayloadException("too many ways to read the unions of the schema");
    }
    int position = out.position();
    int openSlots = out.openSlots();
    int skipped = out.skippedFields();
    try {
      out.writeInt(branch);
      branches[branch].write(json, out);
      return true;
    } catch (PayloadException e) {
      out.rollback(position, openSlots, skipped);
      return false;
    }
  }

  /** The first branch from {@code index} on for this kind of token; the branch count if none. */
  private int firstFrom(int index, JsonToken token) {
    int i = index;
    while (i < branches.length && !branches[i].takes(token)) {
      i++;
    }
    return i;
  }
}
