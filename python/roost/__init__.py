"""Compare CPU schedulers on machines you do not own.

A run depends only on its arguments: the same call gives the same results on any machine. Runs use all cores and
release Python's global lock. Errors are :class:`RoostError`, with the messages of the command ``roost``.

>>> import roost
>>> runs = roost.compare(["fair@7.2", "fair@7.2+no-sis-util"], workload="hackbench:groups=1", machine="2n2l4c")
>>> runs.changes().to_pandas()  # doctest: +SKIP
"""

from ._roost import RoostError
from ._sweep import compare, machine, read, sweep
from ._table import Frame, Runs
from ._tune import Tuned, tune
from ._roost import version as _version

__version__: str = _version()
__all__ = ["Frame", "RoostError", "Runs", "Tuned", "compare", "machine", "read", "sweep", "tune"]
