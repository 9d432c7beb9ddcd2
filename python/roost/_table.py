"""Tables that pyarrow, pandas and polars take without copying."""

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

    It has the Arrow PyCapsule interface, so that any library that has it too takes the frame as it is:
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
        """The table of pyarrow, which shares this memory."""
        import pyarrow

        return pyarrow.table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """The frame of pandas, whose columns are Arrow's (``pandas.ArrowDtype``) and share this memory."""
        import pandas

        return self.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(self) -> polars.DataFrame:
        """The frame of polars, which shares this memory."""
        import polars

        frame = polars.from_arrow(self.to_arrow(), rechunk=False)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __repr__(self) -> str:
        arrow = self.to_arrow()
        return f"<roost.{type(self).__name__} of {len(self)} rows and {arrow.num_columns} columns>"


class Runs(Frame):
    """A row a run: which it is, its metrics and its counters.

    A column says in its metadata what it is: ``kind`` (``metric``, ``counter``, ``histogram``, ``number`` or ``place``),
    the ``unit`` of a metric and whether ``higher`` or ``lower`` is ``better``, the ``meaning`` of a counter. What a run
    does not have is null.
    """

    def changes(self) -> Frame:
        """A row a metric, machine, workload and scheduler: mean, interval, and change against the first scheduler.

        ``change_pct`` is in percent of the first scheduler's mean, positive is better; ``significant`` says that the
        two 95% confidence intervals are disjoint; ``first`` marks the metric that a workload is run for.
        """
        return Frame(_roost.changes(self._table))

    def report(self, file: str | PathLike[str]) -> None:
        """Writes the page that ``roost sweep report`` writes."""
        _roost.report(self._table, file)
