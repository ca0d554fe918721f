"""Tables of the service. `outbox apply` creates the outbox table."""

TABLES = """
create table if not exists orders (id uuid primary key, address text not null, items text[] not null);
create table if not exists shipments (id uuid primary key, order_id uuid not null, parcels integer not null);
-- One row per processed event; its primary key makes the consumer idempotent. Delete a row only when its event can no
-- longer be delivered again (after a restart, or a reset of the consumer group's offsets).
create table if not exists processed_events (
  event_id uuid primary key, processed_at timestamptz not null default now()
);
"""
