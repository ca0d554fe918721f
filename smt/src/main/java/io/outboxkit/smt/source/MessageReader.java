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
 * Reads messages that {@code pg_logical_emit_message(true, prefix, json)} wrote. The members of the
 * JSON object are the columns of the outbox table. Not thread-safe.
 */
final class MessageReader {
  // Names of the message members. They are configured like the columns of the outbox table.
  private final String idName;
  private final String keyName;
  private final String aggregateTypeName;
  private final String eventTypeName;
  private final String payloadName;
  private final String timestampName;
  private final String headersName;
  private final String versionName;
  private final List<String> textMembers;
  private final HeaderPlacements placements;
  private final EventTime eventTime = new EventTime();

  MessageReader(RouterConfig config) {
    this.idName = config.getString(ConfigName.ID_FIELD);
    this.keyName = config.getString(ConfigName.KEY_FIELD);
    this.aggregateTypeName = config.getString(ConfigName.ROUTE_BY_FIELD);
    this.eventTypeName = config.getString(ConfigName.TYPE_FIELD);
    this.payloadName = config.getString(ConfigName.PAYLOAD_FIELD);
    this.timestampName = config.getString(ConfigName.TIMESTAMP_FIELD);
    this.headersName = config.getString(ConfigName.HEADERS_FIELD);
    this.versionName = config.getString(ConfigName.SCHEMA_VERSION_FIELD);
    this.textMembers =
        Stream.of(idName, keyName, aggregateTypeName, eventTypeName, timestampName, versionName)
            .filter(Objects::nonNull)
            .toList();
    this.placements = config.placements();
  }

  /**
   * Read a message. If the content is invalid, {@link OutboxRow.Columns#requireValid} throws the
   * exception later, so that the message can become a dead letter.
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
        textOf(members, idName),
        textOf(members, keyName),
        textOf(members, aggregateTypeName),
        textOf(members, eventTypeName),
        versionName == null ? null : textOf(members, versionName),
        parsedMembers != null ? payloadOf(members) : new String(bytes, StandardCharsets.UTF_8),
        members.containsKey(headersName) ? members.get(headersName).json() : null,
        eventTime.format(textOf(members, timestampName), null),
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
      throw invalidMessage("the content is not UTF-8");
    } catch (JsonProcessingException e) {
      // Jackson's message is omitted, because it quotes the text around the error.
      throw invalidMessage("the content is not valid JSON");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Map<String, Member> parseObject(String text)
      throws IOException, InvalidRowException {
    Map<String, Member> members = new LinkedHashMap<>();
    try (JsonParser parser = Json.MESSAGE_FACTORY.createParser(text)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        throw invalidMessage("the content is not a JSON object");
      }
      for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
        if (members.put(name, Member.read(parser, text)) != null) {
          throw invalidMessage("the object has a duplicate member");
        }
      }
      if (parser.nextToken() != null) {
        throw invalidMessage("there is text after the JSON object");
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
        throw invalidMessage("\"" + name + "\" must be a string, integer or boolean");
      }
      validateMember(name, member, name.equals(versionName));
    }
    for (HeaderPlacements.Entry entry : placements.entries()) {
      validateMember(entry.column(), members.get(entry.column()), placements.ignoresMissing());
    }
    // A payload that is missing by mistake must not become a tombstone.
    if (!members.containsKey(payloadName)) {
      validateMember(payloadName, null, false);
    }
  }

  private static void validateMember(String name, Member member, boolean optional)
      throws InvalidRowException {
    if (member == null && !optional) {
      throw invalidMessage("the object has no member \"" + name + "\"");
    }
    // UTF-8 encoding would replace the surrogate with '?', so different keys would become equal.
    if (member != null && Utf8.hasUnpairedSurrogate(member.text())) {
      throw invalidMessage("\"" + name + "\" has an unpaired surrogate");
    }
  }

  private static InvalidRowException invalidMessage(String problem) {
    return new InvalidRowException(Reason.MESSAGE_INVALID, "message: " + problem);
  }

  private static String textOf(Map<String, Member> members, String name) {
    Member member = members.get(name);
    return member == null || !member.isText() ? null : member.textOrNull();
  }

  /** Return the JSON text of the payload, or null for JSON null, which corresponds to SQL NULL. */
  private String payloadOf(Map<String, Member> members) {
    Member member = members.get(payloadName);
    return member == null || member.token() == JsonToken.VALUE_NULL ? null : member.json();
  }

  /**
   * A member of a message's JSON object.
   *
   * @param token first token of the value
   * @param json the unchanged JSON text of the value
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

    /** Return whether the value is null, a string, an integer or a boolean. */
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
   * @param members members by name, or null if the content is not a JSON object
   * @param error why the message is not valid, or null if it is valid
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
      // Null invalidates a message that lacks the member. A missing table column stops the task.
      return MessageReader.textOf(members, column);
    }

    @Override
    public void addColumnHeaders(ConnectHeaders headers) {
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
