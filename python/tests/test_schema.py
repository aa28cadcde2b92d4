"""The schema accepts all shipped scenarios, and refuses the same mistakes as the reader."""

import json
import re
import tomllib
from typing import Any

import pytest
from conftest import ROOT
from jsonschema import Draft202012Validator

import bentpipe as bp
from bentpipe import _core
from bentpipe.runs.plan import shipped

VALIDATOR = Draft202012Validator(json.loads(_core.schema()))


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_are_valid(name: str) -> None:
    document = tomllib.loads(shipped()[name].read_text(encoding="utf-8"))
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


TRAFFIC = (ROOT / "docs" / "traffic.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", TRAFFIC, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_traffic_are_valid(example: str) -> None:
    document = tomllib.loads(shipped()["small-gateway"].read_text(encoding="utf-8"))
    document["traffic"] = {"t": {"from": "server", "to": "client", **tomllib.loads(example)}}
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


BROKEN: list[tuple[str, Any]] = [
    ("gateway.regulator.rate", "20 Mbs"),
    ("gateway.regulator.rate", 20),
    ("gateway.regulator.tik", "5 ms"),
    ("gateway.aqm.algorithm", "rde"),
    ("gateway.aqm.max_p", 2.0),
    ("traffic.web.kind", "page"),
    ("traffic.web.sessions", -1),
]


@pytest.mark.parametrize(("key", "value"), BROKEN)
def test_schema_and_reader_refuse_the_same(key: str, value: object) -> None:
    document = tomllib.loads(shipped()["small-gateway"].read_text(encoding="utf-8"))
    place: Any = document
    *path, last = key.split(".")
    for part in path:
        place = place[part]
    place[last] = value
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(bp.ScenarioError):
        bp.load("small-gateway", set={key: value})
