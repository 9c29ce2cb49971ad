"""The Policy document: rules about consumers, checked on each one as it is compiled.

Invariant: a consumer that sources need to be as it is never breaks a rule by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from reconciler.manifests.findings import Finding
from reconciler.manifests.suggest import quoted
from reconciler.manifests.syntax.document import Document
from reconciler.model.desired import Governance
from reconciler.model.kinds.documents import PolicySpec
from reconciler.model.patterns import matches

_NO_POLICY = PolicySpec()


def read_policy(documents: Sequence[Document]) -> PolicySpec:
    """The rules; a document that is not valid is reported elsewhere and does not count here."""
    for document in documents:
        try:
            return PolicySpec.model_validate(document.value.get("spec") or {})
        except ValidationError:
            continue
    return _NO_POLICY


def governance(policy: PolicySpec) -> Governance:
    """The rules that the plan enforces."""
    return Governance(policy.owner, policy.consumers.protect_names, policy.approve, policy.consumers.unused_after or 0)


def check_name(policy: PolicySpec, name: str) -> Iterator[Finding]:
    """The rule for names of consumers."""
    pattern = policy.consumers.name_pattern
    if pattern is not None and not matches(pattern, name):
        yield Finding(("metadata", "name"), "namePattern", f"policy: {quoted(name)} does not match {pattern}")


def check_consumer(policy: PolicySpec, name: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    """What a consumer of this configuration breaks, under the name of the rule."""
    rules = policy.consumers
    yield from check_name(policy, name)
    if rules.require_durable and "durable_name" not in config:
        yield Finding(("spec", "durable"), "requireDurable", "policy: consumers must be durable")
    if config["ack_policy"] == "flow_control":
        return
    if rules.require_pull and config.get("deliver_subject"):
        yield Finding(("spec", "deliverSubject"), "requirePull", "policy: consumers must be pull consumers")
    if rules.require_explicit_ack and config["ack_policy"] != "explicit":
        message = f"policy: consumers must acknowledge explicitly, not {config['ack_policy']}"
        yield Finding(("spec", "ackPolicy"), "requireExplicitAck", message)
