package io.outboxkit.smt;

import io.outboxkit.smt.avro.AvroOutput;
import io.outboxkit.smt.avro.JsonAvroEncoder;
import io.outboxkit.smt.avro.PayloadException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;

/** Configured routers, and access to their records. */
public final class Routers {
  public static final String NOTE_V1 =
      "{\"type\":\"record\",\"name\":\"Note\",\"fields\":["
          + "{\"name\":\"text\",\"type\":\"string\"}]}";
  public static final String NOTE_V2 =
      "{\"type\":\"record\",\"name\":\"Note\",\"fields\":["
          + "{\"name\":\"text\",\"type\":\"string\"},"
          + "{\"name\":\"stars\",\"type\":\"int\"}]}";
  public static final int NOTE_V1_ID = 0x01020304;
  public static final int NOTE_V2_ID = 12;

  private Routers() {}

  /** Return options for one aggregate type, {@code note}, with one schema version. */
  public static Map<String, String> props() {
    Map<String, String> props = new HashMap<>();
    props.put("table", "public.outbox_event");
    props.put("aggregates", "note");
    props.put("aggregate.note.topic", "library.note");
    props.put("aggregate.note.partitions", "12");
    props.put("aggregate.note.schema.versions", "1");
    props.put("aggregate.note.schema.1", NOTE_V1);
    props.put("aggregate.note.schema.1.id", Integer.toString(NOTE_V1_ID));
    props.put("dead.letter.topic", "library.dead-letter");
    return props;
  }

  /** Return {@link #props()} with further options: name, value, ...; null removes an option. */
  public static Map<String, String> props(String... more) {
    return with(props(), more);
  }

  /** Set options, given as name, value, ..., and remove those whose value is null. */
  public static Map<String, String> with(Map<String, String> props, String... more) {
    for (int i = 0; i < more.length; i += 2) {
      props.put(more[i], more[i + 1]);
    }
    props.values().removeIf(value -> value == null);
    return props;
  }

  static String[] concat(String[] first, String... second) {
    return Stream.of(first, second).flatMap(Stream::of).toArray(String[]::new);
  }

  static String text(SourceRecord record) {
    return new String((byte[]) record.value(), StandardCharsets.UTF_8);
  }

  /** Return options for a second, later schema version of {@code note}, and further options. */
  public static String[] twoVersions(String... more) {
    String[] versions = {
      "aggregate.note.schema.versions",
      "2,1",
      "aggregate.note.schema.2",
      NOTE_V2,
      "aggregate.note.schema.2.id",
      Integer.toString(NOTE_V2_ID)
    };
    return concat(versions, more);
  }

  /** Return the Avro body of JSON text. */
  public static byte[] body(String schema, String json) throws PayloadException {
    AvroOutput out = new AvroOutput();
    new JsonAvroEncoder(new Schema.Parser().parse(schema)).encode(json, out);
    return out.toByteArray();
  }

  public static OutboxRouter<SourceRecord> router(String... more) {
    return configured(props(more));
  }

  public static OutboxRouter<SourceRecord> configured(Map<String, String> props) {
    OutboxRouter<SourceRecord> router = new OutboxRouter<>();
    router.configure(props);
    return router;
  }

  /** Return the header values by name, in order; fail for a duplicate header. */
  public static Map<String, String> headers(SourceRecord record) {
    Map<String, String> headers = new LinkedHashMap<>();
    for (Header header : record.headers()) {
      if (header.schema() != org.apache.kafka.connect.data.Schema.STRING_SCHEMA
          || headers.put(header.key(), (String) header.value()) != null) {
        throw new AssertionError("header " + header.key() + " is not a string, or is a duplicate");
      }
    }
    return headers;
  }

  /** Decode a value in Confluent wire format with Avro's reader. */
  public static Object decode(SourceRecord record, String schema, int schemaId) throws Exception {
    ByteBuffer value = ByteBuffer.wrap((byte[]) record.value());
    if (value.get() != 0 || value.getInt() != schemaId) {
      throw new AssertionError("not framed with schema id " + schemaId);
    }
    Schema parsed = new Schema.Parser().parse(schema);
    var decoder =
        DecoderFactory.get()
            .binaryDecoder(value.array(), value.position(), value.remaining(), null);
    Object decoded = new GenericDatumReader<>(parsed).read(null, decoder);
    if (!decoder.isEnd()) {
      throw new AssertionError("bytes after the value");
    }
    return decoded;
  }
}
