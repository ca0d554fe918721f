"""Configure and launch supervisord."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping

from outbox_common.private_files import write_private
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.control import Control
from outbox_kit.stack.errors import StackError, setup_hint
from outbox_kit.stack.layout import Layout
from outbox_kit.stack.processes import process_marker
from outbox_kit.stack.services.service import Program
from outbox_kit.stack.tools import run_tool

SUPERVISOR = "supervisor"
START_SECONDS = 30


def render_configuration(layout: Layout, programs: Mapping[str, Program]) -> str:
    """Render supervisord.conf, which contains passwords."""
    # If root runs supervisord without the setting `user`, supervisord logs a warning.
    user = "user=root\n" if os.geteuid() == 0 else ""
    header = f"""\
[supervisord]
logfile={layout.log(SUPERVISOR)}
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
    """Render the section of one program. It starts only on request, because Startup determines the start order."""
    environment = ",".join(f'{key}="{value}"' for key, value in program.environment.items())
    lines = [
        f"\n[program:{name}]",
        f"command={escape(shlex.join(program.command))}",
        f"environment={escape(environment)}",
        f"directory={layout.home}" if program.user is None else "directory=/",
        "autostart=false",
        "autorestart=true",
        # A process that ends within startsecs is restarted at most three times.
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
    """Escape `%`, which Supervisor expands."""
    return text.replace("%", "%%")


def launch(layout: Layout, programs: Mapping[str, Program]) -> Control:
    """Start supervisord without its programs, and return when supervisord responds.

    supervisord runs as a daemon in its own session, so Ctrl-C does not stop it. The caller decides what to stop.
    """
    if importlib.util.find_spec("supervisor") is None:
        raise StackError(
            "the package 'supervisor' is not installed", setup_hint("run `pip install '/path/to/outbox-kit[stack]'`")
        )
    file = layout.configuration / "supervisord.conf"
    write_private(file, render_configuration(layout, programs))
    command = (
        sys.executable,
        "-m",
        "supervisor.supervisord",
        "-c",
        str(file),
        "-i",
        process_marker(layout, SUPERVISOR),
    )
    run_tool("supervisor", command, seconds=START_SECONDS, folder=layout.home)
    control = Control(layout.socket)

    def poll() -> Observation[int]:
        return Observation(control.supervisor_pid(), f"no response on {layout.socket}")

    wait_for("supervisor to respond", poll, seconds=START_SECONDS, interval=0.05, hint=f"see {layout.log(SUPERVISOR)}")
    return control
