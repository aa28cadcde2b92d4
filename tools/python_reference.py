"""The reference of the Python package: signature and docstring of every public name, as Markdown."""

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import bentpipe
from bentpipe import _core
from scenario_reference import contents

__all__ = ["markdown"]

_FUNCTIONS = ("run", "compare", "sweep", "tune", "advise", "model", "validate", "live", "load", "open")
"""Functions in the order in which a reader meets them; the others follow."""

_WIDTH = 100
"""Characters of a signature that stands on one line."""

Definition = TypeVar("Definition", ast.FunctionDef, ast.ClassDef)


def markdown() -> str:
    """Return the reference: functions, classes with their public members, exceptions."""
    names = [name for name in bentpipe.__all__ if not name.startswith("_")]
    functions = [name for name in names if inspect.isroutine(getattr(bentpipe, name))]
    classes = [name for name in names if inspect.isclass(getattr(bentpipe, name))]
    errors = [name for name in classes if issubclass(getattr(bentpipe, name), Exception)]
    order = [name for name in _FUNCTIONS if name in functions]
    order += [name for name in functions if name not in order]
    parts = ["## Functions", *(_function(name) for name in order), "## Classes"]
    parts += [_class(name) for name in classes if name not in errors]
    parts += ["## Exceptions", "| exception | raised for |", "| --- | --- |"]
    rows = [f"| `bp.{name}` | {_first(_docstring(getattr(bentpipe, name)))} |" for name in errors]
    page = "\n\n".join(parts[:-2]) + "\n\n" + "\n".join([*parts[-2:], *rows]) + "\n"
    return f"{contents(page)}\n\n{page}"


def _function(name: str) -> str:
    found = getattr(bentpipe, name)
    code = _code(_definition(found, ast.FunctionDef), f"bp.{name}")
    return f"### `bp.{name}`\n\n{code}\n\n{_text(_docstring(found))}"


def _class(name: str) -> str:
    found = getattr(bentpipe, name)
    parts = [f"### `bp.{name}`", _text(_docstring(found))]
    definition = _definition(found, ast.ClassDef)
    lines = [*_fields(definition), *_members(definition, found)]
    return "\n\n".join([*parts, "\n".join(lines)] if lines else parts)


def _fields(definition: ast.ClassDef) -> Iterator[str]:
    """Yield the public fields of a class, each with the text below it."""
    for each, below in zip(definition.body, [*definition.body[1:], ast.Pass()], strict=True):
        if not isinstance(each, ast.AnnAssign) or ast.unparse(each.target).startswith("_"):
            continue
        default = "" if each.value is None else f" = {_value(each.value)}"
        shown = f"- `{ast.unparse(each.target)}: {_written(each.annotation)}{default}`"
        text = (
            below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
        )
        yield f"{shown}: {_first(str(text))}" if text else shown


def _members(definition: ast.ClassDef, found: type) -> Iterator[str]:
    """Yield the public methods and properties of a class, each with the first paragraph of its docstring."""
    seen = set()
    for each in definition.body:
        if not isinstance(each, ast.FunctionDef) or each.name.startswith("_") or each.name in seen:
            continue
        seen.add(each.name)
        is_property = any("property" in ast.unparse(mark) for mark in each.decorator_list)
        shown = f"{each.name}: {_type(each)}" if is_property else _signature(each, each.name)
        yield f"- `{shown}`: {_first(ast.get_docstring(each) or _docstring(getattr(found, each.name)))}"


def _type(member: ast.FunctionDef) -> str:
    return _written(member.returns) if member.returns else "Any"


def _written(annotated: ast.AST) -> str:
    """Return code as a reader of the package writes it: types without quotes and without the core's name."""
    if isinstance(annotated, ast.Constant) and isinstance(annotated.value, str):
        return str(annotated.value)
    return _value(annotated).replace("_core.", "")


def _value(default: ast.AST) -> str:
    return ast.unparse(default).replace("'", '"')


def _signature(definition: ast.FunctionDef, name: str) -> str:
    return f"{name}({', '.join(_arguments(definition.args))}) -> {_type(definition)}"


def _arguments(found: ast.arguments) -> list[str]:
    """Return each argument with its type and default, as written; without `self` and `cls`."""
    usual = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(usual) - len(found.defaults)) + list(found.defaults)
    listed = [_argument(each, default) for each, default in zip(usual, defaults, strict=True)]
    if usual and usual[0].arg in {"self", "cls"}:
        listed = listed[1:]
    if found.vararg:
        listed.append(f"*{_written(found.vararg)}")
    elif found.kwonlyargs:
        listed.append("*")
    listed += [_argument(*each) for each in zip(found.kwonlyargs, found.kw_defaults, strict=True)]
    return listed + ([f"**{_written(found.kwarg)}"] if found.kwarg else [])


def _argument(found: ast.arg, default: ast.expr | None) -> str:
    return _written(found) + (f" = {_value(default)}" if default else "")


def _code(definition: ast.FunctionDef, name: str) -> str:
    """Return a signature as a block of code, an argument a line if it is long."""
    signature = _signature(definition, name)
    if len(signature) > _WIDTH:
        lines = "".join(f"    {each},\n" for each in _arguments(definition.args))
        signature = f"{name}(\n{lines}) -> {_type(definition)}"
    return f"```text\n{signature}\n```"


def _definition(found: type | Callable[..., object], kind: type[Definition]) -> Definition:
    """Return where a name is defined; for one of the compiled core, its stub.

    `TypeError` if that is of another kind.
    """
    path = Path(_core.__file__).with_name("_core.pyi")
    if not inspect.isbuiltin(found) and not _compiled(found):
        path = Path(str(inspect.getsourcefile(found)))
    definition = _definitions(path)[found.__name__]
    if not isinstance(definition, kind):
        raise TypeError(f"{path}: {found.__name__} is no {kind.__name__}")
    return definition


def _compiled(found: type | Callable[..., object]) -> bool:
    return getattr(_core, found.__name__, None) is found


@cache
def _definitions(path: Path) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def _docstring(found: object) -> str:
    return inspect.getdoc(found) or ""


def _text(docstring: str) -> str:
    """Return the paragraphs of a docstring, without its examples."""
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(each for each in paragraphs if not each.lstrip().startswith(">>>"))


def _first(docstring: str) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(docstring.partition("\n\n")[0].split())
