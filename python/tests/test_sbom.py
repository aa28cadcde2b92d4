"""Software bills of materials: complete, current, and the same on every machine."""

import json
from typing import Any

import pytest

import sbom


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((sbom.FOLDER / name).read_text(encoding="utf-8"))
    return found


def test_every_locked_package_is_named_with_its_version_and_checksum() -> None:
    components = {each["purl"]: each for each in read(sbom.WHOLE)["components"]}
    for key, crate in sbom.locked_crates().items():
        hashes = components[f"pkg:cargo/{key}"]["hashes"]
        assert hashes == [{"alg": "SHA-256", "content": crate["checksum"]}], key
    for file in ("requirements.txt", "requirements-dev.txt"):
        locked = sbom.locked_python(file)
        assert len(locked) > 20
        for name, version in locked.items():
            assert f"pkg:pypi/{name.lower().replace('_', '-')}@{version}" in components, name


@pytest.mark.parametrize("name", [sbom.WHOLE, sbom.GATEWAY])
def test_bills_are_current(name: str) -> None:
    assert read(name) == json.loads(sbom.boms()[name]), f"{name}: run `make sbom`"


def test_only_what_the_wheel_needs_is_required() -> None:
    scopes = {each["name"]: each["scope"] for each in read(sbom.WHOLE)["components"]}
    assert {scopes[name] for name in ("quinn-proto", "pyo3", "polars")} == {"required"}
    assert {scopes[name] for name in ("proptest", "cargo_metadata", "pytest", "ruff")} == {"excluded"}


def test_gateway_has_no_package_of_the_simulator_or_of_python() -> None:
    names = {each["purl"] for each in read(sbom.GATEWAY)["components"]}
    assert any(name.startswith("pkg:cargo/quinn-proto@") for name in names)
    assert not any(
        name.startswith(("pkg:cargo/bentpipe-sim@", "pkg:cargo/pyo3@", "pkg:pypi/")) for name in names
    )


@pytest.mark.parametrize("name", [sbom.WHOLE, sbom.GATEWAY])
def test_references_are_unique_and_resolve(name: str) -> None:
    bill = read(name)
    listed = [each["bom-ref"] for each in bill["components"]]
    known = {*listed, bill["metadata"]["component"]["bom-ref"]}
    assert len(known) == len(listed) + 1
    assert all({each["ref"], *each["dependsOn"]} <= known for each in bill["dependencies"])
