"""Each wait has a time limit. The test finds calls that wait forever without an argument, and endless loops.

A limit that a caller sets, such as a session's statement_timeout or a deadline in a loop, is not visible in the call.
ALLOWED lists such places with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted([*(ROOT / "scripts").rglob("*.py"), *(ROOT / "spark_jobs").rglob("*.py")])
# Methods that wait indefinitely if they have no argument.
WAITING_METHODS = {"wait", "join", "result", "exception", "get", "acquire", "communicate", "commit_transaction"}
# Calls that wait indefinitely unless they have this keyword.
LIMITED_CALLS = {
    **{f"subprocess.{name}": "timeout" for name in ("run", "call", "check_call", "check_output")},
    **{f"requests.{name}": "timeout" for name in ("get", "post", "put", "delete", "request")},
    "psycopg.connect": "connect_timeout",
    "psycopg.AsyncConnection.connect": "connect_timeout",
    "urllib.request.urlopen": "timeout",
}
BOUNDED = "the called method has a limit"
ENDED = "the thread or the future has ended"
DEADLINE = "the loop checks a deadline"
SERVICE = "runs until a signal; each wait in the loop has a limit"
STATEMENTS = "each statement has a limit"
CALCULATION = "no wait: the loop calculates"
ALLOWED = {
    ("scripts/outbox_kit/cli/commands/verify.py", "while True"): SERVICE,
    ("scripts/outbox_kit/cli/console.py", "_options.get()"): "a context variable",
    ("scripts/outbox_kit/connect/rest.py", "while True"): DEADLINE,
    ("scripts/outbox_kit/demo/workload.py", "future.result()"): ENDED,
    ("scripts/outbox_kit/demo/workload.py", "future.exception()"): ENDED,
    ("scripts/outbox_kit/demo/writer.py", "while True"): CALCULATION,
    ("scripts/outbox_lab/drill/faults/disk.py", "while True"): CALCULATION,
    ("scripts/outbox_lab/drill/parallel.py", "process.join()"): "each wait of a cell has a limit",
    ("scripts/outbox_lab/drill/receivers/member.py", "stop.wait()"): SERVICE,
    ("scripts/outbox_lab/drill/poller.py", "deliveries.wait()"): BOUNDED,
    ("scripts/outbox_lab/drill/poller.py", "while True"): SERVICE,
    ("scripts/outbox_events/receiving/recoverers.py", "deliveries.wait()"): BOUNDED,
    ("scripts/outbox_events/limited_calls.py", "future.result()"): ENDED,
    ("scripts/outbox_kit/relay/run.py", "future.result()"): ENDED,
    ("scripts/outbox_events/kafka/topic_requests.py", "while True"): DEADLINE,
    ("scripts/outbox_kit/kafka/client.py", "deliveries.wait()"): BOUNDED,
    ("scripts/outbox_kit/relay/producer.py", "while True"): DEADLINE,
    ("scripts/outbox_kit/relay/worker.py", "call.result()"): ENDED,
    ("scripts/outbox_kit/relay/worker.py", "self._completion.exception()"): STATEMENTS,
    ("scripts/outbox_kit/relay/worker.py", "self._completion.result()"): STATEMENTS,
    ("scripts/outbox_events/producing/delivery_proof.py", "deliveries.wait()"): BOUNDED,
    ("scripts/outbox_events/producing/deliveries.py", "while True"): DEADLINE,
    ("scripts/outbox_events/producing/deliveries.py", "self._deliveries.wait()"): BOUNDED,
    ("scripts/outbox_events/producing/deliveries.py", "self.wait()"): BOUNDED,
    ("scripts/outbox_kit/stack/startup.py", "future.result()"): "each step of `prepare` has a limit",
    ("scripts/outbox_kit/stack/state.py", "while True"): CALCULATION,
    ("scripts/outbox_kit/verification/live_state.py", "postgres_future.result()"): ENDED,
    ("scripts/outbox_kit/verification/live_state.py", "kafka_future.result()"): ENDED,
    ("scripts/outbox_kit/verification/live_state.py", "registry_future.result()"): ENDED,
    ("scripts/outbox_events/waiting.py", "while True"): DEADLINE,
    ("spark_jobs/outbox_spark/commands/interval.py", "while True"): SERVICE,
    ("spark_jobs/outbox_spark/commands/workers.py", "self._tasks.get()"): "a daemon waits for its next task",
    ("spark_jobs/outbox_spark/commands/workers.py", "thread.join()"): "the batch in progress ends, as without threads",
    ("spark_jobs/outbox_spark/session/run_session.py", "previous.get()"): "a value of the JVM (scala.Option)",
    ("spark_jobs/outbox_spark/sinks/lake/table.py", "self._lease.acquire()"): "fails at once if the lease is held",
}


def unbounded_waits(source: str) -> Iterator[str]:
    """Yield each call that waits indefinitely, and `while True` for each endless loop."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            yield "while True"
        elif isinstance(node, ast.Call) and _is_unbounded(node):
            yield ast.unparse(node)


def _is_unbounded(call: ast.Call) -> bool:
    keywords = {keyword.arg for keyword in call.keywords if ast.unparse(keyword.value) != "None"}
    limit = LIMITED_CALLS.get(ast.unparse(call.func))
    if limit is not None:
        return limit not in keywords and None not in keywords  # None: **options
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in WAITING_METHODS
    has_no_limit = all(ast.unparse(argument) == "None" for argument in call.args) and "timeout" not in keywords
    return is_method and has_no_limit


def test_each_wait_has_a_limit() -> None:
    found = {
        (str(path.relative_to(ROOT)), wait)
        for path in SOURCES
        for wait in unbounded_waits(path.read_text(encoding="utf-8"))
    }
    assert found - ALLOWED.keys() == set(), "set a time limit, or add the place to ALLOWED with a reason"
    assert ALLOWED.keys() - found == set(), "remove the places from ALLOWED"


def test_recognizes_calls_without_a_limit() -> None:
    unlimited = "thread.join(); thread.join(None); event.wait(timeout=None); subprocess.run(c); psycopg.connect(dsn)"
    limited = (
        "thread.join(5); ', '.join(names); event.wait(timeout=1); subprocess.run(c, timeout=5); psycopg.connect(**o)"
    )
    assert list(unbounded_waits(f"while 1: {unlimited}")) == ["while True", *unlimited.split("; ")]
    assert list(unbounded_waits(f"while not event.wait(1): {limited}")) == []
