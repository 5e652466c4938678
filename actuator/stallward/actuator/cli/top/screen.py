"""The screen of ``stallward top`` (Textual)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Label, RichLog, Sparkline, Static

from stallward.actuator.cli.top.history import HISTORY_S, MOST_CHANGES, Change, History, View
from stallward.actuator.cli.top.text import COLUMNS, change_line, decider, group_rows, headline
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import StallwardError

REFRESH_S: Final = 0.5


class TopScreen(App[None]):
    """Shows what a history collects, twice a second.

    Args:
        records: The records; iterated in a thread of its own.
        history: Collects them.
        title: What is shown, for the last line.
    """

    CSS = """
    #headline { padding: 0 1; text-style: bold; }
    #headline.missed { color: $error; }
    #decider { padding: 0 1; }
    #curves { height: 6; }
    #curves Vertical { padding: 0 1; }
    Sparkline { height: 4; }
    #groups { height: auto; max-height: 60%; }
    #changes { padding: 0 1; }
    #problem { color: $error; padding: 0 1; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("space", "freeze", "Freeze or go on"),
    ]

    def __init__(self, records: Iterable[TickRecord], history: History, title: str) -> None:
        super().__init__()
        self._records = records
        self._history = history
        self._lock = threading.Lock()
        self._frozen = False
        self._listed: Change | None = None
        self._problem = ""
        self._title = title

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static("waiting for the first tick", id="headline", markup=False)
        yield Static("", id="decider", markup=False)
        with Horizontal(id="curves"):
            with Vertical():
                yield Label(f"p95 of each second, last {HISTORY_S} s")
                yield Sparkline([], id="p95", summary_function=max)
            with Vertical():
                yield Label("memory stall of the application")
                yield Sparkline([], id="stall", summary_function=max)
        yield DataTable(id="groups", cursor_type="none")
        yield RichLog(id="changes", wrap=True, markup=False, max_lines=MOST_CHANGES)
        yield Static("", id="problem", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start to collect and to draw."""
        self.title = self._title
        self.query_one("#groups", DataTable).add_columns(*COLUMNS)
        self.set_interval(REFRESH_S, self.draw)
        # A worker of Textual would be waited for at the end, and the next tick may never come.
        threading.Thread(target=self._collect, daemon=True).start()

    def action_freeze(self) -> None:
        """Stop drawing, or continue."""
        self._frozen = not self._frozen

    def draw(self) -> None:
        """Show the newest view, unless it is frozen."""
        self.query_one("#problem", Static).update(self._problem)
        if self._frozen:
            return
        with self._lock:
            view = self._history.view()
        if view is not None:
            self._show(view)

    def _collect(self) -> None:
        try:
            for record in self._records:
                with self._lock:
                    self._history.add(record)
        except StallwardError as error:
            self._problem = str(error)
        except Exception as error:  # a thread that dies silently would freeze the screen
            self._problem = f"It cannot go on: {error!r}"
        else:
            self._problem = "There are no more ticks."

    def _show(self, view: View) -> None:
        target_ms = self._history.target_ms
        first = self.query_one("#headline", Static)
        first.update(headline(view, target_ms))
        late = view.p95_ms is not None and target_ms is not None and view.p95_ms > target_ms
        first.set_class(late, "missed")
        self.query_one("#decider", Static).update(decider(view))
        self.query_one("#p95", Sparkline).data = list(view.p95_history_ms)
        self.query_one("#stall", Sparkline).data = list(view.stall_history)
        table = self.query_one("#groups", DataTable)
        table.clear()
        table.add_rows(group_rows(view))
        new = []
        for change in view.changes:
            if change is self._listed:
                break
            new.append(change)
        if new:
            self._listed = new[0]
        log = self.query_one("#changes", RichLog)
        for change in reversed(new):
            log.write(change_line(change))
