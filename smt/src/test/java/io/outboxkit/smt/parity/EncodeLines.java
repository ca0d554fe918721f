package io.outboxkit.smt.parity;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.outboxkit.smt.avro.AvroBodyChecker;
import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.JsonAvroEncoder.UnknownFields;
import io.outboxkit.smt.avro.PayloadException;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.RowHeaders;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;

/**
 * Encodes the cases of tests/unit/encoding/test_parity.py, which compares the results with those of
 * the relay. Each line of the input is a JSON array of a kind, a schema and texts. Each line of the
 * output is a JSON array with the result of each text, or null if the text is refused.
 */
public final class EncodeLines {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  /** Encodes one text. The result is null if the text is refused. */
  private interface Codec {
    Object result(String text) throws Exception;
  }

  private EncodeLines() {}

  public static void main(String[] args) throws IOException {
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      System.out.write(MAPPER.writeValueAsBytes(results(MAPPER.readValue(line, String[].class))));
      System.out.println();
      System.out.flush();
    }
  }

  private static List<Object> results(String[] fields) {
    List<Object> results = new ArrayList<>();
    Codec codec;
    try {
      codec = codec(fields[0], fields[1]);
    } catch (RuntimeException e) {
      return List.of("invalid schema: " + e);
    }
    for (int i = 2; i < fields.length; i++) {
      results.add(result(codec, fields[i]));
    }
    return results;
  }

  private static Object result(Codec codec, String text) {
    try {
      return codec.result(text);
    } catch (PayloadException | InvalidRowException e) {
      return null;
    } catch (Exception | StackOverflowError e) {
      return "the task stops: " + e;
    }
  }

  private static Codec codec(String kind, String schema) {
    if (kind.equals("headers")) {
      RowHeaders headers = new RowHeaders(Map.of("event_id", "reserved"));
      return text -> headers(headers, text);
    }
    Schema parsed = new Schema.Parser().parse(schema);
    if (kind.equals("body")) {
      AvroBodyChecker checker = new AvroBodyChecker(parsed);
      return text -> {
        checker.check(HexFormat.of().parseHex(text), 0);
        return text;
      };
    }
    JsonAvroEncoder encoder = new JsonAvroEncoder(parsed, UnknownFields.valueOf(kind));
    AvroOutput out = new AvroOutput();
    return text -> {
      out.reset();
      encoder.encode(text, out);
      return List.of(HexFormat.of().formatHex(out.toByteArray()), out.skippedFieldCount());
    };
  }

  private static List<List<String>> headers(RowHeaders rowHeaders, String text)
      throws InvalidRowException {
    ConnectHeaders headers = new ConnectHeaders();
    rowHeaders.addTo(headers, text);
    List<List<String>> pairs = new ArrayList<>();
    for (Header header : headers) {
      pairs.add(List.of(header.key(), (String) header.value()));
    }
    return pairs;
  }
}
