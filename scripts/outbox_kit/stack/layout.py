"""Paths of the stack, all derived from the project root, and private files."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from outbox_kit.errors import ConfigurationError, StackError

# Special characters of the files that contain the path: class paths and plugin.path (`:` `,`), Supervisor's
# configuration (`%` `;` `#`), postgresql.conf and properties files (quotes, `\`).
FORBIDDEN = frozenset(",:;#%\"'\\\n\r\t")
# The limit of sun_path is 104 bytes on macOS, 108 on Linux; supervisord first binds PATH.<pid>.
LONGEST_SOCKET_PATH = 92


@dataclass(frozen=True)
class Layout:
    """The paths of one project's stack."""

    root: Path

    @classmethod
    def of(cls, root: Path) -> Layout:
        """Return the layout of a project. Raises ConfigurationError for a path with special characters."""
        resolved = root.resolve()
        forbidden = sorted(set(str(resolved)) & FORBIDDEN)
        if forbidden:
            message = f"the stack cannot run in {resolved}: the path contains {' '.join(map(repr, forbidden))}"
            raise ConfigurationError(message, "move the project to a path without these characters")
        return cls(resolved)

    @property
    def stack_id(self) -> str:
        """Identifies the stack among those of other checkouts on the machine."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:12]

    @property
    def runtime(self) -> Path:
        """Binaries that `make setup` resolved."""
        return self.root / "build" / "runtime"

    @property
    def home(self) -> Path:
        """Everything that the stack writes, except PostgreSQL's files when its user has no access here."""
        return self.root / "build" / "stack"

    @property
    def configuration(self) -> Path:
        """Rendered configuration; private, because it contains passwords."""
        return self.home / "conf"

    @property
    def data(self) -> Path:
        """Data, which `down` retains."""
        return self.home / "data"

    @property
    def logs(self) -> Path:
        """One file per service, and supervisor.log."""
        return self.home / "logs"

    @property
    def secrets(self) -> Path:
        """The only folder that Connect's file provider may read."""
        return self.home / "secrets"

    @property
    def state_file(self) -> Path:
        """Ports, addresses and passwords; mode 0600."""
        return self.home / "state.json"

    @property
    def lock_file(self) -> Path:
        """Outside `home`, so that a purge does not delete its own lock."""
        return self.root / "build" / "stack.lock"

    @property
    def supervisor_pid_file(self) -> Path:
        """Written by supervisord."""
        return self.home / "supervisord.pid"

    @property
    def outside(self) -> Path:
        """PostgreSQL's folder when its unprivileged user has no access to the project."""
        return Path("/var/tmp") / f"outbox-kit-{self.stack_id}"  # noqa: S108 - see private_folder()

    @property
    def socket(self) -> Path:
        """Supervisor's control socket."""
        inside = self.home / "supervisor.sock"
        if len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH:
            return inside
        return Path(tempfile.gettempdir()) / f"outbox-kit-{self.stack_id}-{os.geteuid()}" / "supervisor.sock"

    def log(self, name: str) -> Path:
        """Return the log file of a service, or of `supervisor`."""
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Create the folders; PostgreSQL's user can read `home`, but no folder with secrets."""
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
            private_folder(self.socket.parent, 0o700)


def private_folder(path: Path, mode: int) -> None:
    """Create a folder under a world-writable one. Raises StackError when another user created it first."""
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        status = path.lstat()
        if path.is_symlink() or not path.is_dir() or status.st_uid != os.geteuid():
            message = f"{path} exists and belongs to uid {status.st_uid}"
            raise StackError(message, f"remove {path}, or have its owner remove it") from None
    path.chmod(mode)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at any moment."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
