"""Inject a fault into the running components or the deployed pipeline."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from outbox_kit.deployment import Deployment
from outbox_lab.drill.components import Component
from outbox_lab.drill.faults import brokers, database, disk
from outbox_lab.drill.faults.fault import Action, Fault
from outbox_lab.drill.faults.slot import invalidate_slot
from outbox_lab.drill.proxy import Proxy
from outbox_lab.drill.stack import DrillStack

BREAKAGES: dict[str, Callable[[DrillStack, Deployment], None]] = {"slot-invalidated": invalidate_slot}
"""Mapping from the name of each fault with the action BREAK to its function."""
DAMAGES: dict[str, Callable[[DrillStack], None]] = {
    "kill-leader": brokers.kill_leaders,
    "disk-full-kafka": disk.fill,
    "restore-postgres": database.restore_backup,
    "promote-standby": database.promote_standby,
    "promote-with-slot": database.promote_standby_with_slot,
}
"""Mapping from the name of each fault with the action DAMAGE to its function."""
PREPARATIONS: dict[str, Callable[[DrillStack], AbstractContextManager[None]]] = {
    "kill-leader": brokers.three_brokers,
    "disk-full-kafka": disk.small_disk,
}
SLOW_DELAY_S = 0.2


def prepared(fault: Fault, drill: DrillStack) -> AbstractContextManager[None]:
    """Prepare the stack for a fault until the cell ends. Enter before the deployment. Raises NotApplicableError."""
    return PREPARATIONS[fault.name](drill) if fault.name in PREPARATIONS else nullcontext()


def inject(
    fault: Fault, components: Mapping[str, Component], drill: DrillStack, deployment: Deployment | None = None
) -> None:
    """Inject a fault, and return when its pause or delay has ended. If there is no pipeline, `deployment` is None."""
    match fault.action:
        case Action.KILL:
            kill(components[fault.component])
        case Action.PAUSE:
            pause(components[fault.component], fault.seconds)
        case Action.RESTART:
            components[fault.component].restart()
        case Action.RESET:
            drill.proxy.reset_connections()
        case Action.SLOW:
            slow_down(drill.proxy, fault.seconds)
        case Action.BREAK:
            if deployment is None:
                raise ValueError(f"fault {fault.name} needs a pipeline file")
            BREAKAGES[fault.name](drill, deployment)
        case Action.DAMAGE:
            DAMAGES[fault.name](drill)
        case Action.NONE:
            pass


def kill(component: Component) -> None:
    """Send SIGKILL to the component. The parent process of the component restarts it."""
    component.signal(signal.SIGKILL)


def pause(component: Component, seconds: float) -> None:
    """Suspend the component with SIGSTOP for `seconds`, and then continue it with SIGCONT."""
    component.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        component.signal(signal.SIGCONT)


def slow_down(proxy: Proxy, seconds: float) -> None:
    """Delay each chunk of data by SLOW_DELAY_S. The delay ends after `seconds`."""
    proxy.set_delay(SLOW_DELAY_S)
    try:
        time.sleep(seconds)
    finally:
        proxy.set_delay(0)
