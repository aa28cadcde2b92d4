"""In words, where engines differ: by rules from the numbers, so that every sentence can be computed again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bentpipe.format import ROUNDING, brief, plural
from bentpipe.models.engines import QUANTITIES

__all__ = ["Findings", "findings"]

MODEL, LIVE = "model", "live"
"""Engines beside the first one."""
AGREE = 0.05
"""Means that are no further apart than this share agree; so do those within the first engine's interval."""
NEAR = 0.25
STEADY = 0.1
"""A standard deviation below this share of the other's is that of something that stands still."""
SWINGING = 2.0
_WITHOUT_TIMEOUTS = ("gateway", "single_queue")
"""Equations whose marks are losses, and whose senders do nothing but increase and decrease windows."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the rules have found."""

    summary: tuple[str, ...]
    """How many of the means agree."""
    lines: tuple[str, ...]
    """One for each quantity of each engine, and those on how much they vary."""
    reasons: tuple[str, ...]
    """What follows from the inputs of the model."""


def findings(
    rows: Sequence[Mapping[str, Any]],
    engines: Sequence[str],
    inputs: Mapping[str, Mapping[str, Any]],
) -> Findings:
    """Return what `rows` (as `accounts.compared` makes them) say of the `engines` after the first one.

    `inputs` are those of the fluid equations for each setting: `equations` and `inputs`, as in the manifest
    of a model's result; empty for other models.
    """
    names = {each.name for each in QUANTITIES}
    shown = [row for row in rows if row["quantity"] in names]
    first, *others = engines
    summary, lines, reasons = [], [], []
    for engine in others:
        summary.append(_summary(shown, first, engine))
        order = dict.fromkeys(row["quantity"] for row in shown)
        lines += [_means([row for row in shown if row["quantity"] == name], first, engine) for name in order]
        lines += _variation(shown, first, engine)
        if engine == MODEL:
            reasons += _reasons(shown, first, engine, inputs)
    return Findings(tuple(summary), tuple(lines), tuple(reasons))


def _agree(row: Mapping[str, Any], first: str, engine: str) -> bool | None:
    base, mean, ci95 = row[first]["mean"], row[engine]["mean"], row[first]["ci95"]
    if base is None or mean is None:
        return None
    return bool(abs(mean - base) <= max(AGREE * abs(base), ci95 or 0.0))


def _summary(rows: Sequence[Mapping[str, Any]], first: str, engine: str) -> str:
    verdicts = [verdict for row in rows if (verdict := _agree(row, first, engine)) is not None]
    within = sum(verdicts)
    return (
        f"Of {plural(len(verdicts), 'mean')} of the {_called(engine)}, {within}"
        f" {'lies' if within == 1 else 'lie'}"
        f" within the {first}'s 95 % interval or {100 * AGREE:g} % of its value."
    )


