package io.outboxkit.smt.source;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.config.RouterConfig;
import io.outboxkit.smt.config.RouterConfig.ConfigName;
import io.outboxkit.smt.outbox.HeaderPlacements;
import io.outboxkit.smt.outbox.InvalidRowException;
import io.outboxkit.smt.outbox.InvalidRowException.Reason;
import io.outboxkit.smt.outbox.OutboxRow;
import io.outboxkit.smt.outbox.RecordHeaders;
import io.outboxkit.smt.util.Bytes;
import io.outboxkit.smt.util.Json;
import io.outboxkit.smt.util.Utf8;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * Reads messages of {@code pg_logical_emit_message(true, prefix, json)}, where json is an object
 * whose members are the columns of the outbox table. Not thread-safe.
 */
final class MessageReader {
  // Names of the message members, as configured for the columns of the outbox table.
  private final String id;
  private final String key;
  private final String aggregateType;
  private final String eventType;
  private final String payload;
  private final String timestamp;
  private final String headers;
  private final String schemaVersion;
  private final List<String> textMembers;
  private final HeaderPlacements placements;
  private final EventTime eventTime = new EventTime();

  MessageReader(RouterConfig config) {
    this.id = config.getString(ConfigName.ID_FIELD);
    this.key = config.getString(ConfigName.KEY_FIELD);
    this.aggregateType = config.getString(ConfigName.ROUTE_BY_FIELD);
    this.eventType = config.getString(ConfigName.TYPE_FIELD);
    this.payload = config.getString(ConfigName.PAYLOAD_FIELD);
    this.timestamp = config.getString(ConfigName.TIMESTAMP_FIELD);
    this.headers = config.getString(ConfigName.HEADERS_FIELD);
    this.schemaVersion = config.getString(ConfigName.SCHEMA_VERSION_FIELD);
    this.textMembers =
        Stream.of(id, key, aggregateType, eventType, timestamp, schemaVersion)
            .filter(Objects::nonNull)
            .toList();
    this.placements = config.placements();
  }

  /**
   * Read a message. If the content is not valid, the exception is not thrown here, but by {@link
   * OutboxRow.Columns#requireValid}, so that the message can become a dead letter.
   *
   * @param content Debezium's {@code message.content}
   * @throws DataException if the content is text instead of bytes
   */
  OutboxRow read(
      Object content, boolean transactional, String sequence, Long lsn, Long commitMillis) {
    if (content instanceof String) {
      throw new DataException(
          "The content of a logical decoding message is text; set binary.handling.mode=bytes on the"
              + " connector");
    }
    byte[] bytes = content == null ? new byte[0] : Bytes.of(content);
    Map<String, Member> parsedMembers = null;
    InvalidRowException error = null;
    try {
      parsedMembers = parse(bytes);
      validate(parsedMembers, transactional);
    } catch (InvalidRowException e) {
      error = e;
    }
    Map<String, Member> members = parsedMembers == null ? Map.of() : parsedMembers;
    return new OutboxRow(
        new MessageColumns(parsedMembers, bytes, error, placements),
        text(members, id),
        text(members, key),
        text(members, aggregateType),
        text(members, eventType),
        schemaVersion == null ? null : text(members, schemaVersion),
        parsedMembers != null ? payload(members) : new String(bytes, StandardCharsets.UTF_8),
        members.containsKey(headers) ? members.get(headers).json() : null,
        eventTime.format(text(members, timestamp), null),
        sequence,
        lsn,
        commitMillis);
  }

