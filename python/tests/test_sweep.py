"""Sweeps: the same bytes as the command, Ctrl-C, threads, and one clear error for each mistake."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import roost
from conftest import PLAN, command


def test_a_sweep_writes_the_rows_of_the_command(plan: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    here = roost.sweep(plan, progress=lines.append)
    assert len(lines) == 8 and all("3 runs, Time" in line for line in lines)
    there = tmp_path / "command.parquet"
    printed = command("sweep", str(plan), "--output", str(there))
    assert printed.returncode == 0, printed.stderr
    assert roost.read(there).to_arrow().equals(here.to_arrow())


def test_a_plan_may_be_a_mapping(plan: Path, tmp_path: Path) -> None:
    mapping = {
        "machines": ["2n2l4c", "1s2n4l2c"],
        "workloads": "hackbench:groups=1,2,loops=5",
        "schedulers": ["base=fair@7.2", "mine=fair@7.2+no-sis-util"],
        "seeds": 3,
    }
    runs = roost.sweep(mapping, tmp_path / "mapping.parquet")
    assert runs.to_arrow().equals(roost.sweep(plan).to_arrow())


def test_a_result_is_not_made_again(plan: Path) -> None:
    roost.sweep(plan)
    begun = time.monotonic()
    roost.sweep(plan, progress=lambda line: pytest.fail(line))
    assert time.monotonic() - begun < 5
    plan.write_text(PLAN.replace("seeds = 3", "seeds = 2"))
    with pytest.raises(roost.RoostError, match="the file exists"):
        roost.sweep(plan)


def test_runs_release_the_lock() -> None:
    counted = 0
    over = threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begun = time.monotonic()
    roost.compare("fair@7.2", workload="hackbench:groups=4,loops=100", machine="zen3-2s", repeat=4)
    elapsed = time.monotonic() - begun
    over.set()
    thread.join()
    # At least ten times per second, even on a fully busy machine.
    assert counted > 10 * elapsed, f"{counted} in {elapsed} s"


INTERRUPTED = """
import sys, roost
roost.sweep(sys.argv[1], progress=lambda line: print(line, flush=True))
"""


def test_ctrl_c_ends_a_sweep_and_the_same_call_goes_on(plan: Path) -> None:
    plan.write_text(PLAN.replace("loops=5", "loops=2000"))
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(plan)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    journal = plan.with_suffix(".parquet.journal")
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in told
    kept = journal.read_bytes().count(b"\n")
    assert kept >= 3 and not plan.with_suffix(".parquet").exists()
    sweep = roost._roost.Sweep(roost._roost.Plan(str(plan), plan.read_text(), False), plan.with_suffix(".parquet"))
    assert len(sweep.missing()) == 24 - (kept - 1)


SMALL = {"workload": "hackbench:groups=1", "machine": "2n2l4c"}
BAD = [
    (lambda: roost.compare("fair@7.9", **SMALL), "unknown version '7.9'"),
    (lambda: roost.compare("fair@7.2+cling-degre=3", **SMALL), "did you mean cling-degree"),
    (lambda: roost.compare("fair@7.2", workload="hackbnech"), "did you mean hackbench"),
    (lambda: roost.compare("fair@7.2", workload="hackbench:groups=0"), "'0' is not a whole number in range"),
    (lambda: roost.compare("fair@7.2", workload="hackbench", machine="zen3-s2"), "did you mean zen3-2s"),
    (lambda: roost.compare(["a=fair@7.2", "a=fair@5.19"], **SMALL), "a: labels two rows"),
    (lambda: roost.compare([], **SMALL), "an empty list"),
    (lambda: roost.compare("fair@7.2", repeat=0, **SMALL), "repeat: 0: no run"),
    (lambda: roost.compare("fair@7.2", seed=-1, **SMALL), "seed: -1: below 0"),
    (lambda: roost.compare("fair@7.2", jobs=0, **SMALL), "jobs: 0 is not in 1..=1024"),
    (lambda: roost.compare("fair@7.2", duration="soon", **SMALL), "write for example"),
    (lambda: roost.compare("fair@7.2", start="cold", **SMALL), "unknown variant `cold`"),
    (lambda: roost.compare("fair@7.2", workload="tbench:clients=4", machine="2n2l4c", duration="10us"), "tbench"),
    (lambda: roost.machine("zen9"), "zen9"),
    (lambda: roost.read("none.parquet"), "none.parquet: cannot be read"),
    (lambda: roost.sweep("none.toml"), "none.toml: cannot be read: No such file"),
    (lambda: roost.sweep({"machines": "2n2l4c"}), "needs a name for its result; give output=FILE"),
    (lambda: roost.sweep({"machnes": "2n2l4c"}, "x.parquet"), "unknown field `machnes`"),
    (lambda: roost.sweep({"seeds": {1}}, "x.parquet"), "give texts, whole numbers and lists"),
    (lambda: roost.sweep("none.toml", on="dask"), "none.toml: cannot be read"),
    (lambda: roost.sweep({"seeds": 1}, "x.parquet", on="dask"), "on: 'dask': unknown; give on=\"ray\""),
    (lambda: roost.tune({}, **SMALL), "numbers: none to tune"),
    (lambda: roost.tune({"nr-migrate": (8, 8)}, **SMALL), "nr-migrate: no range from 8 to 8"),
    (lambda: roost.tune({"nr-migrat": (8, 9)}, seeds=1, trials=1, **SMALL), "did you mean nr-migrate"),
    (lambda: roost.tune({"nr-migrate": (8, 9)}, metric="Tme", seeds=1, trials=1, **SMALL), "metrics are Time"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_is_wrong_is_one_clear_error(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call, wanted = BAD[number]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(roost.RoostError) as told:
        call()
    assert wanted in str(told.value) and "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_words_are_those_of_the_command() -> None:
    printed = command("compare", "--machine", "2n2l4c", "--workload", "hackbench:groups=x", "fair@7.2")
    with pytest.raises(roost.RoostError) as told:
        roost.compare("fair@7.2", workload="hackbench:groups=x", machine="2n2l4c")
    assert str(told.value) == printed.stderr.strip().removeprefix("roost: ")
