"""Tables that pyarrow, pandas and polars can use without copying."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from . import _roost

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Frame:
    """Columns in Arrow's format.

    It has the Arrow PyCapsule interface. Any library with this interface can use the frame directly:
    ``pyarrow.table(frame)``, ``polars.DataFrame(frame)``, ``duckdb.sql("from frame")``.
    """

    def __init__(self, table: _roost.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __arrow_c_schema__(self) -> object:
        return self._table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pyarrow.Table:
        """A pyarrow table, which shares this frame's memory."""
        import pyarrow

        return pyarrow.table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas frame with Arrow columns (``pandas.ArrowDtype``), which share this frame's memory."""
        import pandas

        return self.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(self) -> polars.DataFrame:
        """A polars frame, which shares this frame's memory."""
        import polars

        frame = polars.from_arrow(self.to_arrow(), rechunk=False)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __repr__(self) -> str:
        arrow = self.to_arrow()
        return f"<roost.{type(self).__name__} of {len(self)} rows and {arrow.num_columns} columns>"


class Runs(Frame):
    """Runs, one per row: what was run, its metrics and its counters.

    The metadata of a column says what it is: ``kind`` (``metric``, ``counter``, ``histogram``, ``number`` or
    ``place``); for a metric, ``unit`` and ``better`` (``higher`` or ``lower``); for a counter, ``meaning``. Values that
    a run does not have are null.
    """

    def changes(self) -> Frame:
        """One row per metric, machine, workload and scheduler: mean, interval, change from the first scheduler.

        ``change_pct`` is in percent of the first scheduler's mean; positive is better. ``significant`` says that the
        two 95% confidence intervals are disjoint. ``first`` marks the main metric of a workload.
        """
        return Frame(_roost.changes(self._table))

    def report(self, file: str | PathLike[str]) -> None:
        """Writes the page that ``roost sweep report`` writes."""
        _roost.report(self._table, file)
