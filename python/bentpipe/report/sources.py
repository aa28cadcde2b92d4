"""The sources that scenarios, parameters and printed values cite by a short key, spelt out for pages."""

import re

__all__ = ["SOURCES", "linked"]

SOURCES = {
    "B07": "D. J. Byun, Congestion control in satellite networks, PhD dissertation, 2007",
    "BB": "D. J. Byun and J. S. Baras, AVQRED on a generic gateway",
    "JM": "S. Jain and E. Modiano, Buffer management schemes for enhanced TCP performance over satellite"
    " links, 2004",
    "R11": "R. Rahmani, C. Åhlund and T. Kanter, Design of active queue management for robust control on"
    " access router for heterogeneous networks, EURASIP Journal on Wireless Communications and Networking,"
    " 2011, 946498",
}
"""The source of each key, which texts cite as `[B07]` or `[B07 4.4]`."""

_CITED = re.compile(rf"\[({'|'.join(SOURCES)})(?=[ \]])([^\[\]<>]*)\]")
_TAG = re.compile(r"(<pre>.*?</pre>|<[^>]*>)", re.DOTALL)


def linked(html: str) -> tuple[str, dict[str, str]]:
    """Link the citations in the text of `html`; return it and the cited sources by key."""
    found: set[str] = set()

    def link(match: re.Match[str]) -> str:
        found.add(match[1])
        return f'<a class="cited" href="#source-{match[1]}">[{match[1]}{match[2]}]</a>'

    # Odd parts are tags or `<pre>` blocks: nothing is linked, but citations in `title` attributes count.
    parts = _TAG.split(html)
    parts[::2] = [_CITED.sub(link, part) for part in parts[::2]]
    for part in parts[1::2]:
        found.update(match[1] for match in _CITED.finditer(part))
    return "".join(parts), {key: SOURCES[key] for key in sorted(found)}
