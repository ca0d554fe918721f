"""Send the rows of the outbox table by polling, without logical decoding (docs/relay.md)."""

from outbox_kit.relay.run import run_relay
from outbox_kit.relay.worker import RelayOptions

__all__ = ["RelayOptions", "run_relay"]
