package io.outboxkit.smt.outbox;

import java.util.Set;

/** Tombstones for some event types, whatever their payload is; it is not looked at. */
final class TombstoneTypes implements PayloadEncoder {
  private final Set<String> eventTypes;
  private final PayloadEncoder others;

  TombstoneTypes(Set<String> eventTypes, PayloadEncoder others) {
    this.eventTypes = Set.copyOf(eventTypes);
    this.others = others;
  }

  @Override
  public byte[] encode(OutboxRow row) throws InvalidRowException {
    return eventTypes.contains(row.eventType()) ? null : others.encode(row);
  }

  @Override
  public String contentType(OutboxRow row) {
    return others.contentType(row);
  }
}
