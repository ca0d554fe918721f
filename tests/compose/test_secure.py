"""Profile `secure`: the path from row to table, and rejected connections without credentials."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.compose.composed import Composed, composed
from tests.conftest import make_project
from tests.integration.support import Finished
from tests.integration.transforms.test_records import book, send

from outbox_kit.waiting import Observation, wait_for

FILES = ("compose.yaml", "secure.yaml")
WRONG = "not-the-password"
ARRIVE_SECONDS = 60

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    project = make_project(tmp_path_factory.mktemp("secured"))
    with composed(project, FILES) as stack:
        authority = project / "build" / "compose" / "ca.pem"
        authority.parent.mkdir()
        copied = stack.command("cp", "connect-1:/run/secrets/ca.pem", str(authority))
        assert copied.code == 0, copied.words
        done = stack.outbox("apply", "--yes")
        assert done.code == 0, done.words
        yield stack


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that signed nothing here."""
    folder = tmp_path_factory.mktemp("stranger")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=stranger"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")]
    subprocess.run([*command, *files], check=True, capture_output=True, timeout=60)
    return folder / "ca.pem"


def refused(done: Finished, stack: Composed, *words: str) -> None:
    assert done.code == 1, done.words
    text = done.stdout + done.stderr
    for word in words:
        assert word in text, done.words
    assert "Traceback" not in text
    secrets = [value for name, value in stack.values.items() if name.endswith("_PASSWORD")]
    assert not [secret for secret in [*secrets, WRONG] if secret in text]


def test_delivers_rows_to_tables(stack: Composed) -> None:
    for command in ("verify", "plan"):
        done = stack.outbox(command)
        assert done.code == 0, done.words
    key = str(uuid4())
    send(f"{stack.source_dsn}?sslmode=require", "book", key, book(key))

    def poll() -> Observation[bool]:
        done = stack.materialize("--aggregate", "book")
        assert done.code == 0, done.words
        actual = [row[0] for row in stack.rows("select id::text from book")]
        return Observation(True if actual == [key] else None, f"rows {actual}")

    wait_for("the row", poll, seconds=ARRIVE_SECONDS, interval=1.0)
    inside = stack.command("run", "--rm", "spark")
    assert inside.code == 0, inside.words


def test_worker_config_contains_no_password(stack: Composed) -> None:
    attributes = str(stack.container("connect-1").attrs) + str(stack.container("kafka").attrs)
    with stack.deployment() as deployment:
        attributes += str(deployment.connect.config("library-outbox"))
    assert not [name for name, value in stack.values.items() if name.endswith("_PASSWORD") and value in attributes]


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("ADMIN_PASSWORD", ("PostgreSQL at 127.0.0.1", "password authentication failed")),
        ("KAFKA_PASSWORD", ("Kafka at 127.0.0.1", "Invalid username or password")),
        ("CONNECT_REST_PASSWORD", ("Kafka Connect at https://127.0.0.1", "HTTP 401")),
    ],
)
def test_rejects_a_wrong_password(stack: Composed, variable: str, words: tuple[str, ...]) -> None:
    refused(stack.outbox("plan", **{variable: WRONG}), stack, *words)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("MATERIALIZER_PASSWORD", ("PostgreSQL at 127.0.0.1", "password authentication failed")),
        ("KAFKA_PASSWORD", ("Kafka at 127.0.0.1", "Invalid username or password")),
    ],
)
def test_rejects_a_job_with_a_wrong_password(stack: Composed, variable: str, words: tuple[str, ...]) -> None:
    refused(stack.materialize("--aggregate", "book", **{variable: WRONG}), stack, *words)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("source.sslrootcert", ("PostgreSQL at 127.0.0.1", "certificate verify failed")),
        ("connect.ca_file", ("Kafka Connect at https://127.0.0.1", "certificate is not trusted")),
        ("kafka.client.ssl.ca.location", ("Kafka at 127.0.0.1", "certificate verify failed")),
    ],
)
def test_rejects_a_server_certificate_of_another_authority(
    stack: Composed, stranger: Path, setting: str, words: tuple[str, ...]
) -> None:
    if setting.startswith("kafka"):  # its keys have dots themselves
        file = stack.project / "connectors" / "environments" / "stranger.yaml"
        text = (file.parent / "compose-secure.yaml").read_text()
        file.write_text(text.replace("ssl.ca.location: build/compose/ca.pem", f"ssl.ca.location: {stranger}"))
        done = stack.outbox("-e", "stranger", "--set", "environment.name=stranger", "plan")
    else:
        done = stack.outbox("--set", f"environment.{setting}={stranger}", "plan")
    refused(done, stack, *words)


def test_rejects_connections_without_tls(stack: Composed) -> None:
    plain = ["--set", "environment.source.sslmode=disable", "--set", "environment.source.sslrootcert=null"]
    refused(stack.outbox(*plain, "plan"), stack, "no encryption")
    url = f"environment.connect.url=http://127.0.0.1:{stack.values['CONNECT_1_PORT']}"
    workers = "environment.connect.workers=[]"
    refused(stack.outbox("--set", url, "--set", workers, "plan"), stack, "Kafka Connect at http://127.0.0.1")


def test_rejects_topic_creation_by_a_read_only_user(stack: Composed) -> None:
    spark = {"KAFKA_USER": "spark", "KAFKA_PASSWORD": stack.values["KAFKA_SPARK_PASSWORD"]}
    file = stack.project / "connectors" / "reader.yaml"
    text = (stack.project / "connectors" / "library.yaml").read_text()
    file.write_text(text.replace("prefix: library  ", "prefix: other  "))
    done = stack.outbox("-p", str(file), "apply", "--yes", "--only", "kafka", **spark)
    refused(done, stack, "Kafka at 127.0.0.1", "uthorization")
