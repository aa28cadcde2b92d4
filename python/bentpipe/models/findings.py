"""Findings of a validation: sentences on where engines differ, derived from the numbers by fixed rules."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bentpipe.format import ROUNDING, and_list, brief, convert, number_of, plural
from bentpipe.models.domain import background_of, domain_of, domain_warnings, is_outside, key_of
from bentpipe.models.engines import QUANTITIES

__all__ = ["Findings", "findings", "known_failures", "left_out"]

MODEL, LIVE = "model", "live"
"""Engines that are compared with the first one."""
AGREE = 0.05
"""Means agree if they differ by at most this share, or lie within the first engine's interval."""
NEAR = 0.25
STEADY = 0.1
"""A queue is steady if its standard deviation is below this share of the other engine's."""
SWINGING = 2.0
_WITHOUT_TIMEOUTS = ("gateway", "single_queue")
"""Equations in which marks are losses and senders only increase and decrease their windows."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of the rules."""

    summary: tuple[str, ...]
    """Number of means that agree."""
    lines: tuple[str, ...]
    """A sentence for each quantity of each engine, and sentences on the queue's variation."""
    reasons: tuple[str, ...]
    """Explanations that follow from the model's inputs."""


def findings(
    rows: Sequence[Mapping[str, Any]],
    engines: Sequence[str],
    inputs: Mapping[str, Mapping[str, Any]],
) -> Findings:
    """Return the findings on the `engines` after the first, from the `rows` of `engines.compared`.

    `inputs` gives for each setting the fluid `equations` and their `inputs`, as in the manifest of a model's
    result; empty for other models.
    """
    names = {each.name for each in QUANTITIES}
    shown = [row for row in rows if row["quantity"] in names]
    first, *others = engines
    summary, lines, reasons = [], [], []
    for engine in others:
        summary.append(_summary(shown, first, engine))
        order = dict.fromkeys(row["quantity"] for row in shown)
        for name in order:
            lines += _means([row for row in shown if row["quantity"] == name], first, engine)
        lines += _variation(shown, first, engine)
        if engine == MODEL:
            reasons += _reasons(shown, first, engine, inputs)
    return Findings(tuple(summary), tuple(lines), tuple(reasons))


