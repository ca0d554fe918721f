"""Admin client with the connection settings of a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

# Only a client that is polled serves callbacks. Statistics without a callback would pile up.
CONSUMER_ONLY = ("on_commit", "error_cb", "stats_cb", "throttle_cb", "logger", "statistics.interval.ms")


def admin_client(settings: Mapping[str, Any]) -> AdminClient:
    """Return an admin client for the cluster of a consumer with these settings."""
    own = {name: value for name, value in settings.items() if name not in CONSUMER_ONLY}
    return AdminClient({**own, "log_level": 0})  # no warnings about the properties of a consumer
