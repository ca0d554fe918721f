"""Tables of the service. `outbox apply` creates the outbox table."""

TABLES = """
create table if not exists orders (id uuid primary key, address text not null, items text[] not null);
create table if not exists shipments (id uuid primary key, order_id uuid not null, parcels integer not null);
-- One row for each event that was processed: the primary key is what makes the consumer idempotent. Delete rows that
-- are older than the longest time after which an event can come again (retention, and a reset of the group).
create table if not exists processed_events (
  event_id uuid primary key, processed_at timestamptz not null default now()
);
"""
