"""Helpers of the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: 2 machines, 2 workloads, 2 schedulers, 3 seeds: 24 runs of a few milliseconds.
PLAN = """
machines = ["2n2l4c", "1s2n4l2c"]
workloads = "hackbench:groups=1,2,loops=5"
schedulers = ["base=fair@7.2", "mine=fair@7.2+no-sis-util"]
seeds = 3
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan in a folder of its own."""
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    return file


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the program ``roost`` that ``make test`` or ``cargo build`` made. Skips the test if it is missing."""
    places = [ROOT / "target" / profile / "roost" for profile in ("checked", "release", "debug")]
    program = next((place for place in places if place.exists()), None)
    if program is None:
        pytest.skip("the program roost is not built")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
