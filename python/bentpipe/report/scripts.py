"""The scripts that draw a report's charts.

`vl-convert-python` contains them, but takes 130 MB and a second to bundle them. So the build bundles them
once (`python -m bentpipe.report.scripts`) and stores the bundle beside the templates. If it is missing or of
another version, it is bundled each time.
"""

import importlib.metadata
from importlib import resources
from pathlib import Path

from bentpipe import files
from bentpipe.report.vega import SCHEMA_VERSION

__all__ = ["VEGA_LITE", "bundle"]

VEGA_LITE = ".".join(SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite that the charts are written for."""


def bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, which sets `window.vegaEmbed`."""
    kept = _kept()
    return kept.read_text(encoding="utf-8") if kept.is_file() else _make()


def _kept() -> Path:
    version = importlib.metadata.version("vl-convert-python")
    return Path(str(resources.files("bentpipe.report") / "templates" / f"vega-lite-{VEGA_LITE}-{version}.js"))


def _make() -> str:
    import vl_convert

    # The stub requires a snippet; without one, the bundle sets `window.vegaEmbed`, as needed here.
    return vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]


if __name__ == "__main__":
    files.write(_kept(), _make().encode())
