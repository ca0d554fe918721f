"""Derive the stack's paths from the project root, and create the stack's folders."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from outbox_common.components.folders import CHECKOUT, is_checkout, runtime_folder
from outbox_events.errors import ConfigurationError
from outbox_kit.stack.errors import StackError

# Characters that have a special meaning in the files and options that contain the path: class paths and plugin.path
# (`:` `,`), Supervisor's configuration (`%` `;` `#`), postgresql.conf and properties files (quotes, `\`).
FORBIDDEN_CHARACTERS = frozenset(",:;#%\"'\\\n\r\t")
# sun_path is limited to 104 bytes on macOS and 108 on Linux, and supervisord appends `.<pid>` to the path.
MAX_SOCKET_PATH_BYTES = 92
SECRETS_FOLDER = "secrets"
"""Name of the folder, next to the state file, of the properties files with secrets that connectors can refer to."""

PACKAGED_TRANSFORMS = Path(__file__).resolve().parents[1] / "plugins"


class Layout:
    """Paths of one project's stack. Raises ConfigurationError if the root path contains special characters."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.runtime = runtime_folder()
        """Servers and their plugins, from `make setup` or downloaded by `up`."""
        self.transforms = CHECKOUT / "smt" / "target" / "plugin" if is_checkout() else PACKAGED_TRANSFORMS
        """Connect plugins of outbox-kit."""
        refuse_characters(self.root, "move the project")
        refuse_characters(self.runtime, "set XDG_CACHE_HOME")
        refuse_characters(self.transforms, "install outbox-kit")
        self.stack_id = hashlib.sha256(str(self.root).encode()).hexdigest()[:12]
        """Distinguishes this stack from the stacks of other checkouts on the same machine."""
        self.home = self.root / "build" / "stack"
        """Folder of the stack's files. PostgreSQL's files are elsewhere if its user cannot access this folder."""
        self.configuration = self.home / "conf"
        """Rendered configuration files. The folder is private because these files contain passwords."""
        self.data = self.home / "data"
        """Data of the services. `outbox stack down` retains it."""
        self.logs = self.home / "logs"
        """One log file per service, and supervisor.log."""
        self.secrets = self.home / SECRETS_FOLDER
        """The only folder that Connect's file provider may read."""
        self.state_file = self.home / "state.json"
        """Ports, addresses and passwords, in a file with mode 0600."""
        self.lock_file = self.root / "build" / "stack.lock"
        """Lock file. It is outside `home`, because a purge must not delete it while it is locked."""
        self.supervisor_pid_file = self.home / "supervisord.pid"
        """File to which supervisord writes its process id."""
        self.external_postgres_home = Path("/var/tmp") / f"outbox-kit-{self.stack_id}"  # noqa: S108 - see create_own_folder()
        """PostgreSQL's folder if PostgreSQL's user cannot access the project."""

    @property
    def socket(self) -> Path:
        path = self.home / "supervisor.sock"
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
            return path
        return Path(tempfile.gettempdir()) / f"outbox-kit-{self.stack_id}-{os.geteuid()}" / "supervisor.sock"

    def log(self, name: str) -> Path:
        """Return the log file of a service, or of `supervisor`."""
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Create the folders. PostgreSQL's user can read `home`, but not the folders that contain secrets."""
        for folder, mode in (
            (self.home, 0o755),
            (self.logs, 0o755),
            (self.data, 0o755),
            (self.configuration, 0o700),
            (self.secrets, 0o700),
        ):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        if self.socket.parent != self.home:
            create_own_folder(self.socket.parent, 0o700)


def refuse_characters(path: Path, remedy: str) -> None:
    """Raise ConfigurationError if the path contains a character with a special meaning."""
    forbidden = sorted(set(str(path)) & FORBIDDEN_CHARACTERS)
    if forbidden:
        message = f"the stack cannot use {path}: the path contains {' '.join(map(repr, forbidden))}"
        raise ConfigurationError(message, f"{remedy} to a path without these characters")


def create_own_folder(path: Path, mode: int) -> None:
    """Create a folder in a world-writable folder. Raises StackError if `path` exists and is not this user's folder."""
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        status = path.lstat()
        if path.is_symlink() or not path.is_dir() or status.st_uid != os.geteuid():
            message = f"{path} is a link or a file, or belongs to another user (uid {status.st_uid})"
            raise StackError(message, f"remove {path}, or have its owner remove it") from None
    path.chmod(mode)
