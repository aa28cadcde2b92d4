import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import algorithm_pages as algorithms
import architecture_figure
import bentpipe
import reference
from bentpipe import _core

DOCS = ROOT / "docs"


def test_examples_in_the_package_docstring_work() -> None:
    found = doctest.testmod(bentpipe, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 5
    assert found.failed == 0


def test_examples_in_python_md_work() -> None:
    found = doctest.testfile(str(DOCS / "python.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 5
    assert found.failed == 0


def test_every_python_block_of_python_md_is_an_example_that_runs() -> None:
    page = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("python.md", "python-aqms.md"))
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) > 10
    for block in blocks:
        assert block.startswith(">>> "), block
        # Doctest takes lines up to an empty one as expected output.
        assert block.endswith("\n\n"), block


def test_examples_in_python_aqms_md_work() -> None:
    page = str(DOCS / "python-aqms.md")
    found = doctest.testfile(page, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 5
    assert found.failed == 0


def test_examples_in_markov_md_work() -> None:
    found = doctest.testfile(str(DOCS / "markov.md"), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


def test_examples_in_qoe_md_work() -> None:
    found = doctest.testfile(str(DOCS / "qoe.md"), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_generated_pages_are_current(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == reference.updated(name, text), "run `make docs`"


def test_security_page_names_tests_that_exist() -> None:
    page = (DOCS / "gateway-security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and line.count("|") == 4]
    named = [name for row in rows for name in re.findall(r"`((?:\w+::)?[a-z0-9_]{12,})`", row.split("|")[3])]
    assert len(named) > 30
    sources = {
        crate.name: "".join(path.read_text(encoding="utf-8") for path in crate.rglob("*.rs"))
        for crate in (ROOT / "crates").iterdir()
    }
    for name in named:
        crate, _, function = name.rpartition("::")
        assert re.search(
            rf"#\[test\]\n(?:\s*(?:///|#\[).*\n)*\s*fn {function}\(", sources[crate or "gatewayd"]
        ), name


# Independent of the generator: every name under a `properties` of the schema is in the page as a key.
def test_scenario_reference_has_every_key_of_the_schema() -> None:
    page = (DOCS / "scenarios.md").read_text(encoding="utf-8")
    listed = {part for name in re.findall(r"`([^`]+)`", page) for part in (name, name.rpartition(".")[2])}
    listed |= {name.strip('"') for name in listed}
    listed |= set(re.findall(r"^## `\[+([a-z]+)", page, flags=re.MULTILINE))

    def keys(schema: object) -> set[str]:
        if isinstance(schema, list):
            return {key for each in schema for key in keys(each)}
        if not isinstance(schema, dict):
            return set()
        found = set(schema.get("properties", {}))
        return found | {key for each in schema.values() for key in keys(each)}

    wanted = keys(json.loads(_core.schema())) - {"kind", "protocol", "method"}  # headings
    assert len(wanted) > 200
    assert wanted - listed == set()


def test_links_within_the_scenario_reference_have_targets() -> None:
    page = (DOCS / "scenarios.md").read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.+)$", page, flags=re.MULTILINE)
    slugs = {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}
    linked = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert linked <= slugs


def test_architecture_figure_is_current() -> None:
    assert architecture_figure.FIGURE.read_text(encoding="utf-8") == architecture_figure.svg(), (
        "run `make docs`"
    )


def test_functions_and_files_named_in_architecture_md_exist() -> None:
    page = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", page, flags=re.MULTILINE)
    steps = [(functions, files) for functions, files in steps if ".rs" in files]
    assert len(steps) > 15
    for functions, files in steps:
        text = "".join((ROOT / file).read_text(encoding="utf-8") for file in re.findall(r"`([^`]+)`", files))
        for function in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"\bfn {function}\b", text), f"{function} is not in {files}"
    for path in re.findall(r"`((?:crates|python|tools|papers)/[^`]*)`", page):
        assert (ROOT / path).exists(), f"{path} does not exist"


ALGORITHMS = {page.name: page for page in algorithms.pages()}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_page_of_an_algorithm_is_complete_and_current(name: str) -> None:
    page = ALGORITHMS[name]
    try:
        text = page.markdown()
    except algorithms.HeaderError as error:
        pytest.fail(str(error), pytrace=False)
    path = DOCS / "algorithms" / f"{name}.md"
    assert path.exists(), f"docs/algorithms/{name}.md is missing: run `make docs`"
    if path.read_text(encoding="utf-8") != text:
        pytest.fail(f"docs/algorithms/{name}.md differs from {page.source}: run `make docs`", pytrace=False)
    heads = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert heads == [
        "Description",
        "Departures from the source",
        "In a satellite gateway",
        *(["In the fluid model"] if page.entry.get("fluid_model") else []),
        "Parameters",
        "Presets",
        "Source",
    ]
    for each in page.entry["params"]:
        assert f"| `{each['name']}` |" in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_index_of_algorithms_is_current() -> None:
    text = (DOCS / "algorithms/README.md").read_text(encoding="utf-8")
    assert text == algorithms.index(list(ALGORITHMS.values())), "docs/algorithms/README.md: run `make docs`"
    found = {path.stem for path in (DOCS / "algorithms").glob("*.md")}
    assert found == {"README", *ALGORITHMS}, "docs/algorithms: run `make docs`"


def test_incomplete_header_is_reported_with_its_file(tmp_path: Path) -> None:
    entry = {**ALGORITHMS["red"].entry, "name": "none"}
    page = algorithms.Page("aqms", entry, tmp_path)
    with pytest.raises(algorithms.HeaderError, match=r"crates/queue/src/aqm/none\.rs: missing"):
        page.markdown()
    file = tmp_path / page.source
    file.parent.mkdir(parents=True)
    file.write_text("//! None: nothing.\n//!\n//! Nothing.\n//!\n//! *Departures:* none.\n\nuse x;\n")
    with pytest.raises(
        algorithms.HeaderError, match=r"none\.rs: its header has no \*In a satellite gateway:\*"
    ):
        page.markdown()


def test_header_is_converted_to_markdown(tmp_path: Path) -> None:
    page = algorithms.Page("aqms", {**ALGORITHMS["droptail"].entry, "name": "none"}, tmp_path)
    file = tmp_path / page.source
    file.parent.mkdir(parents=True)
    lines = [
        "None: [`Queue::offer`] passes all.",
        "",
        "With",
        "    x = 1",
        "    y <= x",
        "so `a < b`, and a < b.",
        "- one",
        "  still one",
        "- two",
        "",
        "*Departures:* none.",
        "",
        "*In a satellite gateway:* no.",
    ]
    header = "".join(f"//! {line}".rstrip() + "\n" for line in lines) + "\nuse x;\n"
    file.write_text(header)
    with pytest.raises(algorithms.HeaderError, match="has a fluid model, but no comment"):
        page.markdown()
    file.write_text(
        header + "/// None as a fluid: with\n///\n///     p = 0\nstruct NoneLaw;\n\n/// Else.\nfn f() {}\n"
    )
    text = page.markdown()
    assert "## In the fluid model\n\nNone as a fluid: with\n\n```text\np = 0\n```\n\n## Parameters" in text
    assert "None: `Queue::offer` passes all.\n" in text
    assert (
        "With\n\n```text\nx = 1\ny <= x\n```\n\nso `a < b`, and a &lt; b.\n\n- one\n  still one\n- two\n"
        in text
    )
    assert "## Departures from the source\n\nNone.\n" in text
    assert "## In a satellite gateway\n\nNo.\n" in text


PAGES = [
    "README.md",
    "docs/algorithms/README.md",
    *(f"docs/{path.name}" for path in sorted(DOCS.glob("*.md"))),
]


@pytest.mark.parametrize("page", PAGES)
def test_links_in_the_docs_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_index_links_to_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert "](docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")} - {"README.md"}
    missing = [page for page in sorted(pages) if f"]({page})" not in index]
    assert not missing, missing


def test_make_targets_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = set(
        re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    )
    assert {one or other for one, other in named} <= targets
    assert {"run", "test", "bench"} <= targets


START = "import runpy, sys; sys.path.insert(0, sys.argv[2]); runpy.run_path(sys.argv[1], run_name='imported')"
SCRIPTS = sorted(
    set(
        re.findall(
            r"^\t(?:PYTHONPATH=(\w+) )?\$\(BIN\)/python (python/\S+\.py)",
            (ROOT / "Makefile").read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
    )
)


def test_scripts_that_make_runs_find_their_modules() -> None:
    assert len(SCRIPTS) > 3
    for folder, script in SCRIPTS:
        command = [sys.executable, "-P", "-c", START, script, str((ROOT / script).parent)]
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_requirements_have_hashes_and_no_urls() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index" not in text
        assert "--find-links" not in text
        pins = [line for line in text.splitlines() if re.match(r"[a-z0-9]", line)]
        assert len(pins) > 10
        assert all(re.match(r"[a-z0-9-]+==\S+ ", pin) for pin in pins)
        assert text.count("--hash=sha256:") >= len(pins)


def test_stub_declares_exactly_the_names_of_the_core() -> None:
    stub = (Path(bentpipe.__file__).parent / "_core.pyi").read_text(encoding="utf-8")
    names = {name for name in dir(bentpipe._core) if not name.startswith("__")}
    declared = set(re.findall(r"^(?:class|def) (\w+)", stub, flags=re.MULTILINE))
    assert names == declared
    for name in ("Scenario", "Progress", "Run", "Table", "Verdict", "Packet", "Context", "QueueState", "Rng"):
        members = {
            member
            for member in vars(getattr(bentpipe._core, name))
            if not member.startswith("_") and not member.isupper()
        }
        body = stub.split(f"class {name}:")[1].split("\n@final")[0].split("\ndef ")[0]
        assert members == set(re.findall(r"    def ([a-z]\w+)", body)), name


def test_gateway_page_lists_every_log_event() -> None:
    page = (
        (DOCS / "gateway-monitoring.md").read_text(encoding="utf-8").split("## The log")[1].split("\n## ")[0]
    )
    listed = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    call = re.compile(r'(?:log::(?:error|warn|info|debug)|\bwrite\)?)\((?:\*level, )?"(\w+)"')
    sources = sorted((ROOT / "crates/gatewayd/src").rglob("*.rs"))
    logged = {event for path in sources for event in call.findall(path.read_text(encoding="utf-8"))}
    assert len(logged) > 10
    assert set(listed) == logged


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", *(f"docs/{x.name}" for x in DOCS.glob("*.md"))]
)
def test_written_part_of_a_page_has_at_most_2500_words(name: str) -> None:
    """Code does not count. A long page with a generated part is a reference, and begins with its contents."""
    text = (ROOT / name).read_text(encoding="utf-8")
    generated = r"<!-- generated by [^>]*: begin -->.*?<!-- generated by [^>]*: end -->"
    written = re.sub(rf"{generated}|^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(written.split()) <= 2500
    if re.search(generated, text, flags=re.DOTALL) and len(text.split()) > 2500:
        assert "](#" in text[: text.index("\n## ")]


def test_choosing_md_lists_every_algorithm() -> None:
    text = (DOCS / "choosing.md").read_text(encoding="utf-8")
    missing = [name for name in ALGORITHMS if f"| `{name}`" not in text]
    assert not missing, f"run `make choosing`: {missing}"
