"""Findings of an evaluation about each setting, in sentences."""

from bentpipe.evaluation.result import PARTS, EvaluationResult
from bentpipe.format import and_list, number

__all__ = ["STRONG", "WEAK", "sentence", "verdict"]

STRONG, WEAK = 0.15, -0.15
"""Net shares of comparisons from which a setting is good or bad at a part."""
_NAMED = 3


def sentence(result: EvaluationResult, profile: str, setting: str) -> str:
    """Return what a setting is good for in a profile, in one sentence."""
    titles = PARTS[result.kind]
    net = {part: result.standing(profile, part)[setting].net for part in result.parts(profile)}
    good = [part for part in sorted(net, key=lambda part: -net[part]) if net[part] >= STRONG][:_NAMED]
    bad = [part for part in sorted(net, key=lambda part: net[part]) if net[part] <= WEAK][:_NAMED]
    words = [f"good at {and_list(titles[part] for part in good)}" if good else "nowhere clearly ahead"]
    if bad:
        words.append(f"weak at {and_list(titles[part] for part in bad)}")
    medium = next((case for case in result.cases_of(profile) if case.section == "8.2.3"), None)
    text = "; ".join(words)
    if medium is not None:
        delay, rate = medium.mean("bulk.delay_p95", setting), medium.mean("throughput", setting)
        if delay is not None and rate is not None:
            text += f"; {number(rate)} Mbit/s at {number(delay)} ms end to end (p95) under medium congestion"
    return f"{text[0].upper()}{text[1:]}."


def verdict(result: EvaluationResult) -> list[str]:
    """Return a sentence for each profile: who wins most comparisons, and in which parts others do."""
    titles, lines = PARTS[result.kind], []
    for profile in result.profiles:
        name = profile["name"]
        ranked = result.ranked(name)
        best = ranked[0]
        share = result.standing(name)[best].net
        others: dict[str, list[str]] = {}
        for part in result.parts(name):
            found = result.standing(name, part)
            top = max(ranked, key=lambda setting: found[setting].net)
            if top != best:
                others.setdefault(top, []).append(titles[part])
        rest = "; ".join(f"{setting} at {and_list(parts)}" for setting, parts in others.items())
        lines.append(
            f"{profile['title']}: {best} wins most, {share:+.0%} of its comparisons net"
            + (f". Better in parts: {rest}." if rest else ".")
        )
    return lines
