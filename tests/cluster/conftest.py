"""Spark cluster for the tests: a master and two workers as processes, and drivers with only the required packages."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.integration.conftest import deploy_once, make_pipeline

from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.ports import free_port
from outbox_spark.spark_submit_files import ZIP_NAME, build

__all__ = ["deploy_once", "make_pipeline"]  # fixtures

REPOSITORY = Path(__file__).resolve().parents[2]
JARS = sorted((REPOSITORY / "build/runtime/spark/jars").glob("*.jar"))
HOST = "127.0.0.1"
START_SECONDS = 60
SUBMIT_SECONDS = 280
# Modules of the packages in requirements/spark-driver.txt, which contain neither outbox_kit nor fastavro.
DRIVER_MODULES = (
    "certifi", "charset_normalizer", "confluent_kafka", "confluent_kafka.libs", "idna", "msgspec", "psycopg",
    "psycopg_binary", "psycopg_binary.libs", "requests", "typing_extensions.py", "urllib3",
)  # fmt: skip


def spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@dataclass
class Cluster:
    """Processes of the cluster, and the folder with the Python environments of its drivers and executors."""

    folder: Path
    port: int
    web_port: int
    driver_port: int
    """Port of the REST API of the newest driver."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def start(self, name: str, *command: str) -> None:
        """Start a Spark daemon from the jars of pyspark."""
        environment = {**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": HOST}
        environment["SPARK_DAEMON_MEMORY"] = "256m"
        # The daemon starts executors, which must not inherit the Python path of this process.
        environment.pop("PYTHONPATH", None)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(spark_home() / "bin/spark-class"), *command], stdout=log, stderr=log, env=environment
            )

    def start_worker(self, name: str) -> None:
        main = "org.apache.spark.deploy.worker.Worker"
        size = ["--cores", "1", "--memory", "1g"]
        self.start(name, main, "--host", HOST, "--webui-port", "0", "-d", str(self.folder / name), *size, self.url)

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL, as when a machine fails."""
        self.processes[name].kill()
        self.processes[name].wait(timeout=START_SECONDS)

    def kill_executor(self, worker: str) -> None:
        """Kill the executor of a worker, which then starts another one."""
        pid = self.processes[worker].pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    def wait_for_workers(self, count: int) -> None:
        def poll() -> Observation[bool]:
            try:
                state = requests.get(f"http://{HOST}:{self.web_port}/json/", timeout=5).json()
            except requests.RequestException as error:
                return Observation(None, type(error).__name__)
            alive = sum(worker["state"] == "ALIVE" for worker in state["workers"])
            return Observation(True if alive == count else None, f"{alive} workers")

        wait_for(f"{count} workers", poll, seconds=START_SECONDS)

    def driver_state(self, resource: str) -> list[dict[str, Any]]:
        """Return a resource of the newest driver's REST API; nothing if the driver is starting or has ended."""
        base = f"http://{HOST}:{self.driver_port}/api/v1/applications"
        try:
            applications = requests.get(base, timeout=5).json()
            response = requests.get(f"{base}/{applications[0]['id']}/{resource}", timeout=5)
            return list(response.json())
        except (requests.RequestException, IndexError):
            return []

    def submit(self, *options: str, secrets: Mapping[str, str]) -> Driver:
        """Run spark-submit as in docs/scheduling.md, with separate Python environments for driver and executors."""
        configuration = {
            "spark.pyspark.driver.python": str(self.folder / "driver/bin/python"),
            "spark.pyspark.python": str(self.folder / "executor/bin/python"),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.sql.shuffle.partitions": "4",
            # The default of many clusters. Unlike Java's serializer, it does not support every class.
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.ui.port": str(self.driver_port),
        }
        dist = self.folder / "dist"
        command = [str(spark_home() / "bin/spark-submit"), "--master", self.url, "--driver-memory", "1g"]
        command += ["--executor-memory", "1g", "--executor-cores", "1", "--jars", ",".join(map(str, JARS))]
        command += ["--py-files", str(dist / ZIP_NAME)]
        for name, value in configuration.items():
            command += ["--conf", f"{name}={value}"]
        environment = {**os.environ, "SPARK_HOME": str(spark_home()), "PYTHONPATH": str(self.folder / "packages")}
        command += [str(dist / "materialize.py"), *options]
        out, err = self.folder / "driver.out", self.folder / "driver.err"
        # Output goes to files, because a full pipe without a reader would block the driver.
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command, cwd=self.folder, env={**environment, **secrets}, stdout=stdout, stderr=stderr
            )
        self.processes[f"driver {process.pid}"] = process
        return Driver(process, out, err)


@dataclass
class Driver:
    """A running spark-submit."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    @property
    def output(self) -> str:
        return f"{self.out.read_text()[-2000:]}\n--- stderr\n{self.err.read_text()[-6000:]}"

    def results(self) -> dict[str, dict[str, object]]:
        """Wait until the driver ends. Return the results by target."""
        code = self.process.wait(timeout=SUBMIT_SECONDS)
        assert code == 0, self.output
        # With spark-submit, stdout contains both messages and results.
        lines = self.out.read_text().splitlines()
        result = json.loads("\n".join(lines[lines.index("{") :]))
        return {entry["target"]: entry for entry in result["materializations"]}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("driver", "executor"):
        venv.create(folder / name, symlinks=True, with_pip=False)
    (folder / "packages").mkdir()
    site_packages = spark_home().parent
    for name in DRIVER_MODULES:
        if (site_packages / name).exists():
            (folder / "packages" / name).symlink_to(site_packages / name)
    build(folder / "dist")
    port = free_port([])
    web_port = free_port([port])
    created = Cluster(folder, port, web_port, free_port([port, web_port]))
    try:
        main = "org.apache.spark.deploy.master.Master"
        created.start("master", main, "--host", HOST, "--port", str(port), "--webui-port", str(created.web_port))
        created.start_worker("worker-1")
        created.start_worker("worker-2")
        created.wait_for_workers(2)
        yield created
    finally:
        for process in reversed(created.processes.values()):
            process.terminate()
        for process in created.processes.values():
            process.wait(timeout=START_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
