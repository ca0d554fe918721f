package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import io.outboxkit.smt.outbox.MessageColumns.Member;
import io.outboxkit.smt.outbox.RouterConfig.ConfigName;
import io.outboxkit.smt.util.Bytes;
import io.outboxkit.smt.util.Utf8;
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
  private final Placements placements;
  private final String schemaVersion;
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
    this.placements = config.placements();
    this.schemaVersion = config.getString(ConfigName.SCHEMA_VERSION_FIELD);
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
        new MessageColumns(parsed ? members : null, bytes, problem, placements),
        text(members, id),
        text(members, key),
        text(members, aggregateType),
        text(members, eventType),
        schemaVersion == null ? null : text(members, schemaVersion),
        parsed ? payload(members) : new String(bytes, StandardCharsets.UTF_8),
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
      InvalidRowException problem = notText(name, member);
      if (problem != null) {
        return problem;
      }
    }
    if (members.get(schemaVersion) != null) {
      InvalidRowException problem = notText(schemaVersion, members.get(schemaVersion));
      if (problem != null) {
        return problem;
      }
    }
    for (Placements.Entry entry : placements.entries()) {
      Member member = members.get(entry.column());
      if (member == null && !placements.lenient()) {
        return missing(entry.column());
      }
      if (member != null && Utf8.holdsHalfPair(member.text())) {
        return halfPair(entry.column());
      }
    }
    // A message that forgot its payload must not delete the aggregate.
    return members.containsKey(payload) ? null : missing(payload);
  }

  private static InvalidRowException notText(String name, Member member) {
    if (!member.isText()) {
      return invalid("\"" + name + "\" must be a string");
    }
    // As key it would become a question mark, and two aggregates one.
    return Utf8.holdsHalfPair(member.text()) ? halfPair(name) : null;
  }

  private static InvalidRowException halfPair(String name) {
    return invalid("\"" + name + "\" holds half a surrogate pair");
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

  /** Unlike a column of a row: there is no SQL NULL here, and JSON null takes its place. */
  private String payload(Map<String, Member> members) {
    Member member = members.get(payload);
    return member == null || member.token() == JsonToken.VALUE_NULL ? null : member.json();
  }

  private static byte[] bytesOf(Object content) {
    if (content == null) {
      return new byte[0];
    }
    if (content instanceof byte[] || content instanceof ByteBuffer) {
      return Bytes.of(content);
    }
    throw new DataException(
        "The content of a logical decoding message came as text; set binary.handling.mode=bytes on"
            + " the connector.");
  }
}
