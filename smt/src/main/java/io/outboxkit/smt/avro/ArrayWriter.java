package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** JSON arrays as arrays. */
final class ArrayWriter extends ValueWriter {
  private final ValueWriter items;

  ArrayWriter(ValueWriter items) {
    super("array");
    this.items = items;
  }

  @Override
  boolean takes(JsonToken token) {
    return token == JsonToken.START_ARRAY;
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    if (json.currentToken() != JsonToken.START_ARRAY) {
      throw mismatch(json);
    }
    int start = out.position();
    int count = 0;
    while (json.nextToken() != JsonToken.END_ARRAY) {
      try {
        items.write(json, out);
      } catch (PayloadException e) {
        throw e.within("[" + count + "]");
      }
      count++;
    }
    out.closeBlock(start, count);
  }
}
