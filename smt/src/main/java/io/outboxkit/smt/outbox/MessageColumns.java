package io.outboxkit.smt.outbox;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.Map;
import org.apache.kafka.connect.header.ConnectHeaders;

/**
 * The content of an outbox message.
 *
 * @param members the members of its JSON object; null if it is none
 * @param content its bytes
 * @param problem why it cannot be an event; null if it can
 */
record MessageColumns(
    Map<String, Member> members, byte[] content, InvalidRowException problem, Placements placements)
    implements RowColumns {

  /**
   * One member of the object.
   *
   * @param token what the value is, or starts with
   * @param json the value as it was written, to the character: numbers keep all their digits
   * @param text the text of a string; as {@code json} for anything else
   */
  record Member(JsonToken token, String json, String text) {
    /** Whether it can be an id, a type or a partition field: null, text, whole number, boolean. */
    boolean isText() {
      return token.isScalarValue() && token != JsonToken.VALUE_NUMBER_FLOAT;
    }
  }

  @Override
  public void requireUsable() throws InvalidRowException {
    if (problem != null) {
      throw problem;
    }
  }

  @Override
  public String partitionText(String column, String aggregateType) {
    // Unlike a table, every message can have other members: a missing one is this message's fault.
    Member member = members.get(column);
    return member == null || !member.isText() ? null : textOf(member);
  }

  @Override
  public void addPlacedTo(ConnectHeaders headers) {
    for (Placements.Entry entry : placements.entries()) {
      Member member = members == null ? null : members.get(entry.column());
      RecordHeaders.add(headers, entry.header(), textOf(member));
    }
  }

  @Override
  public boolean payloadIsJson() {
    return true;
  }

  /** The member as text; null for JSON null and for none of that name. */
  static String textOf(Member member) {
    return member == null || member.token() == JsonToken.VALUE_NULL ? null : member.text();
  }

  @Override
  public void writeFields(JsonGenerator json, JsonFactory factory) throws IOException {
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
