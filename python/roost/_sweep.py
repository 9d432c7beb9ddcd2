"""Comparisons and sweeps."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from . import _roost
from ._roost import RoostError
from ._table import Frame, Runs

Names = str | Sequence[str]
#: A plan: a file, or a mapping with the same names as in such a file.
PlanLike = str | PathLike[str] | Mapping[str, Any]
#: Called with a line of text when all runs of a machine, workload and scheduler have ended.
Progress = Callable[[str], object]


def compare(
    schedulers: Names,
    *,
    workload: Names,
    machine: Names = "zen3-2s",
    repeat: int = 5,
    seed: int = 1,
    duration: str | None = None,
    start: Literal["running", "boot"] = "running",
    quiet: bool = False,
    jobs: int | None = None,
) -> Runs:
    """Runs workloads under several schedulers. The result has one row per run.

    The arguments are those of ``roost compare``: schedulers with labels and switches (``"mine=fair@7.2+no-sis-util"``),
    parameters with lists (``"hackbench:groups=1,4"``), durations with units (``"500ms"``). ``repeat`` is the number of
    seeds, starting with ``seed``. ``jobs`` is the number of runs at the same time (default: one per core).
    """
    if repeat < 1:
        raise RoostError(f"repeat: {repeat}: no run; give at least 1")
    if seed < 0:
        raise RoostError(f"seed: {seed}: below 0; give 0 or more")
    plan: dict[str, Any] = {
        "machines": _list(machine),
        "workloads": _list(workload),
        "schedulers": _list(schedulers),
        "seeds": list(range(seed, seed + repeat)),
        "start": start,
        "quiet": quiet,
    }
    if duration is not None:
        plan["duration"] = duration
    return Runs(_noted(_roost.Plan("", _json(plan), True)).run(_jobs(jobs)))


def sweep(
    plan: PlanLike,
    output: str | PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    on: Literal["ray"] | None = None,
    progress: Progress | None = None,
) -> Runs:
    """Makes the runs of a plan into one Parquet file, and reads it.

    ``plan`` is a plan file of ``roost sweep``, or a mapping with the same names. ``output`` is the file to write; by
    default, the plan's file with the ending ``.parquet``. Finished runs are kept in a file next to it: after an
    interrupt, the same call continues. ``on="ray"`` makes the runs on the Ray cluster of this process, or starts one
    here. The resulting file is the same, byte for byte.
    """
    name, text, is_json = _text(plan)
    if output is None:
        if is_json:
            raise RoostError("output: a plan that is not a file needs a name for its result; give output=FILE")
        output = Path(name).with_suffix(".parquet")
    if on == "ray":
        from ._ray import sweep_on_ray

        sweep_on_ray(name, text, is_json, Path(output), progress)
    elif on is not None:
        raise RoostError(f"on: {on!r}: unknown; give on=\"ray\", or leave it out")
    else:
        _roost.Sweep(_noted(_roost.Plan(name, text, is_json)), output).run(_jobs(jobs), progress)
    return read(output)


def read(file: str | PathLike[str]) -> Runs:
    """Reads the result of a sweep."""
    return Runs(_roost.read(file))


def machine(name: str | None = None) -> Frame:
    """The CPUs of a machine, one per row. ``name`` is a preset, a file or a synthetic string, as for ``roost machine``;
    the default is this machine. The machine's name is in the metadata (``roost.machine``)."""
    return Frame(_roost.machine(name))


def _text(plan: PlanLike) -> tuple[str, str, bool]:
    """The plan's name, its text, and whether the text is JSON."""
    if isinstance(plan, Mapping):
        return "plan", _json(plan), True
    name = os.fspath(plan)
    try:
        return name, Path(name).read_text(encoding="utf-8"), False
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RoostError(f"{name}: cannot be read: {why}") from None


def _json(plan: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(plan))
    except (TypeError, ValueError) as error:
        raise RoostError(f"plan: {error}; give texts, whole numbers and lists of them") from None


def _list(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _jobs(jobs: int | None) -> int:
    """The number of jobs; 0 means one per core."""
    if jobs is not None and not 1 <= jobs <= 1024:
        raise RoostError(f"jobs: {jobs} is not in 1..=1024")
    return jobs or 0


def _noted(plan: _roost.Plan) -> _roost.Plan:
    for note in plan.notes():
        warnings.warn(note, stacklevel=3)
    return plan
