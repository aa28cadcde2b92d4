"""Result of an evaluation: the values of every figure, and who is better than whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from bentpipe import files
from bentpipe.errors import ResultError
from bentpipe.evaluation import MANIFEST
from bentpipe.evaluation.cases import Figure, section_key
from bentpipe.sweeps.result import SweepResult

__all__ = ["PARTS", "CaseResult", "EvaluationResult", "Standing", "open_evaluation"]

FORMAT, FORMAT_VERSION = "bentpipe-evaluation", 1
SCENARIOS, DATA, REPORTS = "scenarios", "data", "reports"
_SHAPE = {
    "kind": str,
    "status": str,
    "settings": [str],
    "profiles": [{"name": str, "title": str, "text": str, "chosen": [str]}],
    "cases": [{"profile": str, "section": str, "name": str, "title": str, "text": str, "figures": [list]}],
}

PARTS: Mapping[str, Mapping[str, str]] = {
    "aqm": {
        "4": "packet sizes, ECN, scheduling",
        "5": "transports",
        "6": "RTT fairness",
        "7": "bursts",
        "8": "stability",
        "9": "traffic mixes",
        "10": "AQMs in a row",
        "S": "satellite",
    },
    "cc": {
        "5": "behaviour alone and mixed",
        "6": "general use",
        "7": "special cases",
        "S": "satellite",
        "B": "BBR's cases",
    },
    "media": {
        "5.1": "variable capacity",
        "5.2": "the same, two flows",
        "5.3": "congested feedback",
        "5.4": "media against media",
        "5.5": "RTT fairness",
        "5.6": "against long TCP",
        "5.7": "against short TCP",
        "5.8": "pause and resume",
    },
}
"""Parts by which results are summarised, and their subjects: first numbers of sections, or sections."""

_LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Standing:
    """A setting in a part of a profile, against all others."""

    won: int
    """Comparisons in which it is significantly better: pairs of settings, times figures."""
    lost: int
    compared: int
    dominates: int
    """Settings that it beats in more cases than they beat it in some metric, and that do so in none."""
    dominated: int

    @property
    def net(self) -> float:
        """Share of comparisons won less share lost, -1 to 1; 0 without any."""
        return (self.won - self.lost) / self.compared if self.compared else 0.0


class CaseResult:
    """Runs of all settings in one case of a profile."""

    def __init__(self, kind: str, entry: Mapping[str, Any], folder: Path) -> None:
        self.kind = kind
        self.profile: str = entry["profile"]
        self.section: str = entry["section"]
        self.name: str = entry["name"]
        self.title: str = entry["title"]
        self.text: str = entry["text"]
        self.chosen: str = entry.get("chosen", "")
        self.figures = [Figure(metric, is_more) for metric, is_more in entry["figures"]]
        self._seeds = entry["seeds"]
        self._folder = folder
        self._means: dict[str, dict[str, float | None]] = {}

    @property
    def part(self) -> str:
        """Part that the section is in."""
        return self.section if self.section in PARTS[self.kind] else self.section.partition(".")[0]

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per run: setting, seed and every metric."""
        found = SweepResult(self._folder)
        table = found.newest(found.frame())
        return table.filter(pl.col("seed").is_in(self._seeds))

    @cached_property
    def settings(self) -> list[str]:
        """Settings with runs."""
        return self.frame["setting"].unique(maintain_order=True).to_list()

    def values(self, metric: str) -> dict[str, npt.NDArray[np.float64]]:
        """Return a metric by setting, a value per seed, NaN for a run without a value."""
        found = {}
        if metric not in self.frame.columns:
            return {name: np.full(len(self._seeds), np.nan) for name in self.settings}
        for name in self.settings:
            rows = self.frame.filter(pl.col("setting") == name)
            by_seed = dict(zip(rows["seed"], rows[metric].cast(pl.Float64), strict=True))
            values = [by_seed.get(seed) for seed in self._seeds]
            found[name] = np.array([np.nan if value is None else value for value in values])
        return found

    def mean(self, metric: str, setting: str) -> float | None:
        """Return the mean of a metric over the runs of a setting; None without values."""
        values = self._means.setdefault(metric, {})
        if not values:
            for name, found in self.values(metric).items():
                known = found[~np.isnan(found)]
                values[name] = float(known.mean()) if len(known) else None
        return values.get(setting)

    @cached_property
    def better(self) -> dict[str, npt.NDArray[np.bool_]]:
        """For each figure a matrix: True where the row's setting is significantly better than the column's.

        The 95 % interval of the mean of the paired differences excludes zero (Student's t); with one run, the
        value is better. A setting with values is better than one that never has one.
        """
        return {each.metric: _better(self.values(each.metric), is_more=each.is_more) for each in self.figures}


