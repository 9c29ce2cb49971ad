"""What may stand in the values, and what is said about the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.chart.helm import CHART, SMALLEST, refusal, rendered

Json = dict[str, Any]
GIT: Json = {"source": {"type": "gitSync", "configMap": None, "gitSync": {"repository": "https://git.example.org/a.git"}}}

WRONG: tuple[tuple[str, Json, tuple[str, ...]], ...] = (
    ("a word that nobody knows", {"replcas": 2}, ("replcas",)),
    ("one further down", {"run": {"polisy": "sync"}}, ("run", "polisy")),
    ("no owner", {"owner": ""}, ("owner",)),
    ("a number as a text", {"replicas": "two"}, ("replicas", "integer")),
    ("a policy that does not exist", {"run": {"policy": "delete-all"}}, ("run.policy", "upsert-only")),
    ("a share that is none", {"run": {"maxChangePercent": 300}}, ("run.maxChangePercent",)),
    ("a duration without a unit", {"run": {"interval": "60"}}, ("run.interval",)),
    ("a duration that is a number", {"run": {"interval": 60}}, ("run.interval", "string")),
    ("a fence without a unit", {"run": {"fence": "30"}}, ("run.fence",)),
    ("an exception without a resource", {"run": {"allow": ["data-loss"]}}, ("run.allow.0",)),
    ("a password in the URL", {"nats": {"url": "nats://me:secret@nats:4222"}}, ("nats.url",)),
    ("a URL that is none", {"nats": {"url": "nats:4222"}}, ("nats.url",)),
    ("no server", {"nats": {"url": ""}}, ("nats.url",)),
    ("no source", {"source": {"type": ""}}, ("source.type", "gitSync")),
    ("a source that does not exist", {"source": {"type": "s3"}}, ("source.type", "existingVolume")),
    ("no repository", {"source": {"type": "gitSync"}}, ("source.gitSync.repository",)),
    (
        "a password in a repository",
        {**GIT, "source": {"type": "gitSync", "gitSync": {"repository": "https://me:pw@h/a"}}},
        ("repository",),
    ),
    ("a folder outside", {"source": {"path": "../etc"}}, ("source.path",)),
    ("two ConfigMaps", {"source": {"configMap": {"manifests": {"a.yaml": ""}}}}, ("source.configMap",)),
    ("no ConfigMap", {"source": {"configMap": {"name": ""}}}, ("source.configMap",)),
    (
        "manifests that nobody would read",
        {"source": {"configMap": {"manifests": {"a.txt": ""}}}},
        ("source.configMap.manifests",),
    ),
    ("no volume", {"source": {"type": "existingVolume"}}, ("source.existingVolume",)),
    ("two volumes", {"source": {"type": "existingVolume", "existingVolume": {"a": {}, "b": {}}}}, ("source.existingVolume",)),
    ("a Secret and no key", {"nats": {"auth": {"secretName": "nats"}}}, ("nats.auth", "creds")),
    ("a Secret and two keys", {"nats": {"auth": {"secretName": "n", "creds": "a", "nkey": "b"}}}, ("nats.auth",)),
    ("a key and no Secret", {"nats": {"auth": {"creds": "a"}}}, ("nats.auth.secretName",)),
    ("a certificate from nowhere", {"nats": {"tls": {"clientCertificate": True}}}, ("nats.tls.secretName",)),
    ("a name that Kubernetes does not take", {"nats": {"tls": {"secretName": "My_Secret"}}}, ("nats.tls.secretName",)),
    ("both monitors", {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, ("serviceMonitor", "podMonitor")),
    (
        "a planner that cannot push",
        {"planner": {"enabled": True, "git": {"repository": "https://h/a"}}},
        ("planner.git.pushSecretName",),
    ),
    (
        "a planner without a repository",
        {"planner": {"enabled": True, "git": {"pushSecretName": "p"}}},
        ("planner.git.repository",),
    ),
    ("an end that comes too soon", {"terminationGracePeriodSeconds": 5}, ("terminationGracePeriodSeconds",)),
    ("a digest that is none", {"image": {"digest": "latest"}}, ("image.digest",)),
    ("a port that is none", {"networkPolicy": {"egressPorts": [70000]}}, ("networkPolicy.egressPorts.0",)),
    ("a limit that is none", {"resources": {"limit": {}}}, ("resources", "limit")),
    ("a probe of another kind", {"livenessProbe": {"exec": {}}}, ("livenessProbe", "exec")),
)


@pytest.mark.parametrize(("values", "named"), [wrong[1:] for wrong in WRONG], ids=[wrong[0] for wrong in WRONG])
def test_a_wrong_value_is_refused_by_its_name(values: Json, named: tuple[str, ...]) -> None:
    said = refusal(SMALLEST, values)
    for name in named:
        assert name in said, said


def test_what_is_wrong_there_is_right_otherwise() -> None:
    assert rendered(SMALLEST)
    assert rendered(SMALLEST, GIT)


def leaves(document: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place in the values where something other than a group stands."""
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def resolved(schema: Json, root: Json) -> Json:
    """What a reference means."""
    found = schema
    while "$ref" in found:
        found = root["definitions"][found["$ref"].rpartition("/")[2]]
    return found


def groups(schema: Json, root: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Every object of the schema that has names of its own."""
    found = resolved(schema, root)
    if "properties" in found:
        yield path, found
        for name, inner in found["properties"].items():
            yield from groups(inner, root, (*path, name))


def test_schema_and_values_name_the_same() -> None:
    """A value that the schema does not know would be refused, and one that only it knows is documented nowhere."""
    schema: Json = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values: Json = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    known: dict[tuple[str, ...], Json] = {}
    for path, group in groups(schema, schema):
        assert group["additionalProperties"] is False, path
        known |= {(*path, name) for name in group["properties"]} and {
            (*path, name): inner for name, inner in group["properties"].items()
        }
    raw = {"resources", "podSecurityContext", "startupProbe", "livenessProbe", "readinessProbe"}
    for path in leaves(values):
        assert path in known or any(part in raw | {"labels", "author"} for part in path), path
    for path in known:
        if path[0] == "global" or raw & set(path[:-1]):
            continue
        at: Any = values
        for name in path:
            assert name in at, path
            at = at[name]


def test_the_values_of_the_readme_render() -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block.partition("\n```")[0]) for block in text.split("```yaml\n")[1:]]
    assert len(blocks) == 2
    first, planner = blocks
    assert rendered(first)
    assert [one["kind"] for one in rendered(first, planner)].count("CronJob") == 1
