"""Scripts of the images and of compose/, without a container engine."""

from __future__ import annotations

import ast
import base64
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from dotenv import dotenv_values

SECONDS = 30


def run_script(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def properties(repository: Path, **environ: str) -> str:
    script = f". {repository}/compose/images/properties.bash; properties KAFKA_ KAFKA_HEAP_OPTS"
    done = run_script(["bash", "-euc", script], repository, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("KAFKA_NODE_ID", "1", "node.id=1"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_X", "y", "listener.name.sasl_ssl.x=y"),
        ("KAFKA_A___B", "1", "a-b=1"),
        ("KAFKA_PATTERN", r"a\d", r"pattern=a\\d"),
        ("KAFKA_LINES", "a\nb", r"lines=a\nb"),
        ("KAFKA_BLANK", " a", r"blank=\ a"),
        ("KAFKA_EQUALS", "a=b", "equals=a=b"),
        ("KAFKA_EMPTY", "", "empty="),
        ("KAFKA_BASE64", "c2VjcmV0cw=", "base64=c2VjcmV0cw="),
    ],
)
def test_converts_a_variable_to_a_property(repository: Path, name: str, value: str, line: str) -> None:
    assert properties(repository, **{name: value}) == line + "\n"


def test_ignores_variables_of_other_programs(repository: Path) -> None:
    assert properties(repository, KAFKA_HEAP_OPTS="-Xmx1g", CONNECT_GROUP_ID="x", KAFKA_A="1") == "a=1\n"


def copy_env_script(repository: Path, root: Path) -> Path:
    """Create a project with compose-env.sh and .env.example. Return the script."""
    for folder in ("scripts", "compose"):
        (root / folder).mkdir(parents=True)
    for name in ("compose/.env.example", "scripts/compose-env.sh"):
        (root / name).write_text((repository / name).read_text())
    return root / "scripts" / "compose-env.sh"


def test_profiles_change_only_their_lines(repository: Path, tmp_path: Path) -> None:
    script = copy_env_script(repository, tmp_path / "project")
    written = tmp_path / "project" / "compose" / ".env"
    actual = []
    for profiles in ([], ["three-brokers"], ["secure", "observability"], [], ["none"]):
        done = run_script(["sh", str(script), *profiles], tmp_path)
        assert done.returncode == 0, done.stderr
        actual.append(dotenv_values(written))
    changing = ("COMPOSE_FILE", "KAFKA_REPLICATION", "KAFKA_MIN_INSYNC", "EXPORTER_SSLMODE")
    assert [[item[name] for name in changing] for item in actual] == [
        ["compose.yaml", "1", "1", "disable"],
        ["compose.yaml:three-brokers.yaml", "3", "2", "disable"],
        ["compose.yaml:secure.yaml:observability.yaml", "1", "1", "require"],
        ["compose.yaml:secure.yaml:observability.yaml", "1", "1", "require"],
        ["compose.yaml", "1", "1", "disable"],
    ]
    assert len({str({name: item[name] for name in item if name not in changing}) for item in actual}) == 1
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


COMBINATION_ERROR = "error: the profiles secure and three-brokers cannot be combined"


@pytest.mark.parametrize(
    ("profiles", "error"),
    [
        (["safe"], "error: unknown profile safe\n"),
        (
            ["secure", "observability", "three-brokers"],
            COMBINATION_ERROR,
        ),
        (["three-brokers", "secure"], COMBINATION_ERROR),
    ],
)
def test_rejects_an_invalid_profile(repository: Path, tmp_path: Path, profiles: list[str], error: str) -> None:
    done = run_script(["sh", str(copy_env_script(repository, tmp_path / "project")), *profiles], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(error)
    assert not (tmp_path / "project" / "compose" / ".env").exists()


@pytest.mark.parametrize(
    ("port", "error"),
    [
        ("15432", "error: compose/.env: port 15432 is used twice: POSTGRES_PORT REGISTRY_PORT\n"),
        ("abc", "error: compose/.env: REGISTRY_PORT=abc is not a port\n"),
    ],
)
def test_reports_invalid_ports_before_building(repository: Path, tmp_path: Path, port: str, error: str) -> None:
    root = tmp_path / "project"
    script = copy_env_script(repository, root)
    example = root / "compose" / ".env.example"
    example.write_text(example.read_text().replace("REGISTRY_PORT=18080", f"REGISTRY_PORT={port}"))
    done = run_script(["sh", str(script)], tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines(keepends=True)[1] == error


def test_writes_new_passwords_readable_by_the_owner_only(repository: Path, tmp_path: Path) -> None:
    example = repository / "compose" / ".env.example"
    observed = set()
    for name in ("one", "two"):
        root = tmp_path / name
        done = run_script(["sh", str(copy_env_script(repository, root))], tmp_path)
        assert done.returncode == 0, done.stderr
        written = root / "compose" / ".env"
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        actual, defaults = dotenv_values(written), dotenv_values(example)
        passwords = {name for name in actual if name.endswith("_PASSWORD")}
        cluster = actual.pop("KAFKA_CLUSTER_ID") or ""
        assert not defaults.pop("KAFKA_CLUSTER_ID")
        assert len(base64.urlsafe_b64decode(cluster + "==")) == 16
        observed.add(cluster)
        assert {name: actual[name] for name in actual if name not in passwords} == {
            name: defaults[name] for name in defaults if name not in passwords
        }
        assert all(len(actual[name] or "") == 36 for name in passwords)
        observed |= {actual[name] for name in passwords}
    assert len(observed) == 2 * (len(passwords) + 1)


def test_reports_a_missing_engine_with_installation_hint(repository: Path, tmp_path: Path) -> None:
    script = str(repository / "scripts" / "container-engine.sh")
    done = run_script(["sh", script, "status"], tmp_path, DOCKER_HOST=f"unix://{tmp_path}/nothing.sock")
    assert done.returncode == 1
    assert done.stderr == ("error: no container engine responds (docker info)\nhint:  scripts/container-engine.sh up\n")


def test_an_unknown_command_prints_the_usage(repository: Path, tmp_path: Path) -> None:
    done = run_script(["sh", str(repository / "scripts" / "container-engine.sh"), "start"], tmp_path)
    assert done.returncode == 2
    assert "scripts/container-engine.sh up" in done.stderr


def test_tools_image_has_every_package_that_its_scripts_import(repository: Path) -> None:
    data = tomllib.loads((repository / "pyproject.toml").read_text())
    library = tomllib.loads((repository / "scripts" / "outbox_events" / "pyproject.toml").read_text())["project"]
    requirements = [
        *data["project"]["dependencies"],
        *library["dependencies"],
        *library["optional-dependencies"]["kafka"],
        *data["dependency-groups"]["tools-image"],
    ]
    packages = {re.split(r"[\[>=]", name)[0].replace("-", "_") for name in requirements}
    packages |= {"outbox_kit", "outbox_common", "outbox_events"}
    imported = set[str]()
    for script in (repository / "compose").rglob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    assert imported - packages - sys.stdlib_module_names == set()


FAKE_DOCKER = """\
#!/bin/sh
case "$*" in
"compose version --short") echo 2.40.3 ;;
"image inspect --format {{.Comment}} "*) grep -s . "$HOME/comment" ;;
"image inspect --format {{.Size}} "*) echo 1000000 ;;
"image inspect "*) grep -Fqx "${*##* }" "$HOME/images" ;;
"pull "*) echo "$*" >>"$HOME/log"; [ -z "$OFFLINE" ] && echo "${*##* }" >>"$HOME/images" ;;
"tag "*) echo "$*" >>"$HOME/log"; echo "${*##* }" >>"$HOME/images" ;;
"import "*)
  cat >/dev/null
  echo "import ${*##* }" >>"$HOME/log"
  echo "$3" >"$HOME/comment"
  echo "${*##* }" >>"$HOME/images"
  ;;
esac
"""
FAKE_TOOLS = {"docker": FAKE_DOCKER, "id": "#!/bin/sh\necho 0\n", "apt-get": "#!/bin/sh\n"}
DEBOOTSTRAP = '#!/bin/sh\nmkdir -p "$3/etc/apt/sources.list.d" "$3/etc/dpkg/dpkg.cfg.d"\n'
BASE = "localhost/outbox-kit/base"


def start_engine(repository: Path, folder: Path, **environ: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run container-engine.sh with a fake docker. Return its result, and the images that docker handled."""
    script = folder / "project" / "scripts" / "container-engine.sh"
    tools = folder / "tools"
    if not tools.exists():
        tools.mkdir()
        script.parent.mkdir(parents=True)
        script.write_text((repository / "scripts" / script.name).read_text(), encoding="utf-8")
        for name, text in {**FAKE_TOOLS, "debootstrap": DEBOOTSTRAP, "chroot": "#!/bin/sh\n"}.items():
            (tools / name).write_text(text, encoding="utf-8")
            (tools / name).chmod(0o755)
    log = folder / "log"
    log.write_text("", encoding="utf-8")
    (folder / "images").touch()
    done = run_script(["sh", str(script), "up"], folder, **{"PATH": f"{tools}:{os.environ['PATH']}", **environ})
    return done, log.read_text(encoding="utf-8").splitlines()


def test_pulls_the_base_image_by_digest(repository: Path, tmp_path: Path) -> None:
    done, log = start_engine(repository, tmp_path)
    assert done.returncode == 0, done.stderr
    pulled = log[0].split()[-1]
    assert re.fullmatch(r"debian@sha256:[0-9a-f]{64}", pulled)
    assert log == [f"pull -q {pulled}", f"tag {pulled} {BASE}"]
    assert start_engine(repository, tmp_path)[1] == [f"tag {pulled} {BASE}"]


def test_a_new_digest_replaces_the_base_image(repository: Path, tmp_path: Path) -> None:
    start_engine(repository, tmp_path)
    script = tmp_path / "project" / "scripts" / "container-engine.sh"
    text = script.read_text(encoding="utf-8")
    script.write_text(re.sub(r"debian@sha256:\w+", "debian@sha256:" + "0" * 64, text), encoding="utf-8")
    assert start_engine(repository, tmp_path)[1][-1] == f"tag debian@sha256:{'0' * 64} {BASE}"


def test_builds_the_base_image_once_without_a_registry(repository: Path, tmp_path: Path) -> None:
    done, log = start_engine(repository, tmp_path, OFFLINE="true")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in log] == ["pull", "import"]
    assert log[1] == f"import {BASE}"
    assert start_engine(repository, tmp_path, OFFLINE="true")[1] == []


def test_default_images_are_never_looked_up_in_a_public_registry(repository: Path) -> None:
    settings = dotenv_values(repository / "compose" / ".env.example")
    images = {name: value or "" for name, value in settings.items() if name.endswith("_IMAGE")}
    assert images.pop("BASE_IMAGE") == BASE
    assert [name for name in images.values() if not name.startswith("outbox-kit/")] == []
    assert settings["PULL_POLICY"] == "never"
    for path in (repository / "compose").glob("*.yaml"):
        named = re.findall(r"^ *image: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert [name for name in named if not re.fullmatch(r"\$\{\w+_IMAGE\}|outbox-kit/\w+", name)] == []


def test_stages_of_the_dockerfile_are_based_on_the_base_image(repository: Path) -> None:
    text = (repository / "compose" / "images" / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    assert len(stages) == text.count("\nFROM ")
    assert {base for base, _ in stages} - {name for _, name in stages} == {"${BASE_IMAGE}"}
    assert re.findall(r"^ARG BASE_IMAGE=(.*)$", text, re.MULTILINE) == [BASE]
