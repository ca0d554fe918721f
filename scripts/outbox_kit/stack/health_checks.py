"""Check whether embedded services and containers are ready. The checks do not raise errors while a service starts."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import psycopg
import requests
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from outbox_events.waiting import Observation
from outbox_kit.stack.ports import is_free
from outbox_kit.stack.services.databases import Logins, create_databases

# Time limit for one request, because a service can accept a connection and never respond.
REQUEST_TIMEOUT_S = 2
# Without a logger, librdkafka prints every rejected connection to stderr.
KAFKA_LOGGER = logging.getLogger("outbox_kit.stack.services.kafka")
KAFKA_LOGGER.addHandler(logging.NullHandler())
KAFKA_LOGGER.propagate = False


def check_postgres(dsn: str, logins: Logins) -> Observation[bool]:
    """Connect as administrator (`dsn`), and create the missing roles and databases.

    Raises psycopg.Error if a role or database cannot be created.
    """
    try:
        with psycopg.connect(dsn, connect_timeout=REQUEST_TIMEOUT_S, autocommit=True) as connection:
            create_databases(connection, logins)
    except psycopg.OperationalError as error:
        return Observation(None, str(error).strip() or type(error).__name__)
    return Observation(True, "connected")


def check_kafka(port: int, bootstrap_servers: str) -> Observation[bool]:
    """Request a description of the cluster if a program listens on the local port."""
    if is_free(port):
        return Observation(None, f"port {port} is closed")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=KAFKA_LOGGER)
    try:
        cluster = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result(timeout=REQUEST_TIMEOUT_S + 1)
    except (KafkaException, TimeoutError) as error:
        return Observation(None, f"no response to describe_cluster ({error})")
    return Observation(True if cluster.nodes else None, f"{len(cluster.nodes)} brokers")


def check_registry(url: str) -> Observation[bool]:
    """Check that the registry lists its subjects. `url` is the URL of the registry's Confluent API."""
    try:
        response = send_get(f"{url}/subjects")
    except requests.RequestException as error:
        return Observation(None, f"no response to GET /subjects ({type(error).__name__})")
    return Observation(True if response.ok else None, f"GET /subjects returned HTTP {response.status_code}")


def check_connect(url: str, required_plugins: Iterable[str]) -> Observation[bool]:
    """Check that the worker is healthy and lists the required plugins."""
    try:
        health_response = send_get(f"{url}/health")
        if not health_response.ok:
            return Observation(None, f"GET /health returned HTTP {health_response.status_code}")
        plugin_response = send_get(f"{url}/connector-plugins?connectorsOnly=false")
        plugin_response.raise_for_status()
        classes = {plugin["class"] for plugin in plugin_response.json()}
    except requests.RequestException as error:
        return Observation(None, f"no response ({type(error).__name__})")
    missing_plugins = [name for name in required_plugins if name not in classes]
    return Observation(None if missing_plugins else True, f"missing plugins: {', '.join(missing_plugins) or 'none'}")


def send_get(url: str) -> requests.Response:
    """Send a GET request with a timeout. Proxy settings in environment variables are ignored."""
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, timeout=REQUEST_TIMEOUT_S)
