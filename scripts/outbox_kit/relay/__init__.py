"""Polling relay: sends the rows of the outbox table without logical decoding (docs/relay.md)."""

from outbox_kit.relay.run import RelayOptions, run_relay

__all__ = ["RelayOptions", "run_relay"]
