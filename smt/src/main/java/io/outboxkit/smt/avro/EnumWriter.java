package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;

/**
 * JSON strings as symbols. The default of an enum is for readers of other versions and is never
 * written in place of an unknown symbol.
 */
final class EnumWriter extends ValueWriter {
  private final Map<String, Integer> symbols = new HashMap<>();

  EnumWriter(Schema schema) {
    super("enum " + schema.getFullName() + " " + schema.getEnumSymbols());
    for (String symbol : schema.getEnumSymbols()) {
      symbols.put(symbol, schema.getEnumOrdinal(symbol));
    }
  }

  @Override
  boolean takes(JsonToken token) {
    return token == JsonToken.VALUE_STRING;
  }

  @Override
  void write(JsonParser json, AvroOutput out) throws IOException, PayloadException {
    if (json.currentToken() != JsonToken.VALUE_STRING) {
      throw mismatch(json);
    }
    Integer ordinal = symbols.get(json.getText());
    if (ordinal == null) {
      throw mismatch("another string");
    }
    out.writeInt(ordinal);
  }
}
