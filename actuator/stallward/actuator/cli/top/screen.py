"""The screen of ``stallward top`` (Textual)."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Input, Label, RichLog, Static

from stallward.actuator.cli.top.history import HISTORY_S, MOST_CHANGES, Change, History, View
from stallward.actuator.cli.top.past import KEPT_S
from stallward.actuator.cli.top.source import Pace
from stallward.actuator.cli.top.text import (
    COLUMNS,
    SORTS,
    bars,
    change_line,
    decider,
    group_rows,
    headline,
    latency_top_ms,
    when,
)
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import StallwardError

REFRESH_S: Final = 0.5
_HEIGHT: Final = 4
"""Lines of a bar of full height."""
_LEAST_STALL_TOP: Final = 0.1
"""A bar of full height is at least this share of the time: small stalls look small."""
_FAR_S: Final = 30
_HELP: Final = f"""\
The first line is the application's p95 of the last second against its target; red means missed.
The bars are of the last seconds. Those of the p95 reach half their height at the target.
Below are the groups, then one line for each change of what is done to them, the newest last.

  s      sort the slots by the next column        f      only slots with some letters in the name
  left   a second back                            [      {_FAR_S} seconds back
  right  a second forward                         ]      {_FAR_S} seconds forward
  0      the newest second (also Home)            space  stay at this second, or the newest
  d      with what the guard said                 ?      show or hide this
  q      quit

