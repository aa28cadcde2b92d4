"""The recipes of CONTRIBUTING.md work: all are followed on one copy of the tree, which is built and tried."""

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from recipes import Block, RecipeError, Workshop, apply, missing, read

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = read(CONTRIBUTING)


@pytest.mark.timeout(1800)
def test_every_recipe_works_on_a_copy_of_the_tree() -> None:
    """Cold, everything is compiled; a repeated run compiles what has changed."""
    workshop = Workshop(ROOT, ROOT / "target/recipes")
    workshop.copy(RECIPES)
    workshop.build()
    for recipe in RECIPES:
        workshop.follow(recipe)
    for guard in GUARDS:
        workshop.run(guard)


GUARDS = [
    "cargo fmt --all --check",
    "ruff check --quiet python examples tools",
    "ruff format --check --quiet python examples tools",
]
"""Checks of the whole copy after the last recipe."""


def test_every_recipe_applies_to_the_tree(tmp_path: Path) -> None:
    files = Workshop(ROOT, tmp_path).planned(RECIPES)
    assert {file for recipe in RECIPES for file in recipe.files()} <= set(files)


def test_every_recipe_tells_how_to_try_it() -> None:
    assert len(RECIPES) > 0
    for recipe in RECIPES:
        kinds = [block.kind for block in recipe.blocks]
        assert recipe.files(), f"{recipe.title} changes no file"
        assert "sh" in kinds, f"{recipe.title} has no commands"
        assert "text" in kinds, f"{recipe.title} does not say what the commands print"


def block(body: str, kind: str = "diff") -> Block:
    return Block(kind, "some/file", body, 7)


def test_a_diff_adds_and_removes_lines_at_its_context() -> None:
    assert apply(block(" b\n-c\n+C\n+D\n@@\n d\n+e\n"), "a\nb\nc\nd\n") == "a\nb\nC\nD\nd\ne\n"
    assert apply(block("\n+x\n"), "a\n\nb\n") == "a\n\nx\nb\n"


@pytest.mark.parametrize(("text", "times"), [("a\nb\n", 0), ("c\nc\n", 2)])
def test_context_that_is_missing_or_ambiguous_is_an_error(text: str, times: int) -> None:
    with pytest.raises(
        RecipeError, match=rf"CONTRIBUTING\.md:7: some/file has these lines {times} times .*\n    c"
    ):
        apply(block(" c\n+d\n"), text)


def test_a_new_file_must_not_exist_and_a_changed_one_must() -> None:
    assert apply(block("fn f() {}\n", "rust"), None) == "fn f() {}\n"
    with pytest.raises(RecipeError, match="some/file exists already"):
        apply(block("x\n", "rust"), "y\n")
    with pytest.raises(RecipeError, match="some/file does not exist"):
        apply(block("+x\n"), None)


def test_expected_lines_are_found_in_order() -> None:
    output = "one\n  two   three\nfour 4.2 s\n"
    assert missing("one\ntwo three\nfour ... s\n", output) is None
    assert missing("two three\none\n", output) == "one"
    assert missing("tw\n", output) == "tw"


def test_sections_become_recipes() -> None:
    found = read("# A\n### One\nText.\n\n```sh\nls\n```\n### Two\n```diff file=a.py\n+x\n```\n## End\n")
    assert [(each.title, [(b.kind, b.file, b.line) for b in each.blocks]) for each in found] == [
        ("One", [("sh", None, 5)]),
        ("Two", [("diff", "a.py", 9)]),
    ]
    with pytest.raises(RecipeError, match=r"CONTRIBUTING\.md:3: \"```\" names neither a kind nor a file"):
        read("### One\n\n```\nls\n```\n")
    with pytest.raises(RecipeError, match=r"CONTRIBUTING\.md:3: the code block has no end"):
        read("### One\n\n```sh\nls\n")


def test_a_copy_is_updated_without_touching_unchanged_files(tmp_path: Path) -> None:
    root = tmp_path / "a tree"
    (root / "d").mkdir(parents=True)
    (root / "d/a").write_text("a\n")
    (root / "b").write_text("b\n")
    (root / "link").symlink_to("d/a")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)  # noqa: S607
    workshop = Workshop(root, tmp_path / "the copy")
    recipes = read("### R\n\n```diff file=b\n b\n+c\n```\n\n```sh\ncat b\n```\n\n```text\nc\n```\n")
    workshop.copy(recipes)
    assert (workshop.tree / "b").read_text() == "b\nc\n"
    assert (workshop.tree / "link").readlink() == Path("d/a")
    workshop.follow(recipes[0])
    before = {name: (workshop.tree / name).stat().st_mtime_ns for name in ("d/a", "b")}
    (root / "d/a").write_text("changed\n")
    (workshop.tree / "left over").write_text("")
    workshop.copy(recipes)
    after = {name: (workshop.tree / name).stat().st_mtime_ns for name in ("d/a", "b")}
    assert before["b"] == after["b"]
    assert before["d/a"] != after["d/a"]
    assert not (workshop.tree / "left over").exists()
