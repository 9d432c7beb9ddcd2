"""Studies: what they find, and that the winner is checked on other seeds, workloads and machines."""

from __future__ import annotations

from pathlib import Path

import pytest

import roost

pytest.importorskip("optuna")


def small(**changes) -> roost.Tuned:
    arguments = {
        "workload": "hackbench:groups=2,loops=20",
        "machine": "2n2l4c",
        "trials": 6,
        "seeds": 3,
        "check_seeds": 4,
        "check_workload": "hackbench:groups=1,loops=20",
        "elsewhere": "1s2n4l2c",
    }
    return roost.tune({"base-slice-ns": (100_000, 100_000_000)}, **(arguments | changes))


def test_a_study_is_checked_on_other_seeds_workloads_and_machines() -> None:
    lines: list[str] = []
    tuned = small(progress=lines.append)
    assert len(lines) == 6 and len(tuned.study.trials) == 6
    check = tuned.check.to_polars()
    assert check["workload"].n_unique() == 2 and check["machine"].unique().to_list() == ["2n2l4c"]
    assert min(check["seed"]) > 3, "none that it was tuned on"
    assert tuned.elsewhere is not None
    assert tuned.elsewhere.to_polars()["machine"].unique().to_list() == ["1s2n4l2c"]
    if tuned.numbers:
        assert tuned.scheduler == f"fair@7.2+base-slice-ns={tuned.numbers['base-slice-ns']}"
        assert check["scheduler"].unique(maintain_order=True).to_list() == ["default", "tuned"]


def test_a_study_is_the_same_again() -> None:
    values = [[trial.value for trial in small(trials=4).study.trials] for _ in range(2)]
    assert values[0] == values[1]


def test_a_trial_that_is_clearly_worse_ends_early() -> None:
    tuned = small(trials=12, seeds=12, check_seeds=1, elsewhere=())
    ended = [trial.user_attrs.get("ended_after_seeds") for trial in tuned.study.trials]
    assert any(seeds is not None and seeds < 12 for seeds in ended), ended


def test_settings_of_the_live_scheduler_become_a_file(tmp_path: Path) -> None:
    tuned = roost.tune(
        {"slice-us": (500, 20_000)},
        scheduler="roost",
        workload="hackbench:groups=1,loops=5",
        machine="2n2l4c",
        trials=4,
        seeds=2,
        check_seeds=1,
    )
    file = tmp_path / "tuned.toml"
    tuned.write(file)
    for name, value in tuned.numbers.items():
        assert f"{name} = {value}\n" in file.read_text()
    runs = roost.compare(f"roost+config={file}", workload="hackbench:groups=1,loops=5", machine="2n2l4c", repeat=1)
    assert len(runs) == 1
    with pytest.raises(roost.RoostError, match="numbers of the kernel are not settings"):
        small(trials=1, seeds=1, check_seeds=1, elsewhere=()).write(file)
