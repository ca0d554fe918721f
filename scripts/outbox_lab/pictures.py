"""Record the commands of the first tutorial, and verify's page, as pictures of the documentation (`make pictures`)."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from rich.console import Console
from rich.text import Text

from outbox_kit.stack import Stack

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER, TUTORIAL = REPOSITORY / "docs" / "pictures", REPOSITORY / "docs" / "tutorial" / "existing-database.md"
MIN_COLUMNS, MAX_COLUMNS, PAGE_SIZE, TIMEOUT_S = 80, 160, "1100,260", 300
FONT_OF_THE_INTERNET = re.compile(r"@font-face \{.*?\}", re.DOTALL)
INIT = "outbox init --name shop --create-views --aggregate customer=shop.customer"
RECORDINGS = {
    "init": ["outbox init", f"{INIT} --aggregate order=shop.orders,shop.order_line"],
    "deploy": ["outbox plan", "outbox apply --yes"],
    "verify": ["outbox backfill", "outbox verify --states --html verify.html"],
    "materialize": ["outbox-materialize", "outbox-reconcile"],
}


def main() -> None:
    """Follow the tutorial in a temporary folder, and write one picture for each group of commands."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "shop"
        folder.mkdir()
        stack = Stack(folder)
        try:
            state = stack.up(print)
            (statements,) = re.findall(r"<<'SQL'\n(.*?)^SQL$", TUTORIAL.read_text(encoding="utf-8"), re.M | re.S)
            with psycopg.connect(state.postgres, autocommit=True, connect_timeout=10) as connection:
                connection.execute(statements)
            for recording, commands in RECORDINGS.items():
                record(recording, commands, folder)
            screenshot(folder / "verify.html")
        finally:
            stack.down(print, purge=True)


def record(name: str, commands: list[str], folder: Path) -> None:
    """Run the commands, and write what a terminal shows to docs/pictures/NAME.svg."""
    outputs = {f"$ {command}": output_of(command, folder) for command in commands}
    longest = max(len(line) for item in outputs.items() for text in item for line in text.splitlines())
    console = Console(record=True, width=min(max(longest, MIN_COLUMNS), MAX_COLUMNS), file=io.StringIO())
    for command, output in outputs.items():
        console.print(Text(command, style="bold green"))
        console.print(Text(output))
    path = FOLDER / f"{name}.svg"
    picture = FONT_OF_THE_INTERNET.sub("", console.export_svg(title="shop", unique_id=name))
    path.write_text(picture, encoding="utf-8")
    print(f"wrote {path}")


def output_of(command: str, folder: Path) -> str:
    """Return stdout and stderr of a command of this environment. Exit with an error if it fails."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": str(MAX_COLUMNS),
    }
    done = subprocess.run(
        command.split(),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode not in (0, 3):  # 3: the plan contains changes
        raise SystemExit(f"error: {command} exited with {done.returncode}\n{done.stdout}")
    return done.stdout


def screenshot(page: Path) -> None:
    """Write a picture of an HTML page to docs/pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("error: Chromium is not installed; run `scripts/prerequisites.sh browser`")
    target = FOLDER / f"{page.stem}-page.png"
    options = [
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--window-size={PAGE_SIZE}",
        f"--screenshot={target}",
    ]
    subprocess.run([chromium, *options, page.as_uri()], capture_output=True, timeout=TIMEOUT_S, check=True)
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
