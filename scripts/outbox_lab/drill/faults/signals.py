"""Faults of processes: kill, pause and restart."""

from __future__ import annotations

import signal
import time

from outbox_lab.drill.components import Component


def kill(component: Component) -> None:
    """Send SIGKILL; whoever runs the component starts it again."""
    component.signal(signal.SIGKILL)


def pause(component: Component, seconds: float) -> None:
    """Stop the component with SIGSTOP, and continue it after some seconds."""
    component.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        component.signal(signal.SIGCONT)
