"""One look at each part of a stack, embedded or in containers: does it answer?"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import psycopg
import requests
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from outbox_kit.stack.ports import is_free
from outbox_kit.stack.services.databases import Logins, create_databases
from outbox_kit.waiting import Seen

# One check may take this long: a service that accepts connections and then hangs must not hang the stack.
LOOK_SECONDS = 2
# librdkafka would print every refused connection on stderr.
QUIET = logging.getLogger("outbox_kit.stack.services.kafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def postgres(dsn: str, logins: Logins) -> Seen[bool]:
    """Run a query; the first that answers also makes the roles and databases that are missing.

    `dsn` is the administrator's, with any database. Raises psycopg.Error for roles that cannot be made.
    """
    try:
        with psycopg.connect(dsn, connect_timeout=LOOK_SECONDS, autocommit=True) as connection:
            create_databases(connection, logins)
    except psycopg.OperationalError as error:
        return Seen(None, str(error).strip() or type(error).__name__)
    return Seen(True, "a query was answered")


def kafka(port: int, bootstrap_servers: str) -> Seen[bool]:
    """Ask for the cluster's description, once something listens on the port of this machine."""
    if is_free(port):  # spares a client that only fails to connect
        return Seen(None, "nothing listens")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=QUIET)
    try:
        cluster = admin.describe_cluster(request_timeout=LOOK_SECONDS).result(timeout=LOOK_SECONDS + 1)
    except (KafkaException, TimeoutError) as error:
        return Seen(None, f"no answer to describe_cluster ({error})")
    return Seen(True if cluster.nodes else None, f"{len(cluster.nodes)} brokers")


def registry(url: str) -> Seen[bool]:
    """Ask for the list of subjects; `url` is that of the Confluent API."""
    try:
        answer = get(f"{url}/subjects")
    except requests.RequestException as error:
        return Seen(None, f"no answer to GET /subjects ({type(error).__name__})")
    return Seen(True if answer.ok else None, f"GET /subjects answered {answer.status_code}")


def connect(url: str, required_plugins: Iterable[str]) -> Seen[bool]:
    """Ask whether the worker is healthy, then whether it knows the plugins that are needed."""
    try:
        health = get(f"{url}/health")
        if not health.ok:
            return Seen(None, f"GET /health answered {health.status_code}")
        listing = get(f"{url}/connector-plugins?connectorsOnly=false")
        listing.raise_for_status()
        classes = {plugin["class"] for plugin in listing.json()}
    except requests.RequestException as error:
        return Seen(None, f"no answer ({type(error).__name__})")
    missing = [name for name in required_plugins if name not in classes]
    return Seen(None if missing else True, f"plugins not found: {', '.join(missing) or 'none'}")


def get(url: str) -> requests.Response:
    """Send one bounded GET to 127.0.0.1, past any proxy that the environment names."""
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, timeout=LOOK_SECONDS)
