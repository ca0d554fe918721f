package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.outbox.MessageColumns.Member;
import io.outboxkit.smt.outbox.RouterConfig.ConfigName;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.errors.DataException;

/**
 * Messages that a service wrote with {@code pg_logical_emit_message(true, prefix, json)}: a JSON
 * object whose members are the columns of the outbox table. Not thread-safe.
 */
final class MessageReader {
  private static final JsonFactory JSON = new JsonFactory();

  private final String id;
  private final String key;
  private final String aggregateType;
  private final String eventType;
  private final String payload;
  private final String timestamp;
  private final String headers;
  private final List<String> texts;
  private final EventTime eventTime = new EventTime();

  MessageReader(RouterConfig config) {
    this.id = config.getString(ConfigName.ID_FIELD);
    this.key = config.getString(ConfigName.KEY_FIELD);
    this.aggregateType = config.getString(ConfigName.ROUTE_BY_FIELD);
    this.eventType = config.getString(ConfigName.TYPE_FIELD);
    this.payload = config.getString(ConfigName.PAYLOAD_FIELD);
    this.timestamp = config.getString(ConfigName.TIMESTAMP_FIELD);
    this.headers = config.getString(ConfigName.HEADERS_FIELD);
    this.texts = List.of(id, key, aggregateType, eventType, timestamp);
  }

  /**
   * The event of a message. What is wrong with the message is told by {@link
   * RowColumns#requireUsable}, so that it can become a dead letter like a row.
   *
   * @param content Debezium's {@code message.content}
   * @param transactional whether the message was part of a transaction
   * @throws DataException if the connector writes contents as text
   */
  OutboxRow read(
      Object content, boolean transactional, String sequence, Long lsn, Long commitMillis) {
    byte[] bytes = bytesOf(content);
    Map<String, Member> members = new LinkedHashMap<>();
    InvalidRowException problem = parse(bytes, members);
    boolean parsed = problem == null;
    if (parsed) {
      problem = transactional ? misfit(members) : notTransactional();
    }
    return new OutboxRow(
        new MessageColumns(parsed ? members : null, bytes, problem),
        text(members, id),
        text(members, key),
        text(members, aggregateType),
        text(members, eventType),
        parsed ? json(members, payload) : new String(bytes, StandardCharsets.UTF_8),
        json(members, headers),
        eventTime.format(text(members, timestamp), null),
        sequence,
        lsn,
        commitMillis);
  }

  /** Fills {@code members}, in order; returns why it could not, and leaves them empty then. */
  private static InvalidRowException parse(byte[] content, Map<String, Member> members) {
    InvalidRowException problem;
    try {
      String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(content)).toString();
      problem = parseObject(text, members);
    } catch (CharacterCodingException e) {
      problem = invalid("the content is not UTF-8 text");
    } catch (JsonProcessingException e) {
      // Jackson's message quotes the text around the error.
      problem = invalid("the content is not readable as JSON");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    if (problem != null) {
      members.clear();
    }
    return problem;
  }

  private static InvalidRowException parseObject(String text, Map<String, Member> members)
      throws IOException {
    try (JsonParser parser = JSON.createParser(text)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        return invalid("the content is not a JSON object");
      }
      for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
        if (members.put(name, member(parser, text)) != null) {
          return invalid("a member of the object is there twice");
        }
      }
      return parser.nextToken() == null ? null : invalid("there is text after the JSON object");
    }
  }

  private static Member member(JsonParser parser, String text) throws IOException {
    JsonToken token = parser.nextToken();
    String string = token == JsonToken.VALUE_STRING ? parser.getText() : null;
    int start = (int) parser.currentTokenLocation().getCharOffset();
    parser.skipChildren();
    // A parser ahead of the end of a number would otherwise count what follows it.
    parser.finishToken();
    int end = (int) parser.currentLocation().getCharOffset();
    String json = text.substring(start, end).strip();
    return new Member(token, json, string == null ? json : string);
  }

  private InvalidRowException misfit(Map<String, Member> members) {
    for (String name : texts) {
      Member member = members.get(name);
      if (member == null) {
        return missing(name);
      }
      if (!member.isText()) {
        return invalid("\"" + name + "\" must be a string");
      }
    }
    // A message that forgot its payload must not delete the aggregate.
    return members.containsKey(payload) ? null : missing(payload);
  }

  private static InvalidRowException missing(String name) {
    return invalid("the object has no \"" + name + "\"");
  }

  private static InvalidRowException notTransactional() {
    return new InvalidRowException(
        Reason.MESSAGE_NOT_TRANSACTIONAL,
        "the message is part of no transaction: it was sent whether the change that it tells of"
            + " was committed or not; call pg_logical_emit_message with true");
  }

  private static InvalidRowException invalid(String problem) {
    return new InvalidRowException(Reason.MESSAGE_INVALID, "message: " + problem);
  }

  private static String text(Map<String, Member> members, String name) {
    Member member = members.get(name);
    return member == null || !member.isText() ? null : MessageColumns.textOf(member);
  }

  /** JSON text; null for none. JSON null stays, as in a jsonb column. */
  private static String json(Map<String, Member> members, String name) {
    Member member = members.get(name);
    return member == null ? null : member.json();
  }

  private static byte[] bytesOf(Object content) {
    if (content instanceof byte[] bytes) {
      return bytes;
    }
    if (content instanceof ByteBuffer buffer) {
      byte[] bytes = new byte[buffer.remaining()];
      buffer.duplicate().get(bytes);
      return bytes;
    }
    if (content == null) {
      return new byte[0];
    }
    throw new DataException(
        "The content of a logical decoding message came as text; set binary.handling.mode=bytes on"
            + " the connector.");
  }
}
