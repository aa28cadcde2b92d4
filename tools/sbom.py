"""Write the software bills of materials: `make sbom`.

`deploy/sbom/bentpipe.cdx.json` names every package of Cargo.lock, requirements.txt and requirements-dev.txt,
and is part of the wheel; `bentpipe-gateway.cdx.json` names the crates of the live gateway, and is part of its
Debian package. Both are CycloneDX 1.6 and depend only on the files that lock versions: no time, no path.
"""

import json
import re
import subprocess
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "GATEWAY", "WHOLE", "boms", "locked_crates", "locked_python"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "sbom"
WHOLE, GATEWAY = "bentpipe.cdx.json", "bentpipe-gateway.cdx.json"
PROGRAMS = ("bentpipe-python", "bentpipe-gatewayd", "bentpipe-testbed")
"""Crates of which the wheel has the library or the program."""

Component = dict[str, Any]


def locked_crates() -> dict[str, dict[str, Any]]:
    """Return the packages of Cargo.lock that come from a registry, by `name@version`."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    return {f"{each['name']}@{each['version']}": each for each in lock["package"] if "source" in each}


def locked_python(file: str) -> dict[str, str]:
    """Return names and versions of the packages of a file of requirements."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, flags=re.MULTILINE))


def boms() -> dict[str, str]:
    """Return the text of each bill of materials by its file's name."""
    metadata = _metadata()
    packages = {each["id"]: each for each in metadata["packages"]}
    nodes = {each["id"]: each for each in metadata["resolve"]["nodes"]}
    shipped = _reachable(nodes, (key for key, each in packages.items() if each["name"] in PROGRAMS))
    gateway = next(key for key, each in packages.items() if each["name"] == "bentpipe-gatewayd")
    version = packages[gateway]["version"]
    python, development = locked_python("requirements.txt"), locked_python("requirements-dev.txt")
    crates = [_crate(each, shipped=key in shipped) for key, each in packages.items()]
    others = [_python(name, v, shipped=name in python) for name, v in (development | python).items()]
    direct = [_ref(each) for each in packages.values() if each["name"] in PROGRAMS]
    direct += [each["bom-ref"] for each in others if each["name"] in python]
    inside = _reachable(nodes, [gateway])
    edges = _edges(packages, nodes, inside)
    inner = [_crate(packages[key], shipped=True) for key in inside if key != gateway]
    return {
        WHOLE: _bom("bentpipe", version, [*crates, *others], direct, _edges(packages, nodes, set(nodes))),
        GATEWAY: _bom("bentpipe-gateway", version, inner, edges.pop(_ref(packages[gateway])), edges),
    }


def _metadata() -> dict[str, Any]:
    command = ("cargo", "metadata", "--locked", "--format-version=1", "--all-features")
    found: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=ROOT, text=True))  # noqa: S603
    return found


def _reachable(nodes: Mapping[str, Any], begin: Iterable[str]) -> set[str]:
    """Return the packages that `begin` needs in a build, and `begin`; no dependencies of tests."""
    found: set[str] = set()
    left = list(begin)
    while left:
        key = left.pop()
        if key not in found:
            found.add(key)
            left.extend(_needed(nodes[key]))
    return found


def _needed(node: Mapping[str, Any]) -> list[str]:
    return [each["pkg"] for each in node["deps"] if any(kind["kind"] != "dev" for kind in each["dep_kinds"])]


def _edges(packages: Mapping[str, Any], nodes: Mapping[str, Any], keys: set[str]) -> dict[str, list[str]]:
    """Return for each package of `keys` the packages that it needs in a build, all as references."""
    return {_ref(packages[key]): sorted(_ref(packages[used]) for used in _needed(nodes[key])) for key in keys}


def _ref(package: Mapping[str, Any]) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def _crate(package: Mapping[str, Any], *, shipped: bool) -> Component:
    locked = locked_crates().get(f"{package['name']}@{package['version']}", {})
    component: Component = {
        "type": "library",
        "bom-ref": _ref(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required" if shipped else "excluded",
        "purl": _ref(package),
    }
    if "checksum" in locked:
        component["hashes"] = [{"alg": "SHA-256", "content": locked["checksum"]}]
    if package["license"]:
        # Older crates separate alternatives by a slash, which is no SPDX expression.
        expression = re.sub(r"\s*/\s*", " OR ", package["license"])
        component["licenses"] = [{"expression": expression}]
    return component


def _python(name: str, version: str, *, shipped: bool) -> Component:
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": "required" if shipped else "excluded",
        "purl": purl,
    }


def _bom(
    name: str, version: str, components: list[Component], direct: list[str], edges: Mapping[str, list[str]]
) -> str:
    ordered = sorted(components, key=lambda each: str(each["bom-ref"]))
    root = f"{name}@{version}"
    body = {
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": ordered,
        "dependencies": [
            {"ref": root, "dependsOn": sorted(direct)},
            *({"ref": ref, "dependsOn": edges[ref]} for ref in sorted(edges)),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return json.dumps(head | body, indent=1) + "\n"


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in boms().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
