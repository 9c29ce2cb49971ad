"""Where messages come from, read off wire configurations: what a stream listens to and copies, what a consumer delivers.

Invariant: nothing but a configuration is looked at; it is the same answer for a declared and for a live one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.model.identity import Key, valid_name

Config = Mapping[str, Any]


def listened(config: Config, name: str) -> list[str]:
    """The subjects from which a stream of this name takes what is published."""
    if config.get("subjects"):
        return list(config["subjects"])
    return [] if config.get("sources") or config.get("mirror") else [name]


def filters_of(config: Config) -> Sequence[str]:
    """The subjects a consumer delivers, in their order; none means all."""
    single = config.get("filter_subject")
    filters: Sequence[str] = config.get("filter_subjects") or ([single] if single else [])
    return filters


def copied_entries(config: Config) -> list[dict[str, Any]]:
    """The source and mirror entries of a stream."""
    return [*(config.get("sources") or ()), *([config["mirror"]] if config.get("mirror") else ())]


def domain_of(entry: Config, domain: str) -> str:
    """The domain an entry reads from; `domain` is the one of the stream that copies."""
    api: str = (entry.get("external") or {}).get("api", "")
    return api.removeprefix("$JS.").removesuffix(".API") if api.startswith("$JS.") else domain


def imported(entry: Config) -> bool:
    """Whether an entry reads through an account's import, behind which names mean nothing here."""
    api: str = (entry.get("external") or {}).get("api", "")
    return bool(api) and not (api.startswith("$JS.") and api.endswith(".API"))


def with_domains(value: Any) -> Any:  # noqa: ANN401 - plain YAML values
    """A value of a manifest, with the domain for the API prefix that it is short for, however deep."""
    if isinstance(value, list | tuple):
        return [with_domains(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _with_domain(item) if name == "external" else with_domains(item) for name, item in value.items()}


def _with_domain(external: Any) -> Any:  # noqa: ANN401 - plain YAML values
    api = external.get("api") if isinstance(external, Mapping) else None
    domain = api.removeprefix("$JS.").removesuffix(".API") if isinstance(api, str) else ""
    if api != f"$JS.{domain}.API" or not valid_name(domain):
        return external
    return {"domain": domain, **{name: item for name, item in external.items() if name != "api"}}


def origins(config: Config, domain: str) -> list[Key]:
    """The streams that a stream of this domain copies from, as far as they can be named."""
    entries = (entry for entry in copied_entries(config) if not imported(entry))
    return [Key("Stream", entry["name"], "", domain_of(entry, domain)) for entry in entries]


def copies(wire: bytes) -> bool:
    """A cheap look: whether a configuration (or an INFO answer) may have sources or a mirror at all."""
    return b'"sources"' in wire or b'"mirror"' in wire
