"""Stories: a scenario's run with captions at points in time.

A story is a file in `stories`: a scenario by name, settings, changes during the run, and captions that say
what to look at. The claims of a caption are checked by a test.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from bentpipe.runs.plan import shipped

__all__ = ["listed"]

FOLDER = Path(__file__).parent / "stories"


@cache
def listed() -> list[dict[str, Any]]:
    """Return all stories in their order, each with the text of its scenario."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        story = tomllib.loads(path.read_text(encoding="utf-8"))
        found.append({**story, "name": path.stem, "file": str(shipped()[story["scenario"]])})
    return found
