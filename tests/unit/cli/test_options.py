"""Global options stand anywhere on the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_kit.cli.options import FLAGS, WITH_VALUE, Common, Output, hoist


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ""),
        ("verify", "verify"),
        ("--output json verify", "--output json verify"),
        ("verify --output json", "--output json verify"),
        ("verify --output=json", "--output=json verify"),
        ("apply --yes", "--yes apply"),
        ("apply --yes --debug", "--yes --debug apply"),
        ("plan -e production -p a.yaml", "-e production -p a.yaml plan"),
        (
            "plan --environment production --pipeline=a.yaml",
            "--environment production --pipeline=a.yaml plan",
        ),
        ("-e one plan -e two", "-e one -e two plan"),
        ("stack logs kafka --lines 3 --output json", "--output json stack logs kafka --lines 3"),
        ("verify --canary-timeout 5 -e x", "-e x verify --canary-timeout 5"),
        ("demo --keep --seed 1", "demo --keep --seed 1"),
        ("verify --output", "--output verify"),
        ("verify -- --output json", "verify -- --output json"),
        ("verify --yes -- --debug -e x", "--yes verify -- --debug -e x"),
        ("apply --help", "apply --help"),
        ("apply --yess", "apply --yess"),
        # the value may stick to a short option
        ("plan -eproduction", "-eproduction plan"),
        ("plan -pa.yaml", "-pa.yaml plan"),
        ("plan --set a.b=c=d --set e=-f", "--set a.b=c=d --set e=-f plan"),
        ("plan --set=a.b=c apply", "--set=a.b=c plan apply"),
        ("plan --set --yes", "--set --yes plan"),
        ("plan --settings x", "plan --settings x"),
    ],
)
def test_hoist(line: str, expected: str) -> None:
    assert hoist(line.split()) == expected.split()


def test_every_global_option_is_known_to_hoist() -> None:
    """An option added to the callback and forgotten here would work only before the command."""
    import typer  # noqa: PLC0415 - only here

    from outbox_kit.cli.app import app  # noqa: PLC0415

    parameters = typer.main.get_command(app).params
    flags = {name for entry in parameters if getattr(entry, "is_flag", False) for name in entry.opts}
    with_value = {name for entry in parameters if not getattr(entry, "is_flag", False) for name in entry.opts}
    assert flags - {"--version", "--help"} == FLAGS
    assert with_value == WITH_VALUE


def test_the_project_is_the_folder_of_connectors(tmp_path: Path) -> None:
    common = Common(tmp_path / "connectors" / "a.yaml", "local", Output.TABLE, yes=False, debug=False)
    assert common.project == tmp_path


def test_what_is_set_wins_over_the_files(tmp_path: Path) -> None:
    common = Common(tmp_path / "a.yaml", "local", Output.TABLE, yes=False, debug=False, settings=("a=b", "c=d"))
    assert common.overrides.options == ("a=b", "c=d")
