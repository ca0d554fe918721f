"""Where the stack keeps its files, all of it derived from the project root."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from outbox_kit.errors import ConfigurationError, StackError

# Each of these means something in a file that the path is written into: class paths and plugin.path
# (`:` `,`), Supervisor's configuration (`%` `;` `#`), postgresql.conf and properties files (quotes, `\`).
FORBIDDEN = frozenset(",:;#%\"'\\\n\r\t")
# sun_path holds 104 bytes on macOS, 108 on Linux; supervisord first binds PATH.<pid>, then renames it.
LONGEST_SOCKET_PATH = 92


@dataclass(frozen=True)
class Layout:
    """The paths of one project's stack."""

    root: Path

    @classmethod
    def of(cls, root: Path) -> Layout:
        """Return the layout of a project; ConfigurationError when the parts cannot live in such a path."""
        resolved = root.resolve()
        bad = sorted(set(str(resolved)) & FORBIDDEN)
        if bad:
            message = f"the stack cannot run in {resolved}: the path contains {' '.join(map(repr, bad))}"
            raise ConfigurationError(message, "move the project to a path without these characters")
        return cls(resolved)

    @property
    def stack_id(self) -> str:
        """Tells the stacks of several checkouts on one machine apart."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:12]

    @property
    def runtime(self) -> Path:
        """What `make setup` resolved."""
        return self.root / "build" / "runtime"

    @property
    def home(self) -> Path:
        """Everything the stack writes, except PostgreSQL's files when its user cannot get here."""
        return self.root / "build" / "stack"

    @property
    def configuration(self) -> Path:
        """Rendered configuration; private, because some of it holds passwords."""
        return self.home / "conf"

    @property
    def data(self) -> Path:
        """What survives `down`."""
        return self.home / "data"

    @property
    def logs(self) -> Path:
        """One file per part, and supervisor.log."""
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
        """Beside `home`, so that a purge does not delete the lock that it holds."""
        return self.root / "build" / "stack.lock"

    @property
    def supervisor_pid_file(self) -> Path:
        """Written by supervisord."""
        return self.home / "supervisord.pid"

    @property
    def outside(self) -> Path:
        """Where PostgreSQL lives when its unprivileged user cannot reach the project folder."""
        return Path("/var/tmp") / f"outbox-kit-{self.stack_id}"  # noqa: S108 - see private_folder()

    @property
    def socket(self) -> Path:
        """Supervisor's control socket."""
        inside = self.home / "supervisor.sock"
        if len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH:
            return inside
        return Path(tempfile.gettempdir()) / f"outbox-kit-{self.stack_id}-{os.geteuid()}" / "supervisor.sock"

    def log(self, name: str) -> Path:
        """Return the log file of a part, or of `supervisor`."""
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make the folders. `home` is open to PostgreSQL's user; what holds secrets is not."""
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
    """Make a folder under a world-writable one, and refuse one that somebody else put there.

    The name can be guessed, so another user could have made it first.
    """
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        seen = path.lstat()
        if path.is_symlink() or not path.is_dir() or seen.st_uid != os.geteuid():
            message = f"{path} exists and belongs to somebody else (uid {seen.st_uid})"
            raise StackError(message, f"remove {path}, or ask its owner to") from None
    path.chmod(mode)
