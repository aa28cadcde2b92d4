"""The process of a playback: it obeys messages, and sends a frame when the page has room for it.

A message is a dictionary with its `type`. A frame is bytes: the length of a header in JSON (4 bytes, little
endian), the header, and the Arrow streams that the header lists. At most eight frames are on their way, so
that a slow page slows what it is shown, and neither the run nor the memory; those ahead bridge a late one.
"""

import json
import resource
import struct
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bentpipe.errors import AlgorithmError, BentpipeError, Cancelled, ScenarioError, SimulationError
from bentpipe.lab import limits
from bentpipe.lab.documents import sliders
from bentpipe.lab.playback import Change, Playback, seed_for_page
from bentpipe.report.picture import picture
from bentpipe.stats.states import states

__all__ = ["main", "packed"]

_SLICE = 0.008
"""Time of a turn [s]."""
_AHEAD = 8
"""Frames on their way at most."""
_SERVED = 0.5
"""Time between two tables of how classes are served [s]."""
_MISTAKES = (BentpipeError, ScenarioError, SimulationError, AlgorithmError, Cancelled)


def packed(header: Mapping[str, object], tables: Mapping[str, bytes] | None = None) -> bytes:
    """Return a frame: a header, and Arrow streams by name."""
    tables = tables or {}
    listed = [[name, len(content)] for name, content in tables.items()]
    text = json.dumps({**header, "tables": listed}, allow_nan=False).encode()
    return b"".join((struct.pack("<I", len(text)), text, *tables.values()))


def main(connection: Connection, folder: Path) -> None:
    """Obey the messages of a connection until it ends, for a lab in `folder`.

    AQMs written in Python may come from the current folder.
    """
    _limit_memory()
    sys.path.insert(0, "")
    _Worker(connection, folder).run()


