"""Sweeps on a local Ray cluster of two workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import roost
from conftest import PLAN

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def undisturbed(plan: Path) -> bytes:
    """The bytes of the result without Ray."""
    alone = plan.with_name("alone.parquet")
    roost.sweep(plan, alone)
    return alone.read_bytes()


def test_the_file_is_the_same_byte_for_byte(plan: Path) -> None:
    lines: list[str] = []
    roost.sweep(plan, on="ray", progress=lines.append)
    assert len(lines) == 8
    assert plan.with_suffix(".parquet").read_bytes() == undisturbed(plan)


@ray.remote(num_cpus=0)
def workers() -> list[int]:
    """The worker processes that make runs."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                command = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(b"ray::_line"):
                found.append(int(entry))
    return found


def test_a_worker_that_is_killed_costs_only_its_runs(plan: Path) -> None:
    plan.write_text(PLAN.replace("loops=5", "loops=500"))
    killed: list[int] = []

    def kill(line: str) -> None:
        """Called when a cell is complete, which is in the middle of the sweep."""
        until = time.monotonic() + 30
        while not killed and time.monotonic() < until:
            for process in ray.get(workers.remote())[:1]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)

    roost.sweep(plan, on="ray", progress=kill)
    assert len(killed) == 1
    assert plan.with_suffix(".parquet").read_bytes() == undisturbed(plan)


def test_what_is_wrong_on_a_worker_is_told_in_its_words(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roost._roost, "version", lambda: "another")
    with pytest.raises(roost.RoostError, match="another here; install the same version everywhere"):
        roost.sweep(plan, on="ray")
