"""Extras: each part of the project runs with the packages of its extra. If they are missing, it names the extra."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.utils import canonicalize_name
from tests.unit.project.test_dependencies import LIBRARY, ROOT, closure, project

import outbox_events

HIDE = """\
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def run_with(packages: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a Python process that finds only these packages and their dependencies."""
    kept = closure(packages)
    own = {"outbox-kit", "outbox-events", "pip", "setuptools"}
    hidden = {
        module
        for module, distributions in metadata.packages_distributions().items()
        if not {canonicalize_name(name) for name in distributions} & {*kept, *own}
    }
    command = [sys.executable, "-c", HIDE.format(hidden=hidden) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def service(*extras: str) -> list[str]:
    """Return the requirements of the library with extras."""
    requirements = project(LIBRARY)
    return requirements["dependencies"] + [entry for extra in extras for entry in requirements[extra]]


def kit(*extras: str) -> list[str]:
    """Return the requirements of the kit with extras."""
    requirements = project(ROOT)
    return requirements["dependencies"] + [entry for extra in extras for entry in requirements[extra]]


IMPORT_NAMES = "import outbox_events\nfor name in {names!r}: getattr(outbox_events, name)"
EVERY_NAME = sorted(outbox_events.__all__)
OF_SENDING = ["emit", "emit_async", "emit_many", "OutboxEvent", "OutboxTable", "InvalidEventError", "OutboxError"]
OF_SENDING += ["trace_headers", "use_tracer"]


@pytest.mark.parametrize(
    ("extras", "names"),
    [
        ([], OF_SENDING),
        (["otel"], [*OF_SENDING, "OpenTelemetryTracer"]),
        (["kafka"], [name for name in EVERY_NAME if name not in ("AvroValues", "OpenTelemetryTracer")]),
        (["kafka", "avro", "otel"], EVERY_NAME),
    ],
)
def test_public_names_need_the_packages_of_their_extra_only(extras: list[str], names: list[str]) -> None:
    done = run_with(service(*extras), IMPORT_NAMES.format(names=names))
    assert done.returncode == 0, done.stderr


def test_the_writer_for_sqlalchemy_needs_its_extra_only() -> None:
    done = run_with(service("sqlalchemy"), "import outbox_events.sending.sqlalchemy_writer")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("extras", "name", "requirement"),
    [
        ([], "Receiver", "outbox-events[kafka]"),
        ([], "LatestState", "outbox-events[kafka]"),
        ([], "ChainedSender", "outbox-events[kafka]"),
        (["kafka"], "AvroValues", "outbox-events[avro]"),
        (["kafka"], "OpenTelemetryTracer", "outbox-events[otel]"),
    ],
)
def test_a_name_that_needs_an_extra_names_it(extras: list[str], name: str, requirement: str) -> None:
    code = f"try: from outbox_events import {name}\nexcept ImportError as error: print(error)"
    assert requirement in run_with(service(*extras), code).stdout


def test_typed_values_need_their_extra_only() -> None:
    code = "from outbox_events import Handlers\ntry: Handlers().on('lent', type=dict)(print)"
    code += "\nexcept ImportError as error: print(error)"
    assert "outbox-events[typed]" in run_with(service("kafka"), code).stdout
    done = run_with(service("kafka", "typed"), code)
    assert (done.stdout, done.returncode) == ("", 0)


def test_a_service_that_only_emits_can_test_without_an_extra() -> None:
    code = """
from outbox_events import emit
from outbox_events.testing import fixtures, collect_events
with collect_events() as emitted:
    emit(None, aggregate_type="a", aggregate_id="1", event_type="t", payload={})
print(len(emitted))
try: from outbox_events.testing import TestReceiver
except ImportError as error: print(error)
"""
    count, error = run_with([*service(), "pytest"], code).stdout.splitlines()
    assert count == "1"
    assert "outbox-events[kafka]" in error


def test_public_names_are_listed() -> None:
    imports = (
        node for node in ast.walk(ast.parse(inspect.getsource(outbox_events))) if isinstance(node, ast.ImportFrom)
    )
    typed = {alias.name for node in imports for alias in node.names if alias.asname}
    assert set(outbox_events.__all__) == typed
    assert {name for name in dir(outbox_events) if name in outbox_events.__all__} == set(outbox_events.__all__)
    with pytest.raises(AttributeError, match="absent"):
        _ = outbox_events.absent


@pytest.mark.parametrize(
    ("extra", "module"),
    [
        ("stack", "outbox_kit.stack"),
        ("testing", "outbox_kit.testing.fixtures"),
        ("spark", "outbox_spark.commands.materialize"),
        ("spark", "outbox_spark.jobs.from_pipeline"),
    ],
)
def test_an_extra_has_every_package_that_its_modules_import(extra: str, module: str) -> None:
    done = run_with(kit(extra), f"import {module}")
    assert done.returncode == 0, done.stderr


IMPORT_ALL = """
import importlib, pkgutil, outbox_kit
for module in pkgutil.walk_packages(outbox_kit.__path__, "outbox_kit."):
    if not module.name.startswith("outbox_kit.testing") and not module.name.endswith(".fixtures"):  # need pytest
        importlib.import_module(module.name)
"""


def test_the_commands_need_no_extra() -> None:
    done = run_with(kit(), IMPORT_ALL)
    assert done.returncode == 0, done.stderr


def test_a_spark_command_names_the_extra_that_it_needs() -> None:
    done = run_with(kit(), "from outbox_spark.console_scripts import materialize; sys.exit(materialize())")
    assert done.returncode == 4
    assert "outbox-kit[spark]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_fixtures_name_the_extra_that_they_need() -> None:
    done = run_with([*kit(), "pytest"], "import outbox_kit.testing.fixtures")
    assert "outbox-kit[testing]" in done.stderr.splitlines()[-1]


def test_an_import_error_of_the_own_code_is_not_a_missing_extra() -> None:
    code = "from outbox_events.extras import extra\nwith extra(): import outbox_kit.absent"
    assert "ModuleNotFoundError: No module named 'outbox_kit.absent'" in run_with(service(), code).stderr
