"""The schema accepts all shipped scenarios, and refuses the same mistakes as the reader."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT
from jsonschema import Draft202012Validator

import bentpipe as bp
from bentpipe.cli.app import cli
from bentpipe.cli.schema import FILES, identifier, published
from bentpipe.runs.plan import shipped
from bentpipe.sweeps.file import shipped_sweeps

VALIDATOR = Draft202012Validator(json.loads(published("scenario")))


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_are_valid(name: str) -> None:
    document = tomllib.loads(shipped()[name].read_text(encoding="utf-8"))
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


TRAFFIC = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("traffic.md", "packet-sources.md")]
EXAMPLES = re.findall(r"```toml\n(.*?)```", "".join(TRAFFIC), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_traffic_are_valid(example: str) -> None:
    document = tomllib.loads(shipped()["small-gateway"].read_text(encoding="utf-8"))
    document["traffic"] = {"t": {"from": "server", "to": "client", **tomllib.loads(example)}}
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize("what", FILES)
def test_shipped_schema_is_current_and_names_no_host(what: str) -> None:
    folder = ROOT / f"{what}s"
    text = (folder / FILES[what]).read_text(encoding="utf-8")
    assert text == published(what), f"bentpipe schema {what} > {what}s/{FILES[what]}"
    assert json.loads(text)["$id"] == identifier(what)
    assert re.fullmatch(rf"urn:bentpipe:{what}:\d+\.\d+", identifier(what))
    Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize(
    ("path", "what"),
    [(path, "scenario") for path in shipped().values()]
    + [(path, "sweep") for path in shipped_sweeps().values()],
    ids=lambda each: each if isinstance(each, str) else each.stem,
)
def test_shipped_files_lead_editors_to_their_schema(path: Path, what: str) -> None:
    """The line of Taplo and of Even Better TOML, whose path is relative to the file."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"#:schema ./{FILES[what]}"
    assert (path.parent / FILES[what]).is_file()


def test_new_scenarios_lead_editors_to_the_schema(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["new", str(tmp_path / "mine.toml"), "--yes"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "mine.toml").read_text(encoding="utf-8")
    assert text.startswith(f"#:schema ./{FILES['scenario']}\n")
    assert [error.message for error in VALIDATOR.iter_errors(tomllib.loads(text))] == []


MINIMAL = """
title = "t"
run.duration = "1 s"
gateway.regulator.rate = "4 Mbps"
gateway.aqm.algorithm = "red"
gateway.transmit_queue.limit = "10 KB"
link.a = { between = ["x", "y"], rate = "1 Mbps", delay = "1 ms" }
setting.s.algorithm = "red"
[traffic.web]
kind = "pages"
from = "x"
to = "y"
sessions = 1
object_size = "1 KB"
[traffic.call]
kind = "voip"
from = "x"
to = "y"
"""

ONE_MISTAKE: list[tuple[str, Any, str]] = [
    ("gateway.regulator.rate", "20 Mbs", "gateway.regulator.rate"),
    ("gateway.regulator.rate", 20, "gateway.regulator.rate"),
    ("gateway.regulator.tik", "5 ms", "gateway.regulator"),
    ("gateway", 3, "gateway"),
    ("gateway", [{"name": "g", "regulator": {"rate": "4 Mbs"}}], "gateway.0.regulator.rate"),
    ("gateway.transmit_queue.limit", "10 KBB", "gateway.transmit_queue.limit"),
    ("gateway.transmit_queue.limit", 7, "gateway.transmit_queue.limit"),
    ("gateway.transmit_queue.limit", {"packet": 1}, "gateway.transmit_queue.limit"),
    ("gateway.pep.delay", "12 m", "gateway.pep.delay"),
    ("gateway.pep.buffer_per", "house", "gateway.pep.buffer_per"),
    ("gateway.spacelink.window", "1 XB", "gateway.spacelink.window"),
    ("gateway.aqm.algorithm", "rde", "gateway.aqm.algorithm"),
    ("gateway.aqm.max_p", 2.0, "gateway.aqm.max_p"),
    ("gateway.aqm.threshold", "much", "gateway.aqm.threshold"),
    ("gateway.aqm.threshold", [["0 s", "x"]], "gateway.aqm.threshold.0.1"),
    ("gateway.aqm", {"preset": "RED 44"}, "gateway.aqm.preset"),
    ("gateway.aqm", {"preset": "RED 4", "mean_packet": "0 X"}, "gateway.aqm.mean_packet"),
    ("gateway.aqm", {"mean_packet": "0 X"}, "gateway.aqm.mean_packet"),
    ("gateway.marking", "dorp", "gateway.marking"),
    ("gateway.marking", {"method": "dorp"}, "gateway.marking.method"),
    ("gateway.marking", {}, "gateway.marking"),
    ("gateway.transmit_queue.scheduler", "ddr", "gateway.transmit_queue.scheduler"),
    ("gateway.transmit_queue.scheduler", {"algorithm": "ddr"}, "gateway.transmit_queue.scheduler.algorithm"),
    (
        "gateway.transmit_queue.scheduler",
        {"algorithm": "drr", "quantum": "x"},
        "gateway.transmit_queue.scheduler.quantum",
    ),
    ("setting.s.algorithm", "rde", "setting.s.algorithm"),
    ("setting.s.max_p", 2.0, "setting.s.max_p"),
    ("setting.s.scheduler", "ddr", "setting.s.scheduler"),
    ("link.a.delay", "1 sm", "link.a.delay"),
    ("link.a.delay", {"base": "1 sm"}, "link.a.delay"),
    ("link.a.loss", 3, "link.a.loss"),
    ("link.a.loss", {"probability": 3}, "link.a.loss.probability"),
    ("link.a.access", "wfi", "link.a.access"),
    ("link.a.access", {"kind": "wfi"}, "link.a.access.kind"),
    ("transport.t.mss", "1 KBB", "transport.t.mss"),
    ("transport.t", {"protocol": "sctp", "mss": "1 KBB"}, "transport.t"),
    ("transport.t", {"protocol": "sttp"}, "transport.t.protocol"),
    ("transport.t.receive_window", "1 XB", "transport.t.receive_window"),
    ("traffic.web.kind", "page", "traffic.web.kind"),
    ("traffic.web.sessions", -1, "traffic.web.sessions"),
    ("traffic.web.object_size", "1 XB", "traffic.web.object_size"),
    ("traffic.web.object_size", {"exponential": "1 XB"}, "traffic.web.object_size.exponential"),
    (
        "traffic.web.object_size",
        {"pareto": {"shape": 0.1, "mean": "1 KB"}},
        "traffic.web.object_size.pareto.shape",
    ),
    ("traffic.web.profile", [["0 s", "x"]], "traffic.web.profile.0.1"),
    ("traffic.web.dscp", "EFF", "traffic.web.dscp"),
    ("traffic.call.talk", "1 sm", "traffic.call.talk"),
    ("run.duration", "1 hours", "run.duration"),
]


@pytest.mark.parametrize(("key", "value", "path"), ONE_MISTAKE, ids=lambda each: str(each)[:40])
def test_one_wrong_value_is_one_error_at_its_key(key: str, value: object, path: str) -> None:
    document = tomllib.loads(MINIMAL)
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []
    place: Any = document
    *tables, last = key.split(".")
    for part in tables:
        place = place.setdefault(part, {})
    place[last] = value
    found = [".".join(map(str, error.absolute_path)) for error in VALIDATOR.iter_errors(document)]
    assert found == [path]


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
