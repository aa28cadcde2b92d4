"""The tables of docs/gateway-terminals.md are those of its data."""

import json
from pathlib import Path

from conftest import ROOT

import beam_page as page
from blocks import replaced


def test_tables_are_those_of_the_data() -> None:
    figures = json.loads((ROOT / "docs/gateway-terminals.json").read_text())
    text = (ROOT / "docs/gateway-terminals.md").read_text()
    for name, make in page.TABLES.items():
        renewed = replaced(text, page.BEGIN.format(name), page.END, make(figures), "page")
        assert renewed == text, f"{name}: run tools/beam_page.py docs"


def test_files_with_figures_replace_the_data(tmp_path: Path) -> None:
    begins = "".join(f"{page.BEGIN.format(name)}\n\nold\n{page.END}\n" for name in page.TABLES)
    (tmp_path / "gateway-terminals.md").write_text(f"before\n{begins}after\n")
    (tmp_path / "gateway-terminals.json").write_text('{"weights": 2.0, "peak": 1.0, "reload": 5.0}')
    (tmp_path / "a.jsonl").write_text('{"weights":2.987}\n{"peak":1.9}\n')
    (tmp_path / "b.json").write_text('{\n  "terminals": 10,\n  "joined": 1.25\n}\n')
    page.main(str(tmp_path), str(tmp_path / "a.jsonl"), str(tmp_path / "b.json"))
    text = (tmp_path / "gateway-terminals.md").read_text()
    assert "| 2.987 | 3 |" in text
    assert "| until all 10 terminals have joined [s] | 1.2 | 20 |" in text
    assert "old" not in text
    assert "a reload under load" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert json.loads((tmp_path / "gateway-terminals.json").read_text())["peak"] == 1.9
