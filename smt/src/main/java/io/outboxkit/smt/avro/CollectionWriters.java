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
    private final ValueWriter itemWriter;

    ArrayWriter(ValueWriter itemWriter) {
      super("array", JsonToken.START_ARRAY);
      this.itemWriter = itemWriter;
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireToken(parser, JsonToken.START_ARRAY);
      int start = out.position();
      int count = 0;
      while (parser.nextToken() != JsonToken.END_ARRAY) {
        try {
          itemWriter.write(parser, out);
        } catch (PayloadException e) {
          throw e.within("[" + count + "]");
        }
        count++;
      }
      out.closeBlock(start, count);
    }
  }

  static final class MapWriter extends ValueWriter {
    private final ValueWriter valueWriter;

    MapWriter(ValueWriter valueWriter) {
      super("map", JsonToken.START_OBJECT);
      this.valueWriter = valueWriter;
    }

    @Override
    void write(JsonParser parser, AvroOutput out) throws IOException, PayloadException {
      requireToken(parser, JsonToken.START_OBJECT);
      int start = out.position();
      Set<String> keys = new HashSet<>();
      for (String key = parser.nextFieldName(); key != null; key = parser.nextFieldName()) {
        if (!keys.add(key)) {
          throw new PayloadException("duplicate key in a map");
        }
        char[] text = key.toCharArray();
        if (!out.writeString(text, 0, text.length)) {
          throw new PayloadException("a key of a map has an unpaired surrogate");
        }
        parser.nextToken();
        try {
          valueWriter.write(parser, out);
        } catch (PayloadException e) {
          throw e.within("{}");
        }
      }
      out.closeBlock(start, keys.size());
    }
  }
}
