package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.util.Names;
import io.outboxkit.smt.util.Utf8;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.header.ConnectHeaders;

/** The headers that the row itself brings: a JSON object, one header per field. */
final class RowHeaders {
  private static final JsonFactory JSON = new JsonFactory();

  private final Map<String, String> taken;

  /**
   * @param taken names that a row may not set, each with what they are
   */
  RowHeaders(Map<String, String> taken) {
    this.taken = Map.copyOf(taken);
  }

  /**
   * Adds the row's headers: strings as they are, anything else as compact JSON text.
   *
   * @param json the column's text; null or JSON null adds nothing
   * @throws InvalidRowException if the text is no JSON object, or repeats a name, or takes one that
   *     is taken, or holds what is no UTF-8
   */
  void addTo(ConnectHeaders headers, String json) throws InvalidRowException {
    if (json == null) {
      return;
    }
    try (JsonParser parser = JSON.createParser(json)) {
      JsonToken first = parser.nextToken();
      if (first == JsonToken.START_OBJECT) {
        addFields(headers, parser);
      } else if (first != JsonToken.VALUE_NULL) {
        throw invalid("expected a JSON object of header names and values");
      }
      if (parser.nextToken() != null) {
        throw invalid("text after the end of the JSON value");
      }
    } catch (JsonProcessingException e) {
      // Jackson's message quotes the text around the error.
      throw invalid("not readable as JSON");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private void addFields(ConnectHeaders headers, JsonParser parser)
      throws IOException, InvalidRowException {
    Set<String> seen = new HashSet<>();
    for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
      if (name.isEmpty()) {
        throw invalid("a header has no name");
      }
      String owner = taken.get(name);
      if (owner != null) {
        throw invalid("\"" + name + "\" is " + owner + " and cannot be set by a row");
      }
      if (!seen.add(name)) {
        throw invalid(Names.shown(name) + " is there twice");
      }
      String value = value(parser);
      if (Utf8.holdsHalfPair(name) || Utf8.holdsHalfPair(value)) {
        throw invalid("a name or a value holds half a surrogate pair");
      }
      RecordHeaders.add(headers, name, value);
    }
  }

  private static String value(JsonParser parser) throws IOException {
    JsonToken token = parser.nextToken();
    if (!token.isStructStart()) {
      return parser.getText();
    }
    StringWriter text = new StringWriter();
    try (JsonGenerator generator = JSON.createGenerator(text)) {
      generator.copyCurrentStructureExact(parser);
    }
    return text.toString();
  }

  private static InvalidRowException invalid(String problem) {
    return new InvalidRowException(Reason.HEADERS_INVALID, "headers: " + problem);
  }
}