def _means(rows: Sequence[Mapping[str, Any]], first: str, engine: str) -> str:
    """Return how a quantity's means compare, settings of the same verdict together."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        base, mean = row[first]["mean"], row[engine]["mean"]
        if base is None or mean is None:
            continue
        verdict = _verdict(row, first, engine)
        ratio = (
            f" (×\u00a0{brief(mean / base, 3)})"
            if base and mean and verdict not in ("agrees", "is zero")
            else ""
        )
        groups.setdefault(verdict, []).append(f"{row['setting']}{ratio}")
    parts = [f"{verdict} under {_listed(groups[verdict])}" for verdict in _VERDICTS if verdict in groups]
    return f"{rows[0]['label']}: the {_called(engine)}'s {'; '.join(parts)}."


_VERDICTS = (
    "agrees",
    "is less by up to a quarter",
    "is more by up to a quarter",
    "is less, but above half",
    "is more, but below twice",
    "is half or less",
    "is twice or more",
    "is zero",
    "is not zero",
)


def _verdict(row: Mapping[str, Any], first: str, engine: str) -> str:
    base, mean = row[first]["mean"], row[engine]["mean"]
    if _agree(row, first, engine):
        return "agrees"
    if not base:
        return "is not zero"
    if mean == 0:
        return "is zero"
    ratio = mean / base
    if abs(ratio - 1) <= NEAR:
        return "is less by up to a quarter" if ratio < 1 else "is more by up to a quarter"
    if ratio < 1:
        return "is half or less" if ratio <= 0.5 else "is less, but above half"
    return "is twice or more" if ratio >= 2 else "is more, but below twice"


def _variation(rows: Sequence[Mapping[str, Any]], first: str, engine: str) -> list[str]:
    """Return how the queue's deviations over time compare."""
    steady, swinging = [], []
    for row in rows:
        base, std = row[first]["std"], row[engine]["std"]
        if row["quantity"] != "queue" or base is None or std is None or not base:
            continue
        shown = "0" if std < ROUNDING * abs(row[engine]["mean"] or 0.0) else brief(std, 2)
        text = f"{row['setting']} ({shown} against {brief(base, 2)} packets)"
        if std < STEADY * base:
            steady.append(text)
        elif std > SWINGING * base:
            swinging.append(text)
    lines = []
    if steady:
        lines.append(
            f"The {_called(engine)}'s queue stands still under {_listed(steady)}: its standard deviation is"
            f" less than a tenth of the {first}'s."
            + (
                " Equations for means have come to rest there; packets and bursts, which"
                f" keep the {first}'s queue moving, are not in them."
                if engine == MODEL
                else ""
            )
        )
    if swinging:
        lines.append(
            f"The {_called(engine)}'s queue swings more than twice as far under {_listed(swinging)}, by the"
            " standard deviation."
        )
    return lines


def _reasons(
    rows: Sequence[Mapping[str, Any]], first: str, engine: str, inputs: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return what windows the connections have, and whether the equations know their bounds."""
    small, large = [], []
    for row in rows:
        given = inputs.get(row["setting"])
        if row["quantity"] != "offered_load" or given is None:
            continue
        of = {each["symbol"]: each["value"] for each in given["inputs"]}
        # Segments that a connection has under way in a round trip, for each Mbit/s of all.
        each_has = 1e6 / (8 * of["S"]) * of["R"] / of["m"]
        base, mean, most = row[first]["mean"], row[engine]["mean"], of["MaxRcvWin"]
        if base is not None and base * each_has < 1 and given["equations"] in _WITHOUT_TIMEOUTS:
            window = base * each_has
            balance = 100 / (1 + of["1 - decr"] * window**2)
            marked = next(
                r[first]["mean"]
                for r in rows
                if r["setting"] == row["setting"] and r["quantity"] == "mark_probability"
            )
            small.append(
                f"under {row['setting']} {brief(window, 2)} segments, a balance at {brief(balance, 2)} %, and"
                f" {brief(marked, 2)} % in the {first}"
            )
        if mean is not None and most is not None and mean * each_has > 1.01 * most:
            large.append(
                f"{row['setting']} ({brief(mean * each_has, 3)} segments; it offers {brief(most, 3)})"
            )
    lines = []
    if small:
        lines.append(
            f"With the {first}'s offered load a connection has less than one segment under way in a round"
            " trip,"
            " and the equations' additive increase and multiplicative decrease balance there only at a mark"
            f" probability that is far from the {first}'s: {'; '.join(small)}. A window in these equations"
            " may be"
            " as small as it likes. A TCP's is at least a segment: what keeps the load down is its waiting"
            " for timeouts, which these equations do not have."
        )
    if large:
        lines.append(
            f"In the {engine} a connection has more under way in a round trip than its receiver offers, under"
            f" {_listed(large)}: these equations do not know the receive window."
        )
    return lines


def _called(engine: str) -> str:
    """Return what a sentence calls an engine."""
    return "live run" if engine == LIVE else engine


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