The last {KEPT_S // 60} minutes are kept. A recording stands still meanwhile; at its newest second, forward
shows the next ones at once.
"""


class TopScreen(App[None]):
    """Shows what a history collects, twice a second.

    Args:
        records: The records; iterated in a thread of its own.
        history: Collects them.
        title: What is shown, for the last line.
        pace: How fast a recording is shown; ``None`` for a running daemon.
    """

    CSS = """
    #headline { padding: 0 1; text-style: bold; }
    #headline.missed { color: $error; }
    #when { display: none; padding: 0 1; text-style: reverse; }
    #when.shown { display: block; }
    #decider { padding: 0 1; }
    #curves { height: 6; }
    #curves Vertical { padding: 0 1; }
    .bars { height: 4; }
    #p95.missed { color: $error; }
    #help, #filter { display: none; padding: 0 1; }
    #help.shown, #filter.shown { display: block; }
    #groups { height: auto; max-height: 60%; }
    #changes { padding: 0 1; }
    #problem { color: $error; padding: 0 1; height: auto; }
    """
    AUTO_FOCUS: ClassVar[str | None] = None
    """Keys are commands until a filter is typed."""
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("left", "step(-1)", "Back"),
        ("right", "step(1)", "Forward"),
        ("0,home", "newest", "Newest"),
        ("space", "freeze", "Stay"),
        Binding("left_square_bracket", f"step(-{_FAR_S})", show=False),
        Binding("right_square_bracket", f"step({_FAR_S})", show=False),
        ("s", "sort", "Sort"),
        ("f", "filter", "Filter"),
        ("d", "details", "Details"),
        ("question_mark", "help", "Help"),
    ]

    def __init__(
        self,
        records: Iterable[TickRecord],
        history: History,
        title: str,
        pace: Pace | None = None,
    ) -> None:
        super().__init__()
        self._records = records
        self._history = history
        self._lock = threading.Lock()
        self._pace = pace
        self._past: int | None = None
        """The number of the second that is shown; ``None`` for the newest."""
        self._order = 0
        self._words = ""
        self._details = False
        self._listed: Change | None = None
        self._problem = ""
        self._title = title

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static("", id="when", markup=False)
        yield Static("waiting for the first tick", id="headline", markup=False)
        yield Static("", id="decider", markup=False)
        yield Static(_HELP, id="help", markup=False)
        yield Input(placeholder="letters in the names of slots; Enter to go on", id="filter")
        with Horizontal(id="curves"):
            with Vertical():
                yield Label("p95 of each second", id="p95-label")
                yield Static("", id="p95", classes="bars", markup=False)
            with Vertical():
                yield Label("memory stall of the application", id="stall-label")
                yield Static("", id="stall", classes="bars", markup=False)
        yield DataTable(id="groups", cursor_type="none")
        yield RichLog(id="changes", wrap=False, markup=False, max_lines=MOST_CHANGES)
        yield Static("", id="problem", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start to collect and to draw."""
        self.title = self._title
        self.query_one("#groups", DataTable).add_columns(*COLUMNS)
        self.set_interval(REFRESH_S, self.draw)
        # A worker of Textual would be waited for at the end, and the next tick may never come.
        threading.Thread(target=self._collect, daemon=True).start()

    def action_step(self, seconds: int) -> None:
        """Show another second; at the newest one of a recording, the next ones."""
        with self._lock:
            number = self._history.past.moved(self._past, seconds)
        if self._pace is not None and number is None and self._past is None and seconds > 0:
            self._pace.skip(seconds)
        self._go_to(number)

    def action_newest(self) -> None:
        """Show the newest second again."""
        self._go_to(None)

    def action_freeze(self) -> None:
        """Stay at what is shown, or continue."""
        if self._past is not None:
            self._go_to(None)
            return
        with self._lock:
            view = self._history.view()
            if view is not None:
                self._history.past.add(view)
        self.action_step(-1)

    def _go_to(self, number: int | None) -> None:
        if number == self._past:
            return
        self._past = number
        if self._pace is not None:
            self._pace.hold(number is not None)
        self._list_anew()

    def action_sort(self) -> None:
        """Sort the slots by the next column."""
        self._order = (self._order + 1) % len(SORTS)
        self.notify(f"sorted by {SORTS[self._order][0]}")
        self.draw()

    def action_details(self) -> None:
        """List the changes again, with or without what the guard said."""
        self._details = not self._details
        self._list_anew()

    def action_help(self) -> None:
        """Show or hide what the keys do."""
        self.query_one("#help").toggle_class("shown")

    def action_filter(self) -> None:
        """Ask for letters that the names of the listed slots must have."""
        field = self.query_one("#filter", Input)
        field.set_class(True, "shown")
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """List only what the filter lets through."""
        self._words = event.value.strip()
        self.query_one("#filter").set_class(bool(self._words), "shown")
        self.set_focus(None)
        self._list_anew()

    def _list_anew(self) -> None:
        self._listed = None
        self.query_one("#changes", RichLog).clear()
        self.draw()

    def draw(self) -> None:
        """Show the newest second, or the one that was gone back to."""
        if not self.is_running:
            return  # the timer may be due once more while the widgets are taken down
        self.query_one("#problem", Static).update(self._problem)
        with self._lock:
            newest = self._history.view()
            past = self._history.past
            view = newest if self._past is None else past.view(self._past)
        if newest is None or view is None:
            return
        line = self.query_one("#when", Static)
        line.set_class(view is not newest or self._pace is not None, "shown")
        line.update(when(view, newest, recorded=self._pace is not None))
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
        first = self.query_one("#headline", Static)
        first.update(headline(view))
        target_ms = math.inf if view.target_ms is None else view.target_ms
        first.set_class((view.p95_ms or 0.0) > target_ms, "missed")
        self.query_one("#decider", Static).update(decider(view))
        self._draw_bars(view)
        self.query_one("#p95").set_class(view.p95_history_ms[-1] > target_ms, "missed")
        table = self.query_one("#groups", DataTable)
        table.clear()
        for row in group_rows(view, order=self._order, words=self._words):
            table.add_row(*map(Text, row))  # names are not markup, whatever they contain
        new = []
        for change in view.changes:
            if change is self._listed:
                break
            new.append(change)
        if new:
            self._listed = new[0]
        log = self.query_one("#changes", RichLog)
        for change in reversed(new):
            if self._words.lower() in change.treated.lower():
                log.write(change_line(change, details=self._details))

    def _draw_bars(self, view: View) -> None:
        top_ms = latency_top_ms(view)
        top = max(*view.stall_history, _LEAST_STALL_TOP)
        for name, values, full, label in (
            ("p95", view.p95_history_ms, top_ms, f"p95 of each second, up to {top_ms:.3g} ms"),
            (
                "stall",
                view.stall_history,
                top,
                f"memory stall of the application, up to {100 * top:.0f} %",
            ),
        ):
            field = self.query_one(f"#{name}", Static)
            width = min(max(field.size.width, 1), HISTORY_S)
            field.update(bars(values, full, width=width, height=_HEIGHT))
            self.query_one(f"#{name}-label", Label).update(label)
