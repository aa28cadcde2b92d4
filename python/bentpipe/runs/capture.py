"""Captures of the packets on links, as pcapng files for Wireshark and similar tools."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bentpipe import _core, files
from bentpipe.errors import FolderExistsError, UsageError
from bentpipe.runs.plan import Plan, Setting, check_watch, slug
from bentpipe.runs.store import pairs

__all__ = ["PACKETS", "Capture", "Captures", "Writing"]

PACKETS = 1_000_000
"""Default limit of packets per file: about a hundred megabytes."""
_SNAP = (128, 65_535)
_MOST_PACKETS = 2**62


@dataclass(frozen=True, slots=True)
class Capture:
    """Selection of packets to capture: one pcapng file for each run and link in `folder`.

    `links` are names of links, by default the subject's; a link that exists once per host is captured for all
    hosts, and `NAME.0` for the first. A file ends after `packets` packets. Each packet is kept up to its
    headers, or up to `snap` bytes.
    """

    folder: str | Path
    links: Sequence[str] = ()
    packets: int = PACKETS
    snap: int | None = None


@dataclass(frozen=True, slots=True)
class _File:
    link: str
    final: Path
    partial: Path


class Writing:
    """Capture files of one run during its simulation."""

    def __init__(self, paths: Sequence[_File], captures: "Captures") -> None:
        """Take the files to write."""
        self._files = paths
        self._captures = captures

    @property
    def targets(self) -> list[tuple[str, str]]:
        """Each link with its file."""
        return [(file.link, str(file.partial)) for file in self._files]

    def keep(self, run: _core.Run) -> None:
        """Give the files their final names, after the run has been written."""
        for file, (packets, left_out, _) in zip(self._files, run.captured, strict=True):
            file.partial.replace(file.final)
            self._captures.written.append(file.final)
            if left_out:
                self._captures.warnings.append(
                    f"{file.final}: holds the first {packets:,} packets; {left_out:,} more were left out"
                )
        files.sync_folder(Path(self._captures.capture.folder))


class Captures:
    """Captures of a plan's runs."""

    def __init__(self, capture: Capture, plan: Plan) -> None:
        """Check the selection; `UsageError` for an unknown link or a number out of range."""
        if not 1 <= capture.packets <= _MOST_PACKETS:
            raise UsageError(f"captures of {capture.packets} packets: from 1 to {_MOST_PACKETS} are possible")
        least, most = _SNAP
        if capture.snap is not None and not least <= capture.snap <= most:
            raise UsageError(
                f"captures of {capture.snap} bytes per packet: from {least} to {most} are possible"
            )
        self.capture = capture
        self.plan = plan
        self.written: list[Path] = []
        """Files written so far."""
        self.warnings: list[str] = []
        """Warnings for the caller."""
        links = list(capture.links) or [plan.scenario.subject_link]
        check_watch(plan.scenario, (), links)
        self._slugs: dict[str, str] = {}
        for link in links:
            self._slugs[link] = slug(link, self._slugs.values())

    @contextmanager
    def prepared(
        self, *, force: bool = False, missing: Sequence[tuple[Setting, int]] | None = None
    ) -> Iterator[None]:
        """Provide the folder while runs are simulated; without any capture, restore its former state.

        Raises `UsageError` if it cannot be written, or if a file of one of the `missing` runs (by default:
        of any run) exists, unless `force` allows replacing it.
        """
        folder = Path(self.capture.folder)
        runs = pairs(self.plan) if missing is None else missing
        for file in (file for setting, seed in runs for file in self._files(setting, seed)):
            if os.path.lexists(file.final) and not (force and file.final.is_file()):
                raise FolderExistsError(file.final, " as pcap")
        with files.provided_folder(folder, "--pcap"):
            yield

    def lacks(self, setting: Setting, seed: int) -> bool:
        """Return True if a file of a run is missing, as after a kill between the run and its files."""
        return not all(file.final.exists() for file in self._files(setting, seed))

    @contextmanager
    def files(self, setting: Setting, seed: int) -> Iterator[Writing]:
        """Provide the files of one run during its simulation; unfinished files are deleted afterwards."""
        mine = self._files(setting, seed)
        try:
            yield Writing(mine, self)
        finally:
            for file in mine:
                file.partial.unlink(missing_ok=True)

    def _files(self, setting: Setting, seed: int) -> list[_File]:
        folder = Path(self.capture.folder)
        names = {link: f"{setting.slug}-{seed}-{part}.pcapng" for link, part in self._slugs.items()}
        return [
            _File(link, folder / name, folder / f"{files.PARTIAL}{os.getpid()}-{name}")
            for link, name in names.items()
        ]
