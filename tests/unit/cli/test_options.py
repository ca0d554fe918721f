"""Common options are accepted before and after a command."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from outbox_common.pipeline_files import UsageError
from outbox_events.errors import ConfigurationError
from outbox_kit.cli.app import app, group_callback
from outbox_kit.cli.options import CommonOptions, Output, common_options

PIPELINE, ENVIRONMENT = None, "local"


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[CommonOptions]:
    """Options that the commands of parse() received. Environment variables do not set options."""
    for name in ("OUTBOX_PIPELINE", "OUTBOX_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    return []


def parse(line: str, received: list[CommonOptions], **environ: str) -> CommonOptions:
    """Parse a command line with a test application. Return the options that its command received."""
    app = typer.Typer()

    @app.callback()
    @common_options("output", "yes")
    def root(common: CommonOptions) -> None: ...

    @app.command()
    @common_options("output", "yes")
    def ask(common: CommonOptions, key: str = "") -> None:  # noqa: ARG001 - parsed only
        received.append(common)

    @app.command()
    @common_options()
    def minimal(common: CommonOptions) -> None:
        received.append(common)

    subcommands = typer.Typer()

    @subcommands.command()
    @common_options("output")
    def show(common: CommonOptions) -> None:
        received.append(common)

    app.add_typer(subcommands, name="things", callback=group_callback)
    result = CliRunner().invoke(app, line.split(), env=environ)
    assert result.exit_code == 0, result.output
    return received[-1]


DEFAULTS = CommonOptions(PIPELINE, ENVIRONMENT)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", DEFAULTS),
        ("--output json", "--output=json", CommonOptions(PIPELINE, ENVIRONMENT, output=Output.JSON)),
        ("--yes --debug", "--debug --yes", CommonOptions(PIPELINE, ENVIRONMENT, yes=True, debug=True)),
        (
            "-e production -p a.yaml",
            "--environment production --pipeline=a.yaml",
            CommonOptions(Path("a.yaml"), "production"),
        ),
        ("-eproduction -pa.yaml", "-pa.yaml -eproduction", CommonOptions(Path("a.yaml"), "production")),
        (
            "--set a.b=c=d --set e=-f",
            "--set=a.b=c=d --set e=-f",
            CommonOptions(PIPELINE, ENVIRONMENT, ("a.b=c=d", "e=-f")),
        ),
    ],
)
def test_accepts_options_before_and_after_the_command(
    received: list[CommonOptions], before: str, after: str, expected: CommonOptions
) -> None:
    assert parse(f"{before} ask", received) == expected
    assert parse(f"ask {after}", received) == expected


def test_option_after_the_command_takes_precedence(received: list[CommonOptions]) -> None:
    assert parse("-e one --output json ask -e two --output table", received) == CommonOptions(PIPELINE, "two")


def test_settings_of_both_positions_are_combined(received: list[CommonOptions]) -> None:
    assert parse("--set a=b ask --set c=d", received).settings == ("a=b", "c=d")


@pytest.mark.parametrize(
    ("line", "expected"), [("ask", "variable"), ("-e before ask", "before"), ("ask -e after", "after")]
)
def test_option_overrides_its_environment_variable(received: list[CommonOptions], line: str, expected: str) -> None:
    assert parse(line, received, OUTBOX_ENVIRONMENT="variable").environment == expected


def test_accepts_a_value_that_starts_with_a_dash(received: list[CommonOptions]) -> None:
    """Regression test: `--key -e17` was parsed as `-e 17`."""
    assert parse("ask --key -e17", received) == DEFAULTS


def test_accepts_an_option_without_effect_before_the_command(received: list[CommonOptions]) -> None:
    assert parse("--output json --yes minimal", received).output is Output.JSON


def test_project_is_the_folder_of_connectors(tmp_path: Path) -> None:
    assert CommonOptions(tmp_path / "connectors" / "a.yaml", "local").project_folder == tmp_path


def test_settings_override_the_files(tmp_path: Path) -> None:
    assert CommonOptions(tmp_path / "a.yaml", "local", settings=("a=b", "c=d")).overrides.options == ("a=b", "c=d")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("things -e production --output json show", CommonOptions(PIPELINE, "production", output=Output.JSON)),
        ("-e one things -e two show", CommonOptions(PIPELINE, "two")),
        ("things -e two show -e three", CommonOptions(PIPELINE, "three")),
        ("--set a=1 things --set b=2 show --set c=3", CommonOptions(PIPELINE, "local", ("a=1", "b=2", "c=3"))),
    ],
)
def test_between_a_group_and_its_subcommand(received: list[CommonOptions], line: str, expected: CommonOptions) -> None:
    assert parse(line, received) == expected


def test_the_groups_of_the_command_line_accept_the_options(tmp_path: Path) -> None:
    pipeline = tmp_path / "connectors" / "none.yaml"
    for line in (f"offsets -p {pipeline} show", f"dead-letter -p {pipeline} list", f"stack -p {pipeline} status"):
        result = CliRunner().invoke(app, line.split())
        assert result.exit_code == 1, result.output  # exit code 2 would mean that an option was rejected
        assert isinstance(result.exception, ConfigurationError | SystemExit)


def test_arguments_select_the_deployment_in_another_shell_without_secrets() -> None:
    settings = ("prefix=a b", "environment.source.admin.password=hidden")
    options = CommonOptions(Path("my pipelines/a.yaml"), "here", settings)
    assert options.arguments == (
        "-p 'my pipelines/a.yaml' -e here --set 'prefix=a b' --set environment.source.admin.password=..."
    )


def test_the_default_is_the_only_pipeline_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = CommonOptions(None, "here")
    assert options.project_folder == tmp_path
    with pytest.raises(UsageError, match=str(tmp_path / "connectors")):
        _ = options.pipeline
    for name in ("environments/local.yaml", "templates/a.yaml", ".hidden.yaml", "shop.yaml", "shop.local.lock.json"):
        path = tmp_path / "connectors" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert options.pipeline == Path("connectors/shop.yaml")
    assert options.arguments == "-e here"
    (tmp_path / "connectors" / "store.yaml").touch()
    with pytest.raises(UsageError, match=r"connectors/shop\.yaml, connectors/store\.yaml"):
        _ = options.pipeline
    assert CommonOptions(Path("a.yaml"), "here").pipeline == Path("a.yaml")