  /** Return the members by name, in the order of the JSON text. */
  private static Map<String, Member> parse(byte[] content) throws InvalidRowException {
    try {
      String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(content)).toString();
      return parseObject(text);
    } catch (CharacterCodingException e) {
      throw invalid("the content is not UTF-8");
    } catch (JsonProcessingException e) {
      // Omits Jackson's message, which quotes the text around the error.
      throw invalid("the content is not valid JSON");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Map<String, Member> parseObject(String text)
      throws IOException, InvalidRowException {
    Map<String, Member> members = new LinkedHashMap<>();
    try (JsonParser parser = Json.MESSAGE_FACTORY.createParser(text)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        throw invalid("the content is not a JSON object");
      }
      for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
        if (members.put(name, Member.read(parser, text)) != null) {
          throw invalid("the object has a duplicate member");
        }
      }
      if (parser.nextToken() != null) {
        throw invalid("there is text after the JSON object");
      }
      return members;
    }
  }

  private void validate(Map<String, Member> members, boolean transactional)
      throws InvalidRowException {
    if (!transactional) {
      throw new InvalidRowException(
          Reason.MESSAGE_NOT_TRANSACTIONAL,
          "the message is not transactional, so it is sent even if the transaction is rolled back;"
              + " call pg_logical_emit_message(true, ...)");
    }
    for (String name : textMembers) {
      Member member = members.get(name);
      if (member != null && !member.isText()) {
        throw invalid("\"" + name + "\" must be a string");
      }
      validate(name, member, name.equals(schemaVersion));
    }
    for (HeaderPlacements.Entry entry : placements.entries()) {
      validate(entry.column(), members.get(entry.column()), placements.lenient());
    }
    // A payload that is missing by mistake must not become a tombstone.
    if (!members.containsKey(payload)) {
      validate(payload, null, false);
    }
  }

  private static void validate(String name, Member member, boolean optional)
      throws InvalidRowException {
    if (member == null && !optional) {
      throw invalid("the object has no member \"" + name + "\"");
    }
    // UTF-8 encoding would replace the surrogate by '?', and different keys would become equal.
    if (member != null && Utf8.hasUnpairedSurrogate(member.text())) {
      throw invalid("\"" + name + "\" has an unpaired surrogate");
    }
  }

  private static InvalidRowException invalid(String problem) {
    return new InvalidRowException(Reason.MESSAGE_INVALID, "message: " + problem);
  }

  private static String text(Map<String, Member> members, String name) {
    Member member = members.get(name);
    return member == null || !member.isText() ? null : member.textOrNull();
  }

  /** Return the JSON text of the payload; null for JSON null, which corresponds to SQL NULL. */
  private String payload(Map<String, Member> members) {
    Member member = members.get(payload);
    return member == null || member.token() == JsonToken.VALUE_NULL ? null : member.json();
  }

  /**
   * A member of a message's JSON object.
   *
   * @param token first token of the value
   * @param json the value's JSON text, unchanged
   * @param text the content of a string, or the JSON text of any other value
   */
  private record Member(JsonToken token, String json, String text) {
    static Member read(JsonParser parser, String message) throws IOException {
      JsonToken token = parser.nextToken();
      String string = token == JsonToken.VALUE_STRING ? parser.getText() : null;
      int start = (int) parser.currentTokenLocation().getCharOffset();
      parser.skipChildren();
      // Without finishToken(), the location after a number would include the next character.
      parser.finishToken();
      int end = (int) parser.currentLocation().getCharOffset();
      String json = message.substring(start, end).strip();
      return new Member(token, json, string == null ? json : string);
    }

    /** Return whether the value can be an id, a type or a partition field. */
    boolean isText() {
      return token.isScalarValue() && token != JsonToken.VALUE_NUMBER_FLOAT;
    }

    String textOrNull() {
      return token == JsonToken.VALUE_NULL ? null : text;
    }
  }

  /**
   * The members of a message.
   *
   * @param members null if the content is not a JSON object
   * @param error null if the message is valid
   */
  private record MessageColumns(
      Map<String, Member> members,
      byte[] content,
      InvalidRowException error,
      HeaderPlacements placements)
      implements OutboxRow.Columns {

    @Override
    public void requireValid() throws InvalidRowException {
      if (error != null) {
        throw error;
      }
    }

    @Override
    public String partitionText(String column, String aggregateType) {
      // Null only makes the message invalid, whereas a table without the column stops the task.
      return MessageReader.text(members, column);
    }

    @Override
    public void addPlacedTo(ConnectHeaders headers) {
      for (HeaderPlacements.Entry entry : placements.entries()) {
        Member member = members == null ? null : members.get(entry.column());
        RecordHeaders.add(headers, entry.header(), member == null ? null : member.textOrNull());
      }
    }

    @Override
    public boolean payloadIsJson() {
      return true;
    }

    @Override
    public void writeFields(JsonGenerator json) throws IOException {
      if (members == null) {
        json.writeBinaryField("content", content);
        return;
      }
      for (Map.Entry<String, Member> member : members.entrySet()) {
        json.writeFieldName(member.getKey());
        json.writeRawValue(member.getValue().json());
      }
    }
  }
}
