"""supervisord: its configuration, and how it is started."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping

from outbox_kit.errors import StackError
from outbox_kit.stack.control import Control
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import mark
from outbox_kit.stack.services.service import Program
from outbox_kit.stack.tools import run_tool
from outbox_kit.waiting import Seen, wait_for

NAME = "supervisor"
START_SECONDS = 30
# Everything else stays out: a CLASSPATH, a PGOPTIONS or a QUARKUS_... of the caller's shell would change
# the parts. OUTBOX_... goes through, because connectors may refer to such variables.
INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
)
INHERITED_PREFIX = "OUTBOX_"


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the parts get of the caller's environment."""
    return {
        name: value for name, value in environment.items() if name in INHERITED or name.startswith(INHERITED_PREFIX)
    }


def render_configuration(layout: Layout, programs: Mapping[str, Program]) -> str:
    """Render supervisord.conf. It holds passwords: keep it private."""
    # As root it wants to be told that this is meant.
    user = "user=root\n" if os.geteuid() == 0 else ""
    header = f"""\
[supervisord]
logfile={layout.log(NAME)}
logfile_maxbytes=5MB
logfile_backups=1
pidfile={layout.supervisor_pid_file}
minfds=1024
{user}
[unix_http_server]
file={layout.socket}
chmod=0600

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""
    return header + "".join(render_program(layout, name, program) for name, program in programs.items())


def render_program(layout: Layout, name: str, program: Program) -> str:
    """Render one program. Started on request only: the order is the stack's to decide."""
    environment = ",".join(f'{key}="{value}"' for key, value in program.environment.items())
    lines = [
        f"\n[program:{name}]",
        f"command={escape(shlex.join(program.command))}",
        f"environment={escape(environment)}",
        f"directory={layout.home}" if program.user is None else "directory=/",
        "autostart=false",
        "autorestart=true",
        # A process that ends sooner is tried again three times, then given up.
        "startsecs=2",
        "startretries=3",
        f"stopsignal={program.stop_signal}",
        f"stopwaitsecs={program.stop_seconds}",
        f"stopasgroup={str(program.stop_group).lower()}",
        "killasgroup=true",
        "redirect_stderr=true",
        f"stdout_logfile={layout.log(name)}",
        "stdout_logfile_maxbytes=20MB",
        "stdout_logfile_backups=2",
    ]
    if program.user is not None:
        lines.append(f"user={program.user}")
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Escape Supervisor's own expansion."""
    return text.replace("%", "%%")


def launch(layout: Layout, programs: Mapping[str, Program]) -> Control:
    """Start supervisord with these programs, none of them running yet; return once it answers.

    It makes itself a daemon in a session of its own, so the terminal's Ctrl-C does not reach it: the
    caller decides what an interruption stops.
    """
    if importlib.util.find_spec("supervisor") is None:
        raise StackError("the package 'supervisor' is not installed", "run `make setup`")
    file = layout.configuration / "supervisord.conf"
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(render_configuration(layout, programs))
    command = (sys.executable, "-m", "supervisor.supervisord", "-c", str(file), "-i", mark(layout, NAME))
    environment = inherited_environment(os.environ)
    run_tool("supervisor", command, seconds=START_SECONDS, folder=layout.home, environment=environment)
    control = Control(layout.socket)

    def look() -> Seen[int]:
        return Seen(control.supervisor_pid(), f"nobody answers on {layout.socket}")

    wait_for("supervisor to answer", look, seconds=START_SECONDS, every=0.05, hint=f"see {layout.log(NAME)}")
    return control
