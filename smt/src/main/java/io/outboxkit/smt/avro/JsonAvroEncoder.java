package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonLocation;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.exc.StreamConstraintsException;
import io.outboxkit.smt.util.Json;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.avro.Schema;

/**
 * Encodes JSON text as Avro binary. docs/smt-payloads.md lists the JSON values that each Avro type
 * accepts. Rejects duplicate fields, missing fields without a default, numbers out of range,
 * numbers that would lose digits (except for float and double) and, by default, unknown fields. Not
 * thread-safe.
 */
public final class JsonAvroEncoder {
  /** Handling of JSON fields that the Avro record does not have. */
  public enum UnknownFields {
    REJECT,
    IGNORE
  }

  private final ValueWriter rootWriter;

  public JsonAvroEncoder(Schema schema) {
    this(schema, UnknownFields.REJECT);
  }

  /** Throw IllegalArgumentException if a logical type is not valid for its Avro type. */
  public JsonAvroEncoder(Schema schema, UnknownFields unknownFields) {
    this.rootWriter = new WriterCompiler(unknownFields).compile(schema);
  }

  /**
   * Append the Avro encoding of one JSON value to {@code out}.
   *
   * @throws PayloadException if the text is not JSON or does not fit the schema; the content of
   *     {@code out} is then undefined
   */
  public void encode(String json, AvroOutput out) throws PayloadException {
    out.limitReplay(json.length());
    try (JsonParser parser = Json.FACTORY.createParser(json)) {
      if (parser.nextToken() == null) {
        throw rootWriter.mismatch(parser);
      }
      rootWriter.write(parser, out);
      if (parser.nextToken() != null) {
        throw new PayloadException("there is text after the end of the JSON value");
      }
    } catch (StreamConstraintsException e) {
      throw new PayloadException(
          "nested over " + Json.MAX_DEPTH + " levels deep, or a number, name or string too long");
    } catch (JsonProcessingException e) {
      // Jackson's message is omitted, because it quotes the text around the error.
      throw new PayloadException("not valid JSON" + describePosition(e.getLocation()));
    } catch (NumberFormatException e) {
      throw new PayloadException("not valid JSON: malformed number");
    } catch (ReplayParser.LimitExceededException e) {
      throw new PayloadException("too many combinations of union branches");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static String describePosition(JsonLocation location) {
    return location == null
        ? ""
        : " at line " + location.getLineNr() + ", column " + location.getColumnNr();
  }
}