def known_failures(settings: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences on settings for which the equations are known to fail, with a remedy.

    `settings` are those of the manifest of a model's result, `rows` its means. docs/models-domain.md shows
    where the equations fail, docs/models-gateway.md why.
    """
    large = dict[str, float]()
    load = {row["setting"]: row["mean"] for row in rows if row["quantity"] == "offered_load"}
    for setting in settings:
        name, of = setting["name"], {each["symbol"]: each["value"] for each in setting["inputs"]}
        offered, most = load.get(name), of["MaxRcvWin"]
        if offered is not None and most is not None:
            flight = (1e6 * offered - background_of(setting)) / (8 * of["S"]) * of["R"] / of["m"]
            if flight > 1.01 * most:
                large[name] = flight
    slow = [each["name"] for each in settings if _is_slower_than_regulator(each["effective"])]
    lines = []
    if slow:
        lines.append(
            f"Under {and_list(slow)} the satellite link can be slower than the regulator, whose rate the"
            ' equations take. Set gateway.regulator.rate = "link", with a link of a rate, steps or drawn'
            " rates, or simulate."
        )
    lines += [*domain_warnings(settings), *left_out(settings)]
    if large:
        lines.append(
            f"Under {and_list(large)} a connection has more in flight than its receive window:"
            " these equations have no receive window. Compare with bentpipe validate."
        )
    return lines


def left_out(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on what the fluid equations leave out of a scenario, if anything.

    `settings` are those of the manifest of a model's result.
    """
    rows = {row["key"]: str(row["value"]).strip('"') for each in settings for row in each["effective"]}
    found = [
        f"{key} = {value}"
        for key, value in rows.items()
        if (key.startswith("transport.") and key.endswith(".algorithm") and value not in _RENO)
        or (key.startswith("traffic.") and key.endswith(".think_time") and value != "0 s")
    ]
    if not found:
        return []
    return [
        f"The equations do not include {and_list(found)}: windows grow and shrink as Reno's, and every"
        " connection always has something to send. Compare with bentpipe validate."
    ]


_RENO = ("reno", "newreno")


def _is_slower_than_regulator(effective: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the rate of a gateway's satellite link varies, or is less than that of its regulator.

    `effective` are the parameters in force, as a manifest lists them.
    """
    rows = {row["key"]: str(row["value"]) for row in effective}
    for key, rate in rows.items():
        gateway = key.removesuffix(".regulator.rate")
        if gateway == key or rate == "link":
            continue
        name = rows.get(f"{gateway}.name", "gateway").strip('"')
        terminal = rows.get(f"{gateway}.terminal", "terminal").strip('"')
        for ends, between in rows.items():
            link = ends.removesuffix(".between")
            if link == ends or sorted(json.loads(between)) != sorted([name, terminal]):
                continue
            way = link if json.loads(between)[0] == name else f"{link}.reverse"
            if rows.get(f"{way}.capacity", "none") not in {"", "none"}:
                return True
            regulated, link_rate = (_bits(text) for text in (rate, rows.get(f"{way}.rate", "none")))
            if regulated is not None and link_rate is not None and link_rate < regulated:
                return True
    return False


def _bits(text: str) -> float | None:
    """Return a rate as a scenario writes it [bit/s]; None without a number."""
    found = number_of(text)
    return None if found is None else convert(*found, "bps")


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


def _means(rows: Sequence[Mapping[str, Any]], first: str, engine: str) -> list[str]:
    """Return the sentence that compares a quantity's means, if both engines have some, grouped by verdict."""
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
    parts = [f"{verdict} under {and_list(groups[verdict])}" for verdict in _VERDICTS if verdict in groups]
    return [f"{rows[0]['label']}: the {_called(engine)}'s {'; '.join(parts)}."] if parts else []


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
    """Return sentences that compare the queue's standard deviations over time."""
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
            f"The {_called(engine)}'s queue is steady under {and_list(steady)}: its standard deviation is"
            f" less than a tenth of the {first}'s."
            + (
                " The equations describe means, which have settled; packets and bursts, which"
                f" keep the {first}'s queue moving, are not modelled."
                if engine == MODEL
                else ""
            )
        )
    if swinging:
        lines.append(
            f"The {_called(engine)}'s queue has more than twice the standard deviation under"
            f" {and_list(swinging)}."
        )
    return lines


def _reasons(
    rows: Sequence[Mapping[str, Any]], first: str, engine: str, inputs: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return explanations from the connections' windows: below the domain, or above the receive window."""
    small, large = [], []
    for row in rows:
        given = inputs.get(row["setting"])
        if row["quantity"] != "offered_load" or given is None:
            continue
        of = {each["symbol"]: each["value"] for each in given["inputs"]}
        base, mean, most = row[first]["mean"], row[engine]["mean"], of["MaxRcvWin"]
        # Segments in flight per connection: datagrams are offered, too.
        window, modelled = (
            max(1e6 * (load or 0.0) - background_of(given), 0.0) / (8 * of["S"]) * of["R"] / of["m"]
            for load in (base, mean)
        )
        borders = domain_of(*key_of(given))
        outside = borders is not None and is_outside(borders, "loss_rate", window)
        marked = next(
            (
                r[first]["mean"]
                for r in rows
                if r["setting"] == row["setting"] and r["quantity"] == "mark_probability"
            ),
            None,
        )
        if marked is not None and given["equations"] in _WITHOUT_TIMEOUTS and outside:
            balance = 100 / (1 + of["1 - decr"] * window**2)
            small.append(
                f"under {row['setting']} {brief(window, 2)} segments, equilibrium at {brief(balance, 2)} %,"
                f" {brief(marked, 2)} % in the {first}"
            )
        if most is not None and modelled > 1.01 * most:
            large.append(
                f"{row['setting']} ({brief(modelled, 3)} segments in flight, receive window {brief(most, 3)})"
            )
    lines = []
    if small:
        lines.append(
            f"At the {first}'s offered load a connection has too few segments in flight for these equations"
            " (docs/models-domain.md). Their additive increase and multiplicative decrease are in equilibrium"
            f" at another mark probability than the {first}'s: {'; '.join(small)}. The equations allow any"
            " window. TCP's is at least one segment; timeouts, which these equations lack, limit its load."
        )
    if large:
        lines.append(
            f"In the {engine} a connection has more in flight than its receive window, under"
            f" {and_list(large)}: these equations have no receive window."
        )
    return lines


def _called(engine: str) -> str:
    """Return an engine's name in a sentence."""
    return "live run" if engine == LIVE else engine
