package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HashSet;
import java.util.Set;

/** Writers of the Avro types array and map. */
final class CollectionWriters {
  private CollectionWriters() {}

  static final class ArrayWriter extends ValueWriter {
    private final ValueWriter items;

    ArrayWriter(ValueWriter items) {
      super("array", JsonToken.START_ARRAY);
      this.items = items;
    }

    @Override
    void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
      requireToken(json, JsonToken.START_ARRAY);
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

  static final class MapWriter extends ValueWriter {
    private final ValueWriter values;

    MapWriter(ValueWriter values) {
      super("map", JsonToken.START_OBJECT);
      this.values = values;
    }

    @Override
    void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
      requireToken(json, JsonToken.START_OBJECT);
      int start = out.position();
      Set<String> keys = new HashSet<>();
      for (String key = json.nextFieldName(); key != null; key = json.nextFieldName()) {
        if (!keys.add(key)) {
          throw new PayloadException("duplicate key in a map");
        }
        char[] text = key.toCharArray();
        if (!out.writeString(text, 0, text.length)) {
          throw new PayloadException("a key of a map has an unpaired surrogate");
        }
        json.nextToken();
        try {
          values.write(json, out);
        } catch (PayloadException e) {
          throw e.within("{}");
        }
      }
      out.closeBlock(start, keys.size());
    }
  }
}
