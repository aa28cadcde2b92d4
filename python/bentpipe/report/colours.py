"""Colours of pages and charts: one table of light colours, and the dark colour of each.

Charts name colours of `DARK` as `var(--c-…)`, so the style sheet alone switches between light, dark and
print. Colours that a scale interpolates stay fixed: write them in a form that `DARK` does not hold.
"""

import re
from collections.abc import Sequence

__all__ = [
    "AXIS",
    "DARK",
    "GRID",
    "INK",
    "LINE",
    "MUTED",
    "PALETTE",
    "PAPER",
    "SOFT",
    "as_variable",
    "as_variables",
    "of_settings",
    "text_colour",
    "variables",
]

INK, MUTED, PAPER, SOFT = "#1f2933", "#52606d", "#ffffff", "#f5f7fa"
GRID, LINE, AXIS = "#e4e7eb", "#d9dee4", "#9aa5b1"

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
"""Okabe and Ito's colours, distinct for all common types of colour blindness."""

_TEXT = {
    "#D55E00": "#a84a00",
    "#009E73": "#00704f",
    "#CC79A7": "#9c4477",
    "#E69F00": "#845a00",
    "#56B4E9": "#1d6a97",
    AXIS: MUTED,
}
"""Darker forms of colours that are too light for text on white."""

DARK = {
    INK: "#e4e8ec",
    MUTED: "#a9b4bf",
    PAPER: "#14181d",
    SOFT: "#1e252c",
    GRID: "#2b333c",
    LINE: "#39424d",
    AXIS: "#7b8794",
    "#0072B2": "#4a9fe0",
    "#D55E00": "#f2813a",
    "#009E73": "#2fbf93",
    "#CC79A7": "#dd94bd",
    "#E69F00": "#f0b437",
    "#56B4E9": "#a5d8f7",
    "#4D4D4D": "#c4c9cf",
    "#a84a00": "#f2813a",
    "#00704f": "#2fbf93",
    "#9c4477": "#dd94bd",
    "#845a00": "#f0b437",
    "#1d6a97": "#a5d8f7",
    "#9ecae8": "#2d5f80",
    "#c8a98c": "#8f7358",
}
"""The colour in the dark scheme of each colour of the light one."""
_COLOUR = re.compile(r'"(#[0-9A-Fa-f]{6})"')


def text_colour(colour: str) -> str:
    """Return a colour in which text on the page's background has a contrast of at least 4.5:1."""
    return _TEXT.get(colour, colour)


def of_settings(settings: Sequence[str], drawn: Sequence[str]) -> dict[str, str]:
    """Return a colour for each setting, the same in every figure and table; grey for those not `drawn`."""
    return dict.fromkeys(settings, AXIS) | {
        name: PALETTE[index % len(PALETTE)] for index, name in enumerate(drawn)
    }


def variables() -> str:
    """Return the style sheet's variables `--c-RRGGBB`: light, and dark on a screen that asks for it."""
    light = "".join(f"{_name(colour)}:{colour};" for colour in DARK)
    dark = "".join(f"{_name(colour)}:{other};" for colour, other in DARK.items())
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def as_variable(colour: str) -> str:
    """Return a colour of `DARK` as variable, any other text as it is."""
    return f"var({_name(colour)})" if colour in DARK else colour


def as_variables(specifications: str) -> str:
    """Return charts' specifications as JSON, with the colours of `DARK` as variables."""
    return _COLOUR.sub(lambda found: f'"{as_variable(found[1])}"', specifications)


def _name(colour: str) -> str:
    return f"--c-{colour[1:].lower()}"