def _better(values: Mapping[str, npt.NDArray[np.float64]], *, is_more: bool) -> npt.NDArray[np.bool_]:
    if not values:
        # Every run failed.
        return np.zeros((0, 0), dtype=np.bool_)
    table = np.array(list(values.values())) * (1 if is_more else -1)
    differences = table[:, None, :] - table[None, :, :]
    known = ~np.isnan(differences)
    count = known.sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, differences, 0).sum(axis=2) / count
        spread = np.where(known, differences - mean[:, :, None], 0)
        std = np.sqrt((spread**2).sum(axis=2) / (count - 1))
        half = stats.t.ppf(1 - _LEVEL / 2, np.maximum(count - 1, 1)) * std / np.sqrt(count)
        low = np.where(count > 1, mean - half, mean)
        # Rounding errors are no difference.
        least = 1e-9 * np.nanmax(np.abs(table), initial=0.0)
        found = (low > 0) & (mean > least)
    has = ~np.isnan(table).all(axis=1)
    found |= has[:, None] & ~has[None, :]
    return np.asarray(found, dtype=np.bool_)


class EvaluationResult:
    """An evaluation in a folder."""

    def __init__(self, folder: str | Path) -> None:
        """Read the manifest in `folder`; `ResultError` if it is not that of a complete evaluation."""
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        try:
            self.manifest: dict[str, Any] = files.read_json(path)
        except FileNotFoundError:
            raise ResultError(f"{folder}: is no evaluation: it has no {MANIFEST}") from None
        except (OSError, ValueError) as error:
            raise ResultError(f"{path}: cannot be read: {error}") from None
        if not isinstance(self.manifest, dict) or self.manifest.get("format") != FORMAT:
            raise ResultError(f"{folder}: is no evaluation: its {MANIFEST} has another format")
        files.require_version(self.manifest, (FORMAT_VERSION,), path)
        files.require_shape(self.manifest, _SHAPE, path)
        if self.manifest["status"] != "complete":
            raise ResultError(f"{folder}: the evaluation is not finished; repeat the command that made it")
        self.cases = [
            CaseResult(self.kind, entry, self.folder / DATA / entry["profile"] / entry["name"])
            for entry in self.manifest["cases"]
        ]
        self._known: dict[tuple[str, str | None], dict[str, Standing]] = {}

    @property
    def kind(self) -> str:
        """Kind of the evaluation: `aqm`, `cc` or `media`."""
        return str(self.manifest["kind"])

    @property
    def settings(self) -> list[str]:
        """Settings, in the given order."""
        return list(self.manifest["settings"])

    @property
    def profiles(self) -> list[dict[str, Any]]:
        """Profiles with `name`, `title`, `text` and `chosen`."""
        return list(self.manifest["profiles"])

    def parts(self, profile: str) -> list[str]:
        """Return the parts of a profile, in the order of their sections."""
        found = dict.fromkeys(case.part for case in self.cases_of(profile))
        return sorted(found, key=section_key)

    def cases_of(self, profile: str, part: str | None = None) -> list[CaseResult]:
        """Return the cases of a profile, or of a part of it."""
        return [
            case for case in self.cases if case.profile == profile and (part is None or case.part == part)
        ]

    def standing(self, profile: str, part: str | None = None) -> dict[str, Standing]:
        """Return where each setting stands in a profile, or in a part of it."""
        key = (profile, part)
        if key not in self._known:
            self._known[key] = _standing(self.settings, self.cases_of(profile, part))
        return self._known[key]

    def ranked(self, profile: str) -> list[str]:
        """Return the settings, those that win most of their comparisons in a profile first."""
        found = self.standing(profile)
        return sorted(self.settings, key=lambda name: -found[name].net)

    def rows(self) -> list[dict[str, Any]]:
        """Return where every setting stands in every part of every profile, ready for JSON."""
        return [
            {
                "profile": profile["name"],
                "part": part or "all",
                "setting": name,
                "net": round(found.net, 4),
                "won": found.won,
                "lost": found.lost,
                "compared": found.compared,
                "dominates": found.dominates,
                "dominated": found.dominated,
            }
            for profile in self.profiles
            for part in (None, *self.parts(profile["name"]))
            for name, found in self.standing(profile["name"], part).items()
        ]


def _standing(settings: Sequence[str], cases: Sequence[CaseResult]) -> dict[str, Standing]:
    size = len(settings)
    place = {name: number for number, name in enumerate(settings)}
    won, compared = np.zeros((size, size), dtype=int), np.zeros((size, size), dtype=int)
    by_metric: dict[str, npt.NDArray[np.int_]] = {}
    for case in cases:
        here = np.array([place[name] for name in case.settings if name in place], dtype=int)
        known = np.array([name in place for name in case.settings], dtype=bool)
        for metric, better in case.better.items():
            mine = by_metric.setdefault(metric.rpartition(".")[2], np.zeros((size, size), dtype=int))
            mine[np.ix_(here, here)] += better[np.ix_(known, known)]
            won[np.ix_(here, here)] += better[np.ix_(known, known)]
            compared[np.ix_(here, here)] += 1
    np.fill_diagonal(compared, 0)
    ahead = [table - table.T for table in by_metric.values()]
    dominates = np.all([each >= 0 for each in ahead], axis=0) & np.any([each > 0 for each in ahead], axis=0)
    return {
        name: Standing(
            int(won[i].sum()),
            int(won[:, i].sum()),
            int(compared[i].sum()),
            int(dominates[i].sum()),
            int(dominates[:, i].sum()),
        )
        for name, i in place.items()
    }


def open_evaluation(folder: str | Path) -> EvaluationResult:
    """Open an evaluation; `ResultError` if the folder holds no complete one."""
    return EvaluationResult(folder)
