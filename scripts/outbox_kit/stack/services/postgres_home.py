"""Choose the folder and the operating system user of PostgreSQL.

PostgreSQL refuses to run as root. If root starts the stack, PostgreSQL runs as an unprivileged user. If that user
cannot access the project (for example a checkout under /root), PostgreSQL's files are stored under /var/tmp.
"""

from __future__ import annotations

import lzma
import os
import platform
import pwd
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from outbox_common.components.download import extract_tar
from outbox_events.errors import ConfigurationError
from outbox_kit.stack.errors import StackError, setup_hint
from outbox_kit.stack.layout import Layout, create_own_folder

UNPRIVILEGED_USER = "nobody"


def postgres_user() -> str | None:
    """Return the user that PostgreSQL must run as, or None if it runs as the user who starts the stack."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(UNPRIVILEGED_USER)
    except KeyError:
        message = f"PostgreSQL refuses to run as root, and user '{UNPRIVILEGED_USER}' does not exist"
        raise ConfigurationError(message, "run the stack as a user other than root") from None
    return UNPRIVILEGED_USER


def choose_home(layout: Layout, user: str | None, previous_home: Path | None) -> Path:
    """Return the folder for binaries and data.

    Prefer the previous folder if it contains data, then the project if `user` has access, then a folder in /var/tmp.
    """
    if previous_home is not None and (previous_home / "data").exists():
        return previous_home
    project_home = layout.data / "postgres"
    return project_home if user is None or can_enter(layout.data, user) else layout.external_postgres_home


def can_enter(folder: Path, user: str) -> bool:
    """Return whether a user can enter a folder. This is tested by running `cd` as that user."""
    account = pwd.getpwnam(user)
    try:
        result = subprocess.run(
            ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            capture_output=True,
            cwd="/",
            env={},
            timeout=10,
            check=False,
        )
    except PermissionError as error:  # root without the capability to change its user
        message = f"PostgreSQL refuses to run as root, and root cannot switch to '{user}' here"
        raise ConfigurationError(message, "run the stack as a user other than root") from error
    return result.returncode == 0


def create_home(home: Path, layout: Layout) -> None:
    """Create an empty folder for the binaries and the data."""
    if home == layout.external_postgres_home:
        create_own_folder(home, 0o755)
    else:
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o755)


def change_owner(path: Path, user: str | None) -> None:
    if user is not None:
        account = pwd.getpwnam(user)
        os.chown(path, account.pw_uid, account.pw_gid)


def find_archive(layout: Layout) -> Path:
    """Return the archive of binaries for this machine. Raises StackError if `make setup` has not been run."""
    folder = layout.runtime / "postgres"
    archives = sorted(folder.glob("*.txz"))
    if len(archives) > 1:
        archives = [path for path in archives if fits_machine(path.name)]
    if len(archives) != 1:
        message = f"{folder} contains {len(archives)} archives of PostgreSQL for this machine; expected one"
        raise StackError(message, f"{setup_hint()}; if archives of other versions remain, delete them")
    return archives[0]


def fits_machine(name: str) -> bool:
    """Return whether an archive is for this machine. An archive is named, for example, postgres-linux-arm_64.txz."""
    machine = "arm" if platform.machine().lower() in {"arm64", "aarch64"} else "x86"
    return sys.platform in name.lower() and machine in name.lower()


def unpack(layout: Layout, home: Path) -> None:
    """Unpack the binaries into `home`/dist, unless that folder already contains the binaries of this archive."""
    archive = find_archive(layout)
    status = archive.stat()
    marker = f"{archive.name} {status.st_size} {status.st_mtime_ns}\n"
    folder, marker_file = home / "dist", home / "dist" / ".archive"
    if marker_file.exists() and marker_file.read_text() == marker:
        return
    unfinished_folder = home / "dist.unfinished"
    for folder_to_delete in (unfinished_folder, folder):
        shutil.rmtree(folder_to_delete, ignore_errors=True)
    extract(archive, unfinished_folder)
    unfinished_folder.chmod(0o755)
    (unfinished_folder / ".archive").write_text(marker)
    unfinished_folder.rename(folder)


def extract(archive: Path, folder: Path) -> None:
    """Extract an archive. Raises StackError if the archive is damaged."""
    try:
        extract_tar(archive, folder)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise StackError(f"{archive} cannot be unpacked: {error}", f"delete it, then {setup_hint()}") from error
