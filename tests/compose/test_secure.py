"""Profile `secure`: delivery from row to table, and rejection of connections without valid credentials."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.compose.compose_stack import ComposeStack, start_compose_stack
from tests.conftest import make_project
from tests.integration.support import CommandResult
from tests.integration.transforms.test_records import book, send

from outbox_events.waiting import Observation, wait_for

FILES = ("compose.yaml", "secure.yaml")
WRONG = "not-the-password"
ARRIVE_SECONDS = 60

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    project = make_project(tmp_path_factory.mktemp("secured"))
    with start_compose_stack(project, FILES) as stack:
        authority = project / "build" / "compose" / "ca.pem"
        authority.parent.mkdir()
        copied = stack.command("cp", "connect-1:/run/secrets/ca.pem", str(authority))
        assert copied.code == 0, copied.output
        done = stack.outbox("apply", "--yes")
        assert done.code == 0, done.output
        yield stack


@pytest.fixture(scope="module")
def foreign_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a certificate authority that did not sign the stack's certificates. Return its file."""
    folder = tmp_path_factory.mktemp("authority")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=stranger"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")]
    subprocess.run([*command, *files], check=True, capture_output=True, timeout=60)
    return folder / "ca.pem"


def assert_rejected(result: CommandResult, stack: ComposeStack, *fragments: str) -> None:
    assert result.code == 1, result.output
    text = result.stdout + result.stderr
    for fragment in fragments:
        assert fragment in text, result.output
    assert "Traceback" not in text
    secrets = [value for name, value in stack.values.items() if name.endswith("_PASSWORD")]
    assert not [secret for secret in [*secrets, WRONG] if secret in text]


def test_delivers_rows_to_tables(stack: ComposeStack) -> None:
    for command in ("verify", "plan"):
        done = stack.outbox(command)
        assert done.code == 0, done.output
    key = str(uuid4())
    send(f"{stack.source_dsn}?sslmode=require", "book", key, book(key))

    def poll() -> Observation[bool]:
        done = stack.materialize("--aggregate", "book")
        assert done.code == 0, done.output
        actual = [row[0] for row in stack.rows("select id::text from book")]
        return Observation(True if actual == [key] else None, f"rows {actual}")

    wait_for("the row", poll, seconds=ARRIVE_SECONDS, interval=1.0)
    in_container = stack.command("run", "--rm", "spark")
    assert in_container.code == 0, in_container.output


def test_worker_config_contains_no_password(stack: ComposeStack) -> None:
    attributes = str(stack.container("connect-1").attrs) + str(stack.container("kafka").attrs)
    with stack.deployment() as deployment:
        attributes += str(deployment.connect.config("library-outbox"))
    assert not [name for name, value in stack.values.items() if name.endswith("_PASSWORD") and value in attributes]


@pytest.mark.parametrize(
    ("variable", "fragments"),
    [
        ("ADMIN_PASSWORD", ("PostgreSQL at 127.0.0.1", "password authentication failed")),
        ("KAFKA_PASSWORD", ("Kafka at 127.0.0.1", "Invalid username or password")),
        ("CONNECT_REST_PASSWORD", ("Kafka Connect at https://127.0.0.1", "HTTP 401")),
    ],
)
def test_rejects_a_wrong_password(stack: ComposeStack, variable: str, fragments: tuple[str, ...]) -> None:
    assert_rejected(stack.outbox("plan", **{variable: WRONG}), stack, *fragments)


@pytest.mark.parametrize(
    ("variable", "fragments"),
    [
        ("MATERIALIZER_PASSWORD", ("PostgreSQL at 127.0.0.1", "password authentication failed")),
        ("KAFKA_PASSWORD", ("Kafka at 127.0.0.1", "Invalid username or password")),
    ],
)
def test_rejects_a_job_with_a_wrong_password(stack: ComposeStack, variable: str, fragments: tuple[str, ...]) -> None:
    assert_rejected(stack.materialize("--aggregate", "book", **{variable: WRONG}), stack, *fragments)


@pytest.mark.parametrize(
    ("setting", "fragments"),
    [
        ("source.sslrootcert", ("PostgreSQL at 127.0.0.1", "certificate verify failed")),
        ("connect.ca_file", ("Kafka Connect at https://127.0.0.1", "certificate is not trusted")),
        ("kafka.client.ssl.ca.location", ("Kafka at 127.0.0.1", "certificate verify failed")),
    ],
)
def test_rejects_a_server_certificate_of_another_authority(
    stack: ComposeStack, foreign_authority: Path, setting: str, fragments: tuple[str, ...]
) -> None:
    if setting.startswith("kafka"):  # client settings contain dots, so --set cannot address them
        file = stack.project / "connectors" / "environments" / "stranger.yaml"
        text = (file.parent / "compose-secure.yaml").read_text()
        file.write_text(text.replace("ssl.ca.location: build/compose/ca.pem", f"ssl.ca.location: {foreign_authority}"))
        done = stack.outbox("-e", "stranger", "--set", "environment.name=stranger", "plan")
    else:
        done = stack.outbox("--set", f"environment.{setting}={foreign_authority}", "plan")
    assert_rejected(done, stack, *fragments)


def test_rejects_connections_without_tls(stack: ComposeStack) -> None:
    without_tls = ["--set", "environment.source.sslmode=disable", "--set", "environment.source.sslrootcert=null"]
    assert_rejected(stack.outbox(*without_tls, "plan"), stack, "no encryption")
    url = f"environment.connect.url=http://127.0.0.1:{stack.values['CONNECT_1_PORT']}"
    workers = "environment.connect.workers=[]"
    assert_rejected(stack.outbox("--set", url, "--set", workers, "plan"), stack, "Kafka Connect at http://127.0.0.1")


def test_rejects_topic_creation_by_a_read_only_user(stack: ComposeStack) -> None:
    spark = {"KAFKA_USER": "spark", "KAFKA_PASSWORD": stack.values["KAFKA_SPARK_PASSWORD"]}
    file = stack.project / "connectors" / "reader.yaml"
    text = (stack.project / "connectors" / "library.yaml").read_text()
    magazine = "  magazine: {schema: schemas/book.avsc, partitions: 1}\n"
    file.write_text(re.sub(r"^aggregates:.*\n", rf"\g<0>{magazine}", text, flags=re.MULTILINE))
    done = stack.outbox("-p", str(file), "apply", "--yes", "--only", "kafka", **spark)
    assert_rejected(done, stack, "Kafka at 127.0.0.1", "uthorization")
