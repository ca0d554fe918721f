"""The relay encodes each payload as OutboxRouter does, or both refuse it. Schemas and payloads are random."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from tests.unit.encoding.avro_cases import header_texts, schemas_and_payloads

from outbox_kit.encoding.avro.body import AvroBodyChecker
from outbox_kit.encoding.avro.encoder import AvroEncoder
from outbox_kit.encoding.headers import row_headers
from outbox_kit.encoding.row import InvalidRowError, PayloadError
from outbox_kit.pipeline.avro import SCHEMA_ERRORS
from outbox_kit.stack.services.java import FAST_START_OPTIONS, find_java

ROOT = Path(__file__).resolve().parents[3]
CLASSES = (ROOT / "smt/target/plugin/outbox-smt", ROOT / "build/runtime/kafka/libs")
ENCODE_LINES = ROOT / "smt/src/test/java/io/outboxkit/smt/parity/EncodeLines.java"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 1000, "scale": 998}
MAX_EXAMPLES, MAX_EXAMPLES_LONG = 250, 30_000


class InvalidSchemaError(Exception):
    """The registry or `outbox lint` refuses the schema."""


class JavaEncoder:
    """Encodes with the classes of the connector in a JVM."""

    def __init__(self) -> None:
        classpath = ":".join(f"{folder}/*" for folder in CLASSES)
        command = [str(find_java()), *FAST_START_OPTIONS.split(), "-cp", classpath, str(ENCODE_LINES)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def results(self, kind: str, schema: str, texts: list[str]) -> list[Any]:
        """Return the result of each text, or None if the text is refused."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps([kind, schema, *texts]) + "\n")
        self.process.stdin.flush()
        results: list[Any] = json.loads(self.process.stdout.readline())
        if results and str(results[0]).startswith("invalid schema"):
            raise InvalidSchemaError
        return results


@pytest.fixture(scope="module")
def java() -> Iterator[JavaEncoder]:
    encoder = JavaEncoder()
    with encoder.process:  # closes its input, which ends it
        yield encoder
    assert encoder.process.returncode == 0


def refused(encode: Callable[[], Any]) -> Any:  # noqa: ANN401 - any result
    """Return the result of `encode`, or None for an error of the row. Other errors would end the relay."""
    try:
        return encode()
    except (PayloadError, InvalidRowError):
        return None


def encoded(schema: str, text: str, *, ignore_unknown: bool = False) -> Any:  # noqa: ANN401 - JSON
    def encode() -> list[object]:
        body, skipped = AvroEncoder(schema, ignore_unknown=ignore_unknown).encode(text)
        return [body.hex(), skipped]

    return refused(encode)


def checked(schema: str, body: str) -> str | None:
    def check() -> str:
        AvroBodyChecker(schema).check(bytes.fromhex(body))
        return body

    return refused(check)


def header_pairs(text: str) -> list[list[str]] | None:
    found: list[list[str]] | None = refused(
        lambda: [list(pair) for pair in row_headers(text, {"event_id": "reserved"})]
    )
    return found


def is_linted(schema: str) -> bool:
    """Return whether `outbox lint` can accept the schema. It refuses what fastavro refuses."""
    try:
        parse_schema(json.loads(schema))
    except SCHEMA_ERRORS:
        return False
    return True


def same_payloads(java: JavaEncoder, case: tuple[str, list[str]]) -> None:
    schema, texts = case
    if not is_linted(schema):
        raise InvalidSchemaError
    for kind in ("REJECT", "IGNORE"):
        expected = java.results(kind, schema, texts)
        assert [encoded(schema, text, ignore_unknown=kind == "IGNORE") for text in texts] == expected


@st.composite
def schemas_and_bodies(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Generate a schema and Avro bodies, most of which are changed bodies of valid payloads."""
    schema, texts = draw(schemas_and_payloads())
    assume(is_linted(schema))
    valid = [bytes.fromhex(result[0]) for text in texts if (result := encoded(schema, text))]
    bodies = [*valid, draw(st.binary(max_size=30))]
    for body in valid:
        place = draw(st.integers(0, len(body)))
        changed = draw(st.binary(max_size=2))
        bodies += [body[:place], body[:place] + changed + body[place:], body[:place] + changed + body[place + 1 :]]
    return schema, [body.hex() for body in bodies]


def same_bodies(java: JavaEncoder, case: tuple[str, list[str]]) -> None:
    schema, bodies = case
    assert [checked(schema, body) for body in bodies] == java.results("body", schema, bodies)


def same_headers(java: JavaEncoder, texts: list[str]) -> None:
    assert [header_pairs(text) for text in texts] == java.results("headers", "", texts)


COMPARISONS = pytest.mark.parametrize(
    ("compare", "cases"),
    [
        (same_payloads, schemas_and_payloads()),
        (same_bodies, schemas_and_bodies()),
        (same_headers, header_texts()),
    ],
    ids=["payloads", "bodies", "headers"],
)
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def run(compare: Callable[..., None], cases: st.SearchStrategy[Any], java: JavaEncoder, **options: Any) -> None:  # noqa: ANN401
    @settings(suppress_health_check=CHECKS, database=None, **options)
    @given(cases)
    def same(case: Any) -> None:  # noqa: ANN401 - the arguments of `compare`
        try:
            compare(java, case)
        except InvalidSchemaError:
            reject()

    same()


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        (["null", "string"], '""', "{}"),  # a default of a later branch
        (["null", "long", {"type": "map", "values": "int"}], '{"a": 1}', "{}"),
        ({"type": "fixed", "name": "F", "size": 3}, '"a"', "{}"),
        ("double", "0", f'{{"x": -0.{"1" * 999}}}'),  # 1000 digits
        ("double", "0", f'{{"x": -0.{"1" * 1001}}}'),
        (DECIMAL, '""', f'{{"x": 1.{"1" * 998}E0}}'),
        ("float", "0", '{"x": -3.4028235677973366e38}'),  # as a double, it is halfway to the lowest invalid number
        ("float", "0", '{"x": 340282356779733661637539395458142568448}'),
    ],
    ids=["union", "any-branch", "fixed", "digits", "too-many-digits", "decimal", "largest-float", "infinity"],
)
def test_differences_of_earlier_versions(java: JavaEncoder, kind: object, default: str, text: str) -> None:
    fields = [{"name": "x", "type": kind, "default": json.loads(default)}]
    same_payloads(java, (json.dumps({"type": "record", "name": "R", "fields": fields}), [text]))


@COMPARISONS
def test_relay_and_connector_agree(
    java: JavaEncoder, compare: Callable[..., None], cases: st.SearchStrategy[Any]
) -> None:
    run(compare, cases, java, max_examples=MAX_EXAMPLES, derandomize=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
@COMPARISONS
def test_relay_and_connector_agree_in_many_cases(
    java: JavaEncoder, compare: Callable[..., None], cases: st.SearchStrategy[Any]
) -> None:
    run(compare, cases, java, max_examples=MAX_EXAMPLES_LONG)
