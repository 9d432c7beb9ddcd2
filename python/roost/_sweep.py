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
#: A plan: a file, or what such a file says, with the same names.
PlanLike = str | PathLike[str] | Mapping[str, Any]
#: Is told a line of each machine, workload and scheduler whose runs have ended.
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
    """Runs workloads under several schedulers; a row a run.

    The arguments are those of ``roost compare``: schedulers with labels and switches (``"mine=fair@7.2+no-sis-util"``),
    parameters with lists (``"hackbench:groups=1,4"``), durations with units (``"500ms"``). ``repeat`` seeds from ``seed``
    on are run, ``jobs`` at the same time (one a core).
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

    ``plan`` is a file as ``roost sweep`` takes, or a mapping with the same names. ``output`` is the file to write: by
    default that of the plan with the ending ``.parquet``. Runs that have ended are kept beside it: after an interrupt the
    same call goes on. ``on="ray"`` makes the runs on the Ray cluster that this process is connected to, or starts one
    here; the file is the same, byte for byte.
    """
    name, text, is_json = _text(plan)
    if output is None:
        if is_json:
            raise RoostError("output: a plan without a file gives its result no name; give output=FILE")
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
    """The CPUs of a machine, a row each: a preset, a file or a synthetic string as ``roost machine`` takes; by default
    the machine that this runs on. Its name is in the metadata (``roost.machine``)."""
    return Frame(_roost.machine(name))


def _text(plan: PlanLike) -> tuple[str, str, bool]:
    """What the plan is called, its text, and whether that is JSON."""
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
    """0: one a core."""
    if jobs is not None and not 1 <= jobs <= 1024:
        raise RoostError(f"jobs: {jobs} is not in 1..=1024")
    return jobs or 0


def _noted(plan: _roost.Plan) -> _roost.Plan:
    for note in plan.notes():
        warnings.warn(note, stacklevel=3)
    return plan
