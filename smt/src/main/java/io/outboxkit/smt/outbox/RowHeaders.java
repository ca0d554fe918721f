package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.outbox.InvalidRowException.Reason;
import io.outboxkit.smt.util.Json;
import io.outboxkit.smt.util.MessageText;
import io.outboxkit.smt.util.Utf8;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * Parser of the headers column, whose JSON object contains additional record headers.
 *
 * @param reservedNames names that the column must not contain, and the reason for each name
 */
public record RowHeaders(Map<String, String> reservedNames) {
  /**
   * Add the column's headers. Strings are unchanged, and other values become compact JSON.
   *
   * @param json the column's text. Null and JSON null do not add headers
   * @throws InvalidRowException if the text is not a JSON object, if a name is reserved, repeated
   *     or empty, or if a name or a value has an unpaired surrogate
   */
  public void addTo(ConnectHeaders headers, String json) throws InvalidRowException {
    if (json == null) {
      return;
    }
    try (JsonParser parser = Json.FACTORY.createParser(json)) {
      JsonToken token = parser.nextToken();
      if (token == JsonToken.START_OBJECT) {
        addFields(headers, parser);
      } else if (token != JsonToken.VALUE_NULL) {
        throw invalidHeaders("expected a JSON object of header names and values");
      }
      if (parser.nextToken() != null) {
        throw invalidHeaders("there is text after the end of the JSON value");
      }
    } catch (JsonProcessingException e) {
      // Jackson's message is omitted, because it quotes the text around the error.
      throw invalidHeaders("not valid JSON");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private void addFields(ConnectHeaders headers, JsonParser parser)
      throws IOException, InvalidRowException {
    Set<String> names = new HashSet<>();
    for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
      if (name.isEmpty()) {
        throw invalidHeaders("empty header name");
      }
      if (reservedNames.containsKey(name)) {
        throw invalidHeaders("\"" + name + "\" is " + reservedNames.get(name));
      }
      if (!names.add(name)) {
        throw invalidHeaders("duplicate header " + MessageText.quote(name));
      }
      String value = readValue(parser);
      if (Utf8.hasUnpairedSurrogate(name) || Utf8.hasUnpairedSurrogate(value)) {
        throw invalidHeaders("a name or a value has an unpaired surrogate");
      }
      RecordHeaders.add(headers, name, value);
    }
  }

  private static String readValue(JsonParser parser) throws IOException {
    JsonToken token = parser.nextToken();
    if (!token.isStructStart()) {
      return parser.getText();
    }
    StringWriter text = new StringWriter();
    try (JsonGenerator generator = Json.FACTORY.createGenerator(text)) {
      copyStructure(parser, generator);
    }
    return text.toString();
  }

  /** Copy numbers as text, because Jackson fails on a number such as 1e99999999999. */
  private static void copyStructure(JsonParser parser, JsonGenerator generator) throws IOException {
    int depth = 0;
    do {
      JsonToken token = parser.currentToken();
      if (token.isNumeric()) {
        generator.writeNumber(parser.getText());
      } else {
        generator.copyCurrentEvent(parser);
      }
      depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
    } while (depth > 0 && parser.nextToken() != null);
  }

  private static InvalidRowException invalidHeaders(String problem) {
    return new InvalidRowException(Reason.HEADERS_INVALID, "headers: " + problem);
  }
}
