"""Inject faults that replace the database: restore a backup, or promote a standby."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

from outbox_lab.drill.faults.base_backup import take_base_backup
from outbox_lab.drill.faults.standby import Standby
from outbox_lab.drill.stack import DrillStack

# Writers continue for this time after the backup has been taken, or after the standby has become synchronous.
WRITING_S = 5


def restore_backup(drill: DrillStack) -> None:
    """Restore a backup that is WRITING_S old. This undoes all commits after the backup and loses all slots."""
    backup = drill.state.postgres_home / "backup"
    take_base_backup(drill, backup)
    time.sleep(WRITING_S)
    drill.services["postgres"].stop()
    _replace_data(drill, backup)


def promote_standby(drill: DrillStack) -> None:
    """Kill the server, and replace it with a synchronous standby that does not have a copy of the slot."""
    _promote(drill, Standby(drill, keeps_slots=False))


def promote_standby_with_slot(drill: DrillStack) -> None:
    """Kill the server, and replace it with a synchronous standby that synchronizes the failover slots."""
    _promote(drill, Standby(drill, keeps_slots=True))


def _promote(drill: DrillStack, standby: Standby) -> None:
    try:
        with standby.running():
            time.sleep(WRITING_S)
            _kill_for_good(drill)
            standby.promote()
    except BaseException:
        if not _data(drill).exists():  # the next cell needs a server
            _replace_data(drill, _replaced(drill))
        standby.abandon()
        raise
    _replace_data(drill, standby.folder)


def _kill_for_good(drill: DrillStack) -> None:
    """Move the server's data folder away, so that Supervisor cannot restart the server. Then kill the server."""
    postgres, data = drill.services["postgres"], _data(drill)
    data.rename(_replaced(drill))
    postgres.signal(signal.SIGKILL)
    postgres.stop()


def _replace_data(drill: DrillStack, folder: Path) -> None:
    """Start the stopped server with the data in `folder`. Return when the server and the registry respond."""
    replaced = _replaced(drill)
    if _data(drill).exists():
        _data(drill).rename(replaced)
    folder.rename(_data(drill))
    drill.services["postgres"].start()
    shutil.rmtree(replaced, ignore_errors=True)
    drill.connect_to_database().close()
    drill.wait_for_registry()


def _data(drill: DrillStack) -> Path:
    return drill.state.postgres_home / "data"


def _replaced(drill: DrillStack) -> Path:
    return drill.state.postgres_home / "data.replaced"
