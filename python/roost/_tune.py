"""Searches better numbers for a machine, and checks what they do elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ._roost import RoostError
from ._sweep import Names, _list, compare
from ._table import Runs

if TYPE_CHECKING:
    import optuna

#: A trial ends early if a paired test finds it worse than the best trial with at most this probability of error.
#: The value is Optuna's default for its WilcoxonPruner.
RACE_P = 0.1

#: The check uses seeds from this number on, so that they differ from those of the study.
FRESH = 1_000_000


@dataclass(frozen=True)
class Tuned:
    """The result of a study, and how it performs on seeds, workloads and machines that it was not tuned on."""

    #: The scheduler with its default numbers.
    default: str
    #: The best numbers. Empty if none were better than the default.
    numbers: Mapping[str, int]
    #: The geometric mean of the gains over the default in the runs of the study, in percent. It is too optimistic,
    #: because the best of many trials is partly luck. ``check`` has an unbiased comparison.
    tuned_pct: float
    #: Default and winner on the same machines, with seeds and workloads that the study did not use.
    check: Runs
    #: The same on other machines. ``None`` if no other machines were named.
    elsewhere: Runs | None
    #: Optuna's study, with all trials.
    study: optuna.Study

    @property
    def scheduler(self) -> str:
        """The winner in the form of ``roost compare``: ``fair@7.2+sis-util-threshold=60``."""
        return self.default + "".join(f"+{name}={value}" for name, value in self.numbers.items())

    def write(self, file: str | PathLike[str]) -> None:
        """Writes the winner as a settings file for ``roost run --config`` and ``roost+config=FILE``."""
        if self.default.split("+")[0] != "roost":
            raise RoostError(
                f"{self.default}: numbers of the kernel are not settings of `roost run`; use the scheduler name "
                f"{self.scheduler}, or set the kernel's own files"
            )
        lines = [f"{name} = {value}\n" for name, value in self.numbers.items()]
        Path(file).write_text("".join(lines), encoding="utf-8")


def tune(
    numbers: Mapping[str, tuple[int, int]],
    *,
    workload: Names,
    machine: Names = "zen3-2s",
    scheduler: str = "fair@7.2",
    metric: str | None = None,
    trials: int = 40,
    seeds: int = 8,
    check_seeds: int = 20,
    check_workload: Names = (),
    elsewhere: Names = (),
    duration: str | None = None,
    jobs: int | None = None,
    sampler_seed: int = 1,
    progress: Callable[[str], object] | None = None,
) -> Tuned:
    """Searches numbers of a scheduler that improve workloads, with Optuna.

    ``numbers`` has a range, both ends included, for each number of the fair class or setting of ``roost`` to be tuned.
    The goal is ``metric``, by default the first metric of each workload. It is compared with the scheduler's default in
    runs with the same seed, and the geometric mean of the gains over all machines and workloads is maximised.

    A trial whose runs are clearly worse than those of the best trial ends before it has used all seeds (Wilcoxon's
    signed-rank test on pairs with the same seed). At the end the winner is compared with the default: with
    ``check_seeds`` other seeds, on ``check_workload``, and on the machines of ``elsewhere``.
    """
    study, sampled = _study(numbers, trials, seeds, sampler_seed)
    places = _Places(_list(machine), _list(workload), duration, jobs, metric)
    baseline = places.values([scheduler], range(1, seeds + 1))[scheduler]

    def score(trial: optuna.Trial) -> float:
        spec = scheduler + "".join(f"+{name}={value}" for name, value in sampled(trial).items())
        gains: list[float] = []
        for seed in range(1, seeds + 1):
            measured = places.values([spec], [seed])[spec]
            for key, value in measured.items():
                gains.append(places.gain(key, baseline[key], value))
                trial.report(gains[-1], len(gains) - 1)
            if seed < seeds and trial.should_prune():
                trial.set_user_attr("ended_after_seeds", seed)
                break
        # Optuna recommends this for the pruner: the mean so far tells the sampler more than "pruned" would.
        return sum(gains) / len(gains)

    def tell(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        if progress is not None and trial.value is not None:
            after = trial.user_attrs.get("ended_after_seeds", seeds)
            progress(f"[{trial.number + 1}/{trials}] {trial.params}: {_percent(trial.value):+.2f}% after {after} seeds")

    study.optimize(score, n_trials=trials, callbacks=[tell])
    wins = study.best_value > 0
    best: dict[str, int] = dict(study.best_params) if wins else {}
    winner = scheduler + "".join(f"+{name}={value}" for name, value in best.items())
    contenders = [f"default={scheduler}", f"tuned={winner}"] if wins else [f"default={scheduler}"]

    def beside(machines: Sequence[str]) -> Runs:
        return compare(
            contenders,
            machine=machines,
            workload=[*places.workloads, *_list(check_workload)],
            repeat=check_seeds,
            seed=FRESH,
            duration=duration,
            jobs=jobs,
        )

    return Tuned(
        default=scheduler,
        numbers=best,
        tuned_pct=_percent(study.best_value) if wins else 0.0,
        check=beside(places.machines),
        elsewhere=beside(_list(elsewhere)) if _list(elsewhere) else None,
        study=study,
    )


def _percent(gain: float) -> float:
    return 100 * math.expm1(gain)


def _study(
    numbers: Mapping[str, tuple[int, int]], trials: int, seeds: int, sampler_seed: int
) -> tuple[optuna.Study, Callable[[optuna.Trial], dict[str, int]]]:
    """An empty study, and a function that chooses the numbers of a trial."""
    try:
        import optuna
        import scipy  # noqa: F401  (the pruner needs it)
    except ImportError:
        raise RoostError("tune: Optuna and SciPy are not installed; pip install 'roost[tune]'") from None
    if not numbers:
        raise RoostError("numbers: none to tune; give for example {\"sis-util-threshold\": (20, 100)}")
    for name, (low, high) in numbers.items():
        if not 0 <= low < high:
            raise RoostError(f"{name}: no range from {low} to {high}; give the lower end first")
    if trials < 1 or seeds < 1:
        raise RoostError("trials and seeds: at least 1 of each")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=sampler_seed),
        pruner=optuna.pruners.WilcoxonPruner(p_threshold=RACE_P),
    )

    def sampled(trial: optuna.Trial) -> dict[str, int]:
        return {
            # Ranges of a factor of 10 or more are searched on a logarithmic scale.
            name: trial.suggest_int(name, low, high, log=low > 0 and high >= 10 * low)
            for name, (low, high) in numbers.items()
        }

    return study, sampled


class _Places:
    """Machines and workloads, and the metric that is used for each."""

    def __init__(
        self, machines: list[str], workloads: list[str], duration: str | None, jobs: int | None, metric: str | None
    ) -> None:
        self.machines, self.workloads = machines, workloads
        self._duration, self._jobs, self._metric = duration, jobs, metric
        self._better: dict[str, bool] = {}

    def values(self, schedulers: list[str], seeds: Sequence[int]) -> dict[str, dict[tuple[str, str, int], float]]:
        """Values by scheduler, and by machine, workload and seed."""
        runs = compare(
            schedulers,
            machine=self.machines,
            workload=self.workloads,
            repeat=len(seeds),
            seed=seeds[0],
            duration=self._duration,
            jobs=self._jobs,
        ).to_arrow()
        metrics: dict[str, bool] = {
            field.name: (field.metadata[b"better"] == b"higher")
            for field in runs.schema
            if field.metadata and field.metadata.get(b"kind") == b"metric"
        }
        if self._metric is not None and self._metric not in metrics:
            raise RoostError(f"metric: no {self._metric!r} here; metrics are {', '.join(metrics)}")
        names = [self._metric] if self._metric is not None else list(metrics)
        found: dict[str, dict[tuple[str, str, int], float]] = {name: {} for name in schedulers}
        for row in runs.select(["machine", "workload", "scheduler", "seed", *names]).to_pylist():
            place = f"{row['workload']} on {row['machine']}"
            name = next((name for name in names if row[name] is not None), None)
            if name is None or row[name] <= 0:
                raise RoostError(f"metric: {place} has no value above 0 of {' or '.join(names)}; name another metric")
            self._better[row["workload"]] = metrics[name]
            found[row["scheduler"]][row["machine"], row["workload"], row["seed"]] = row[name]
        return found

    def gain(self, key: tuple[str, str, int], default: float, value: float) -> float:
        """The gain of a value over the default: the logarithm of their ratio. Positive is better."""
        ratio: float = math.log(value / default)
        return ratio if self._better[key[1]] else -ratio
