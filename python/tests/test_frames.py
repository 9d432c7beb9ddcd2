"""The contents of frames, and that nothing is copied."""

from __future__ import annotations

import json

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import roost
from conftest import command

SMALL = {"workload": "hackbench:groups=1,loops=5", "machine": "2n2l4c"}


@pytest.fixture(scope="module")
def runs() -> roost.Runs:
    return roost.compare(["fair@7.2", "mine=fair@7.2+no-sis-util"], repeat=3, **SMALL)


def test_a_row_is_a_run_with_every_metric_and_counter(runs: roost.Runs) -> None:
    frame = runs.to_pandas()
    assert len(frame) == len(runs) == 6
    assert list(frame["scheduler"]) == ["fair@7.2"] * 3 + ["mine"] * 3
    assert list(frame["seed"]) == [1, 2, 3] * 2
    assert (frame["Time"] > 0).all() and (frame["wakeups"] > 0).all()
    kinds = {field.metadata[b"kind"] for field in runs.to_arrow().schema if field.metadata}
    assert {b"metric", b"counter", b"place"} <= kinds


def test_figures_are_those_of_the_command(runs: roost.Runs) -> None:
    printed = command(
        "compare", "--machine", "2n2l4c", "--workload", SMALL["workload"], "--repeat", "3", "--format", "json",
        "fair@7.2", "mine=fair@7.2+no-sis-util",
    )
    compared = json.loads(printed.stdout)
    frame = runs.to_pandas()
    samples = [sample for scheduler in compared["results"][0]["samples"] for sample in scheduler]
    assert list(frame["Time"]) == samples
    for row, run in zip(frame.to_dict("records"), compared["runs"]):
        assert {name: row[name] for name in run["counters"]} == run["counters"]
    change = runs.changes().to_pandas()
    assert change["change_pct"].iloc[1] == compared["results"][0]["change_pct"][1]


def address(column: pa.ChunkedArray) -> int:
    return column.chunk(0).buffers()[1].address


def test_arrow_pandas_and_polars_share_one_memory(runs: roost.Runs) -> None:
    arrow = runs.to_arrow()
    here = address(arrow["Time"])
    assert address(runs.to_arrow()["Time"]) == here, "each call gives the same memory"
    assert address(pa.table(runs)["Time"]) == here, "through the PyCapsule interface"
    assert address(runs.to_pandas()["Time"].array.__arrow_array__()) == here
    assert address(runs.to_polars().to_arrow()["Time"]) == here
    assert address(polars.DataFrame(runs).to_arrow()["Time"]) == here


def test_frames_outlive_what_made_them() -> None:
    frame = roost.compare("fair@7.2", repeat=1, **SMALL).to_polars()
    assert frame["Time"].item() > 0


def test_types_are_kept(runs: roost.Runs) -> None:
    frame = runs.to_pandas()
    assert isinstance(frame["Time"].dtype, pandas.ArrowDtype)
    assert runs.to_polars().schema["seed"] == polars.UInt64
    assert runs.to_polars().schema["llc_run_ns"] == polars.List(polars.UInt64)


def test_lists_of_machines_and_workloads_are_multiplied() -> None:
    runs = roost.compare(
        "fair@7.2", workload="hackbench:groups=1,2,loops=1", machine=["2n2l4c", "1s2n4l2c"], repeat=1, seed=7
    )
    frame = runs.to_polars()
    assert frame.select("machine", "workload").n_unique() == 4
    assert frame["seed"].unique().to_list() == [7]


def test_changes_are_against_the_first_scheduler(runs: roost.Runs) -> None:
    changes = runs.changes().to_pandas()
    base, mine = changes.iloc[0], changes.iloc[1]
    assert (base["scheduler"], mine["scheduler"]) == ("fair@7.2", "mine")
    assert pandas.isna(base["change_pct"])
    assert mine["change_pct"] == pytest.approx(100 * (base["mean"] - mine["mean"]) / base["mean"])


def test_a_machine_is_a_row_a_cpu() -> None:
    cpus = roost.machine("zen3-2s").to_pandas()
    printed = command("machine", "zen3-2s", "--format", "csv").stdout.splitlines()
    assert len(cpus) == len(printed) - 1
    columns = printed[0].split(",")
    rows = [",".join(str(row[column]) for column in columns) for row in cpus.to_dict("records")]
    assert rows == printed[1:]
    assert (cpus["llc_bytes"] > 0).all()
    assert roost.machine("zen3-2s").to_arrow().schema.metadata[b"roost.machine"] == b"zen3-2s"
    assert len(roost.machine()) > 0, "this machine"


def test_the_file_of_a_sweep_is_what_the_call_returns(plan) -> None:
    runs = roost.sweep(plan)
    table = pq.read_table(plan.with_suffix(".parquet"))
    assert table.equals(runs.to_arrow())
    assert table.schema.metadata[b"roost.plan"].decode() == plan.read_text()