def _limit_memory() -> None:
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = limits.MEMORY + limits.MEMORY // 2
    resource.setrlimit(
        resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


class _Worker:
    """A playback, or none yet, and the state of its page."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self.connection = connection
        self.folder = folder
        self.playback: Playback | None = None
        self.speed = 0.0
        """Simulated time per time [s/s]; infinite for as fast as possible, 0 for a pause."""
        self.stop_at: Callable[[Playback], bool] | None = None
        """Condition at which a jump is done."""
        self.stops: list[float] = []
        """Times at which the run pauses: those of captions [s]."""
        self.shown = 0
        """Number of the run whose packets the picture shows."""
        self.room = 0
        """Frames that the page has room for."""
        self.has_news = False
        self.served_at = 0.0
        self.turned_at = time.monotonic()

    def run(self) -> None:
        """Take turns until the connection ends."""
        while True:
            waiting = self.connection.poll(0 if self.is_running else 60)
            try:
                while waiting:
                    self.obey(json.loads(self.connection.recv_bytes()))
                    waiting = self.connection.poll(0)
                self.turn()
            except EOFError:
                return
            except BrokenPipeError:
                return
            except _MISTAKES as error:
                self.speed, self.stop_at = 0.0, None
                self.tell("error", message=str(error))
            except (TypeError, ValueError, OverflowError, KeyError) as error:
                self.speed, self.stop_at = 0.0, None
                self.tell("error", message=f"the lab does not know this message: {error}")

    @property
    def is_running(self) -> bool:
        return self.playback is not None and (self.speed > 0 or self.stop_at is not None)

    def tell(self, kind: str, **rest: object) -> None:
        """Send a frame without tables, whether the page is ready or not."""
        self.connection.send_bytes(packed({"type": kind, **rest}))

    # ----- messages ---------------------------------------------------------------------------------------

    def obey(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "ready":
            self.room = min(_AHEAD, self.room + 1)
            return
        if kind == "open":
            self.open(message)
            return
        playback = self.playback
        if playback is None:
            raise BentpipeError("no scenario is open")
        self.has_news = True
        if kind == "show":
            self.shown = int(message["side"])
            return
        self.stop_at = None
        match kind:
            case "play":
                self.turned_at = time.monotonic()
                self.speed = float(message["speed"] or "inf")
            case "pause":
                self.speed = 0.0
            case "step":
                self.speed = 0.0
                # A packet may be as far away as the end of the run.
                self._check_limits()
                seconds = message.get("seconds")
                playback.step() if seconds is None else playback.advance(playback.now + float(seconds))
            case "seek":
                self.seek(float(message["time"]))
            case "change":
                change = playback.change(str(message["key"]), str(message["value"]))
                self.tell("changed", time=change.time, key=change.key, value=change.value)
            case "jump":
                self.jump(str(message["what"]))
            case _:
                raise BentpipeError(f"message: found the type {kind!r}")
        if kind != "play":
            self.served_at = 0.0

    def open(self, message: Mapping[str, Any]) -> None:
        """Open a scenario at time zero."""
        self.speed, self.stop_at, self.playback, self.shown = 0.0, None, None, 0
        changes = [Change(float(at), str(key), str(value)) for at, key, value in message.get("changes", [])]
        self.stops = sorted(float(at) for at in message.get("stops", []))
        seed = message.get("seed")
        self.playback = playback = Playback(
            str(message["text"]),
            str(message["file"]),
            [str(each) for each in message["settings"]],
            int(seed) if isinstance(seed, str) and seed.isdecimal() else seed,
            changes,
            self.folder,
        )
        first = playback.sides[0]
        self.tell(
            "opened",
            settings=playback.settings,
            seed=seed_for_page(playback.seed),
            end=playback.end,
            capacity=first.scenario.capacity,
            classes=first.simulation.classes,
            links=first.simulation.links,
            series=[side.simulation.series_names for side in playback.sides],
            states=[states(side.simulation.series_names) for side in playback.sides],
            pictures=[picture(side.scenario, parts=True) for side in playback.sides],
            interval=first.scenario.sample_interval,
            sliders=sliders(side.scenario for side in playback.sides),
            changes=[[each.time, each.key, each.value] for each in playback.changes],
        )
        self.has_news, self.served_at = True, 0.0

    def seek(self, to: float) -> None:
        """Go to a time; if that is in the past, everything is sent again."""
        playback = self._open()
        if to < playback.now:
            playback.seek(0.0)
            self.tell("rewound")
            playback.forget_sent()
        self.stop_at = _Reached(to)

    def jump(self, what: str) -> None:
        """Run to an event, or back to it."""
        playback = self._open()
        if what == "first drop":
            found = playback.first_drop()
            if found is None:
                self.stop_at = lambda playback: playback.first_drop() is not None
            else:
                self.seek(found)
        elif what in {"slowest page", "longest flow"}:
            is_page = what == "slowest page"
            worst = playback.slowest_page() if is_page else playback.worst_flow()
            if worst is None:
                thing = "page has been loaded" if is_page else "flow has been completed"
                raise BentpipeError(f"no {thing} yet: run on, and jump then")
            self.seek(max(0.0, worst[0]))
            self.tell("event", what=what, begin=worst[0], end=worst[1])
        elif what == "end":
            self.stop_at = _Reached(playback.end)
        else:
            raise BentpipeError(f"jump: found {what!r}; allowed: first drop, slowest page, longest flow, end")
        self.speed = 0.0

    def _open(self) -> Playback:
        if self.playback is None:
            raise BentpipeError("no scenario is open")
        return self.playback

    # ----- turns ------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Advance for a slice of time, then send a frame if the page waits for one."""
        playback = self.playback
        if playback is None:
            return
        begin = time.monotonic()
        if self.is_running and playback.now < playback.end:
            self._check_limits()
            self._advance(playback, begin)
            self.has_news = True
        elif self.is_running:
            self.speed, self.stop_at = 0.0, None
            self.has_news = True
        self.turned_at = begin
        if self.room and self.has_news:
            self.send(playback)
        if self.speed > 0 and self.stop_at is None and self.speed != float("inf"):
            # A message ends the pause.
            self.connection.poll(max(0.0, begin + _SLICE - time.monotonic()))

    def _advance(self, playback: Playback, begin: float) -> None:
        """Advance by the time that has passed, at most for a slice of it."""
        until = begin + _SLICE
        pause = next((at for at in self.stops if at > playback.now), playback.end)
        if self.stop_at is None and self.speed != float("inf"):
            step = self.speed * min(begin - self.turned_at, 5 * _SLICE)
            playback.advance(min(playback.now + step, pause))
        else:
            step = playback.sides[0].scenario.sample_interval
            while playback.now < playback.end and time.monotonic() < until:
                to = playback.now + step
                if isinstance(self.stop_at, _Reached):
                    to = min(to, max(playback.now, self.stop_at.time))
                elif self.stop_at is None:
                    to = min(to, pause)
                playback.advance(to)
                if self.stop_at is not None and self.stop_at(playback):
                    self.stop_at = None
                    return
                if self.stop_at is None and playback.now >= pause:
                    break
        if self.stop_at is None and playback.now >= pause:
            self.speed = 0.0

    def _check_limits(self) -> None:
        used = time.process_time()
        if used > limits.CPU_SECONDS:
            raise BentpipeError(
                f"the runs of this page have taken {used:.0f} s of processor time; allowed: at most"
                f" {limits.CPU_SECONDS:.0f} s. Load the page again, or use bentpipe compare for long runs"
            )
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * resource.getpagesize()
        if memory > limits.MEMORY:
            raise BentpipeError(
                f"the run needs {memory / 1024**2:.0f} MB of memory; allowed in the lab: at most"
                f" {limits.MEMORY / 1024**2:.0f} MB. Shorten it, or use bentpipe compare"
            )

    def send(self, playback: Playback) -> None:
        """Send what is new."""
        tables: dict[str, bytes] = {}
        for number, side in enumerate(playback.sides):
            found = playback.tables(side, packets=number == self.shown)
            tables |= {f"{number}.{name}": content for name, content in found.items()}
        header: dict[str, object] = {
            "type": "frame",
            "time": playback.now,
            "running": self.is_running,
            "ended": playback.now >= playback.end,
        }
        now = time.monotonic()
        is_due = now - self.served_at >= _SERVED or not self.is_running
        if is_due and playback.now > 0:
            header["served"] = [playback.served(side) for side in playback.sides]
            self.served_at = now
        self.connection.send_bytes(packed(header, tables))
        self.room -= 1
        self.has_news = False


class _Reached:
    """The condition that a playback has reached a time."""

    def __init__(self, time: float) -> None:
        self.time = time

    def __call__(self, playback: Playback) -> bool:
        """Return True if it has."""
        return playback.now >= self.time
