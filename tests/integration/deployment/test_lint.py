"""lint --connect: comparison of keys with the definitions of a real worker's plugins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.integration.support import Outbox

ROUTER = "transforms.outbox."
DELEGATE = "value.converter.delegate.converter.type."
PREDICATE = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
UNKNOWN = {
    "max.batch.sise": "did you mean max.batch.size?",
    "errors.tolerence": "did you mean errors.tolerance?",
    f"{ROUTER}route.by.feild": f"did you mean {ROUTER}route.by.field?",
    f"{DELEGATE}schema.enable": f"did you mean {DELEGATE}schemas.enable?",
    "predicates.rows.patern": "did you mean predicates.rows.pattern?",
}
LEGAL = {
    "driver.socketTimeout": "60",
    "topic.creation.default.partitions": "1",
    "column.mask.with.10.chars": "public.x.y",
    "database.sslmode": "require",
    "max.queue.size.in.bytes": "0",
    "key.converter.converter.encoding": "UTF-8",
    "tasks.max.enforce": "true",
    "outboxkit.fingerprint": "0",
    "predicates": "rows",
    "predicates.rows.type": PREDICATE,
    "predicates.rows.pattern": ".*",
    f"{ROUTER}predicate": "rows",
}


def with_template(project: Path, make_pipeline: Callable[..., Path], name: str, settings: dict[str, str]) -> None:
    """Write a pipeline whose template contains additional settings."""
    folder = project / "connectors" / "templates"
    text = (folder / "outbox-postgres.json.j2").read_text(encoding="utf-8")
    end = '"transforms": "outbox",'
    assert end in text
    more = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in settings.items())
    (folder / f"{name}.json.j2").write_text(text.replace(end, end + more), encoding="utf-8")
    make_pipeline(name, connector={"name": name, "template": name})


def test_worked_example_has_only_known_keys(outbox: Outbox) -> None:
    done = outbox("lint", "--connect", "--strict")
    assert done.code == 0, done.output


def test_accepts_valid_keys(outbox: Outbox, project: Path, make_pipeline: Callable[..., Path]) -> None:
    with_template(project, make_pipeline, "legal", LEGAL)
    done = outbox("lint", "--connect", pipeline="legal")
    assert done.code == 0, done.output


def test_reports_each_unknown_key_with_the_nearest_known_key(
    outbox: Outbox, project: Path, make_pipeline: Callable[..., Path]
) -> None:
    with_template(project, make_pipeline, "misspelt", {**LEGAL, **dict.fromkeys(UNKNOWN, "1")})
    done = outbox("lint", "--connect", "--output", "json", pipeline="misspelt")
    assert done.code == 1, done.output
    broken = [check for check in json.loads(done.stdout)["checks"] if check["status"] != "pass"]
    assert {check["id"] for check in broken} == {"lint.unknown-keys"}
    assert {check["seen"].partition(":")[0]: check["remedy"] for check in broken} == UNKNOWN


def test_reports_a_class_that_is_not_installed(
    outbox: Outbox, project: Path, make_pipeline: Callable[..., Path]
) -> None:
    with_template(project, make_pipeline, "missing", {**LEGAL, "predicates.rows.type": f"{PREDICATE}z"})
    done = outbox("lint", "--connect", "--output", "json", pipeline="missing")
    assert done.code == 1, done.output
    (check,) = [check for check in json.loads(done.stdout)["checks"] if check["status"] != "pass"]
    assert check["seen"] == f"predicates.rows.{PREDICATE}z is not installed"


def test_lint_opens_no_connection_by_default(outbox: Outbox) -> None:
    """Lint an environment whose variables are unset and whose addresses are unreachable."""
    done = outbox("lint", environment="production.example")
    assert done.code == 0, done.output
