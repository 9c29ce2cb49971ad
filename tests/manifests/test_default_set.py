"""The default set is the catalogue: every stream and every consumer of it, with every value."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.manifests.files.loader import Loader
from reconciler.model.desired import Desired
from reconciler.model.identity import Key

MANIFESTS = Path(__file__).parents[2] / "manifests"
DAY = 24 * 3600 * 10**9
SECOND = 10**9

STREAMS: dict[str, tuple[list[str], int]] = {
    "BILLING": (["platform.billing.>"], 7),
    "PAYMENTS": (["platform.payments.>"], 30),
    "PROVISIONING": (["gpuaas.provisioning.>"], 7),
    "APPS": (["appplatform.>", "platform.artifact.>"], 7),
    "STORAGE": (["storage.>"], 7),
    "DLQ": (["dlq.>"], 30),
}
PATIENT = (45, 20)
USUAL = (30, 10)
CONSUMERS: dict[str, tuple[str, str, tuple[int, int]]] = {
    "notification_relay_low_balance": ("BILLING", "platform.billing.low_balance_warning", USUAL),
    "notification_relay_auto_release_pending": ("BILLING", "platform.billing.auto_release_pending", USUAL),
    "notification_relay_balance_depleted": ("BILLING", "platform.billing.balance_depleted", USUAL),
    "billing_worker_usage_metered": ("BILLING", "platform.billing.usage.metered", USUAL),
    "billing_worker_balance_credited": ("PAYMENTS", "platform.payments.balance_credited", USUAL),
    "notification_relay_reconcile_failed": ("PAYMENTS", "platform.payments.reconcile_failed", USUAL),
    "provisioning_worker_provision_requested": ("PROVISIONING", "gpuaas.provisioning.requested", PATIENT),
    "billing_worker_provision_active": ("PROVISIONING", "gpuaas.provisioning.active", USUAL),
    "notification_relay_provision_active": ("PROVISIONING", "gpuaas.provisioning.active", USUAL),
    "notification_relay_provision_failed": ("PROVISIONING", "gpuaas.provisioning.failed", USUAL),
    "provisioning_worker_force_release": ("PROVISIONING", "gpuaas.provisioning.force_release_requested", PATIENT),
    "provisioning_worker_releasing_requested": ("PROVISIONING", "gpuaas.provisioning.releasing.requested", PATIENT),
    "billing_worker_releasing_completed": ("PROVISIONING", "gpuaas.provisioning.releasing.completed", USUAL),
    "notification_relay_releasing_completed": ("PROVISIONING", "gpuaas.provisioning.releasing.completed", USUAL),
    "billing_worker_release_failed": ("PROVISIONING", "gpuaas.provisioning.release_failed", USUAL),
    "notification_relay_release_failed": ("PROVISIONING", "gpuaas.provisioning.release_failed", USUAL),
    "app_runtime_worker_instance_requested": ("APPS", "appplatform.runtime.instance.requested", PATIENT),
    "app_runtime_worker_instance_upgrade_requested": ("APPS", "appplatform.runtime.instance.upgrade_requested", PATIENT),
    "app_runtime_worker_instance_rollback_requested": ("APPS", "appplatform.runtime.instance.rollback_requested", PATIENT),
    "app_runtime_worker_instance_decommission_requested": (
        "APPS",
        "appplatform.runtime.instance.decommission_requested",
        PATIENT,
    ),
    "storage_worker_attachment_requested": ("STORAGE", "storage.attachment.requested", PATIENT),
    "storage_worker_attachment_detach_requested": ("STORAGE", "storage.attachment.detach_requested", PATIENT),
    "dlq_inspector": ("DLQ", "dlq.>", (60, 1)),
}
SERVICES = {
    "provisioning-worker": 3,
    "app-runtime-worker": 4,
    "billing-worker": 5,
    "notification-relay": 8,
    "provisioning-worker / storage-worker": 2,
    "ops / replay tooling": 1,
}


def loaded(environment: str) -> Desired:
    found = Loader().load((str(MANIFESTS),), environment)
    assert list(found.warnings) == []
    return found.desired


@pytest.mark.parametrize(("environment", "replicas"), [("dev", 1), ("prod", 3)])
def test_the_streams_of_the_catalogue(environment: str, replicas: int) -> None:
    resources = loaded(environment).resources
    for name, (subjects, days) in STREAMS.items():
        assert resources[Key("Stream", name)].config == {
            "name": name,
            "subjects": subjects,
            "retention": "limits",
            "storage": "file",
            "num_replicas": replicas,
            "max_age": days * DAY,
            "max_bytes": 64_000_000,
            "discard": "old",
        }


def test_the_consumers_of_the_catalogue() -> None:
    resources = loaded("dev").resources
    assert {key.name for key in resources if key.kind == "Consumer" and key.stream in STREAMS} == set(CONSUMERS)
    for name, (stream, subject, (ack_wait, max_deliver)) in CONSUMERS.items():
        config = resources[Key("Consumer", name, stream)].config
        metadata = config.pop("metadata", {})
        assert config == {
            "name": name,
            "durable_name": name,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "filter_subjects": [subject],
            "ack_wait": ack_wait * SECOND,
            "max_deliver": max_deliver,
        }
        assert metadata == ({"reconciler.deadLetter": dead_letter(subject)} if stream != "DLQ" else {})


def test_the_examples_read_through_a_durable_of_each_kind() -> None:
    declared = loaded("dev")
    usage, alarms = (entry["consumer"] for entry in declared.resources[Key("Stream", "FLEET")].config["sources"])
    assert usage["name"] == "to_fleet"
    assert alarms == {"name": "alarms_to_fleet", "deliver_subject": "deliver.fleet.alarms"}
    assert {str(key): str(durable.aggregate) for key, durable in declared.durables.items()} == {
        "Consumer/EDGE_USAGE/to_fleet": "Stream/FLEET"
    }
    assert Key("Consumer", "alarms_to_fleet", "EDGE_ALARMS") in declared.resources


def dead_letter(subject: str) -> str:
    """`dlq.` and the subject, without the name of the product it begins with."""
    product, _, rest = subject.partition(".")
    return f"dlq.{rest if product in ('platform', 'gpuaas', 'appplatform') else subject}"


def test_services_have_as_many_consumers_as_the_documentation_says() -> None:
    documents: list[dict[str, Any]] = [
        value
        for file in sorted((MANIFESTS / "streams").glob("*.yaml"))
        for value in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    services = Counter(value["metadata"]["labels"]["service"] for value in documents if value["kind"] == "Consumer")
    assert dict(services) == SERVICES
    page = (MANIFESTS.parent / "docs" / "catalogue.md").read_text(encoding="utf-8")
    for service, count in SERVICES.items():
        assert f"| {service} | {count} |" in page
    assert f"| **Total** | **{sum(SERVICES.values())}** |" in page
