package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HashSet;
import java.util.Set;

/** JSON objects as maps. */
final class MapWriter extends ValueWriter {
  private final ValueWriter values;

  MapWriter(ValueWriter values) {
    super("map");
    this.values = values;
  }

  @Override
  boolean takes(JsonToken token) {
    return token == JsonToken.START_OBJECT;
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    if (json.currentToken() != JsonToken.START_OBJECT) {
      throw mismatch(json);
    }
    int start = out.position();
    int count = 0;
    Set<String> seen = new HashSet<>();
    for (String key = json.nextFieldName(); key != null; key = json.nextFieldName()) {
      if (!seen.add(key)) {
        throw new PayloadException("a key of the map is there twice");
      }
      char[] text = key.toCharArray();
      if (!out.writeString(text, 0, text.length)) {
        throw new PayloadException("a key of the map holds half a surrogate pair");
      }
      json.nextToken();
      try {
        values.write(json, out);
      } catch (PayloadException e) {
        throw e.within("{}");
      }
      count++;
    }
    out.closeBlock(start, count);
  }
}
