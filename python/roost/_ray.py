"""Sweeps on a Ray cluster. Ray decides where runs are made, and repeats runs of lost workers."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

from . import _roost
from ._roost import RoostError
from ._sweep import Progress, _noted

#: Runs that are queued per CPU of the cluster, so that no CPU is idle until the next run arrives.
AHEAD = 2


@functools.lru_cache(maxsize=4)
def _plan(name: str, text: str, is_json: bool, sha256: str) -> _roost.Plan:
    """The plan on a worker. The worker reads machines and workloads itself."""
    plan = _roost.Plan(name, text, is_json)
    if plan.sha256() != sha256:
        raise RoostError(
            f"{name}: a worker finds other machines, workloads or rules under these names; put their files where all "
            "workers see them"
        )
    return plan


def _line(name: str, text: str, is_json: bool, sha256: str, version: str, cell: int, repeat: int) -> str | None:
    """Makes one run on a worker."""
    if version != _roost.version():
        raise RoostError(f"roost {_roost.version()} on a worker, {version} here; install the same version everywhere")
    return _plan(name, text, is_json, sha256).line(cell, repeat)


def sweep_on_ray(name: str, text: str, is_json: bool, result: Path, progress: Progress | None) -> None:
    """Makes the missing runs as tasks of Ray, and stores each here when it has ended."""
    try:
        import ray
        from ray.exceptions import RayTaskError
    except ImportError:
        raise RoostError("on=\"ray\": Ray is not installed; pip install 'roost[ray]'") from None
    plan = _noted(_roost.Plan(name, text, is_json))
    sweep = _roost.Sweep(plan, result)
    missing = iter(sweep.missing())
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    make = ray.remote(num_cpus=1, max_retries=-1)(_line)
    arguments = [ray.put(part) for part in (name, text, is_json, plan.sha256(), _roost.version())]
    waiting: list[ray.ObjectRef] = []
    try:
        while True:
            # The cluster may grow or shrink in between.
            room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(waiting)
            begun = itertools.islice(missing, max(room, 0))
            waiting.extend(make.remote(*arguments, cell, repeat) for cell, repeat in begun)
            if not waiting:
                break
            ended, waiting = ray.wait(waiting, num_returns=1, timeout=1.0)
            for line in ray.get(ended):
                told = sweep.keep(line)
                if told is not None and progress is not None:
                    progress(told)
    except RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, RoostError) else error from None
    finally:
        for task in waiting:
            ray.cancel(task, force=True)
    sweep.finish()
