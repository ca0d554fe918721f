"""Extras: each part of the project runs with the packages that its extra installs, and names the extra without them."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
from packaging.utils import canonicalize_name
from tests.unit.project.test_dependencies import closure, project

HIDE = """\
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def run_with(extra: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a Python process that finds only the packages of the core and of one extra."""
    extras = project()
    kept = closure(extras["dependencies"] + extras.get(extra, []))
    hidden = {
        module
        for module, distributions in metadata.packages_distributions().items()
        if not {canonicalize_name(name) for name in distributions} & {*kept, "outbox-kit", "pip", "setuptools"}
    }
    command = [sys.executable, "-c", HIDE.format(hidden=hidden) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("extra", "module"),
    [
        ("", "outbox_kit.sending"),
        ("kafka", "outbox_kit.sending.producing"),
        ("kafka", "outbox_kit.receiving"),
        ("sqlalchemy", "outbox_kit.sending.sqlalchemy_writer"),
        ("stack", "outbox_kit.stack"),
        ("testing", "outbox_kit.testing.fixtures"),
        ("spark", "outbox_spark.commands.materialize"),
        ("spark", "outbox_spark.jobs.from_pipeline"),
    ],
)
def test_an_extra_has_every_package_that_its_modules_import(extra: str, module: str) -> None:
    done = run_with(extra, f"import {module}")
    assert done.returncode == 0, done.stderr


IMPORT_ALL = """
import importlib, pkgutil, outbox_kit
for module in pkgutil.walk_packages(outbox_kit.__path__, "outbox_kit."):
    if not module.name.startswith("outbox_kit.testing") and "sqlalchemy" not in module.name:
        importlib.import_module(module.name)
"""


def test_the_commands_need_the_extra_deploy_only() -> None:
    done = run_with("deploy", IMPORT_ALL)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["outbox_kit.sending.producing", "outbox_kit.receiving"])
def test_a_module_that_needs_kafka_names_the_extra(module: str) -> None:
    code = f"try: import {module}\nexcept ImportError as error: print(error)"
    assert "outbox-kit[kafka]" in run_with("", code).stdout


@pytest.mark.parametrize("extra", ["", "kafka"])
def test_the_command_names_the_extra_that_it_needs(extra: str) -> None:
    done = run_with(extra, "from outbox_kit.cli import main; sys.argv = ['outbox', '--version']; main()")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "outbox-kit[deploy]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_spark_command_names_the_extra_that_it_needs() -> None:
    done = run_with("deploy", "from outbox_spark.console_scripts import materialize; sys.exit(materialize())")
    assert done.returncode == 4
    assert "outbox-kit[spark]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_import_error_of_the_own_code_is_not_a_missing_extra() -> None:
    code = "from outbox_common.extras import extra\nwith extra('kafka'): import outbox_kit.absent"
    assert "ModuleNotFoundError: No module named 'outbox_kit.absent'" in run_with("", code).stderr
