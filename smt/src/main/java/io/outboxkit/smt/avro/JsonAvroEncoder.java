package io.outboxkit.smt.avro;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonLocation;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.exc.StreamConstraintsException;
import com.fasterxml.jackson.core.util.JsonRecyclerPools;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.avro.Schema;

/**
 * Encodes JSON text as Avro binary by one schema. docs/smt.md lists which JSON fits which type.
 *
 * <p>Strict, so that nothing changes on the way in silence: unknown fields, repeated fields,
 * missing fields without a default, numbers out of range, digits that would be cut off are all
 * refused. Only {@link UnknownFields#IGNORE} makes an exception.
 *
 * <p>Not thread-safe: writers keep scratch space.
 */
public final class JsonAvroEncoder {
  /**
   * Levels of JSON. Jackson's own 1000 came close to the end of a thread's usual stack of 1 MiB.
   */
  private static final int MAX_DEPTH = 200;

  // Field names are matched by hash, and map keys are data: interning them would only cost.
  private static final JsonFactory JSON =
      JsonFactory.builder()
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          .streamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(MAX_DEPTH).build())
          .recyclerPool(JsonRecyclerPools.threadLocalPool())
          .build();

  private final ValueWriter root;

  /**
   * @throws IllegalArgumentException if the schema has a logical type that is not valid where it
   *     stands
   */
  public JsonAvroEncoder(Schema schema) {
    this(schema, UnknownFields.REFUSE);
  }

  /**
   * As {@link #JsonAvroEncoder(Schema)}, with another word on fields that the schema does not have.
   */
  public JsonAvroEncoder(Schema schema, UnknownFields unknownFields) {
    this.root = new WriterCompiler(unknownFields).compile(schema);
  }

  /**
   * Appends the value to {@code out}.
   *
   * @param json one JSON value
   * @throws PayloadException if the text is not JSON or does not fit the schema; {@code out} then
   *     holds rubbish
   */
  public void encode(String json, AvroOutput out) throws PayloadException {
    try (JsonParser parser = JSON.createParser(json)) {
      if (parser.nextToken() == null) {
        throw root.mismatch(parser);
      }
      root.write(parser, out);
      if (parser.nextToken() != null) {
        throw new PayloadException("text after the end of the JSON value");
      }
    } catch (StreamConstraintsException e) {
      throw new PayloadException(
          "nested over " + MAX_DEPTH + " levels deep, or a number, name or string is too long");
    } catch (JsonProcessingException e) {
      // Jackson's message quotes the text around the error.
      throw new PayloadException("not readable as JSON" + position(e.getLocation()));
    } catch (NumberFormatException e) {
      throw new PayloadException("not readable as JSON: a number is malformed");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static String position(JsonLocation location) {
    return location == null
        ? ""
        : " at line " + location.getLineNr() + ", column " + location.getColumnNr();
  }
}
