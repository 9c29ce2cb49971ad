"""The plan as people read it."""

from __future__ import annotations

import dataclasses

from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change, FieldDiff, Reason
from reconciler.render.plan.text import change_lines, plan_lines
from tests.support.values.plans import everything, plan_of


def lines_of(plan: object) -> list[str]:
    return [line.plain for line in plan_lines(plan)]  # type: ignore[arg-type]


def test_the_last_line_is_the_sum() -> None:
    expected = "Plan: 1 to create, 1 to update, 1 to adopt, 1 by procedure, 1 to recreate, 1 to delete (1 blocked)"
    assert lines_of(everything())[-1] == expected
    assert lines_of(plan_of())[-1] == "Plan: 0 to create, 0 to update, 0 to delete"


def test_every_change_has_its_symbol_and_its_key() -> None:
    text = lines_of(everything())
    for start in (
        "    + Stream/NEW",
        "  -/+ Stream/MADE",
        "    ~ Consumer/BILLING/x",
        "    > Consumer/BILLING/y",
        "    ! leaf:Consumer/BILLING/w",
        "    = Stream/TAKEN",
        "    - Stream/OLD",
    ):
        assert any(line.startswith(start) for line in text), start


def test_a_change_says_what_differs_and_who_did_it() -> None:
    text = "\n".join(lines_of(everything()))
    assert "update, drift by nats CLI (bob) at 2026-01-31T12:00:00Z" in text
    assert "ackWait: 30s → 45s" in text
    assert 'metadata: {a: "1"} → (none)' in text


def test_what_is_created_is_shown_as_it_would_be() -> None:
    text = "\n".join(lines_of(everything()))
    assert "subjects: [new.>]" in text
    assert "maxAge: 7d" in text


def test_long_lists_show_only_what_goes_and_comes() -> None:
    assert "        filterSubjects: - billing.0, + billing.9, 8 kept" in lines_of(everything())


def test_entries_that_would_run_into_each_other_have_lines_of_their_own_and_say_the_domain() -> None:
    far = {"external": {"api": "$JS.leaf.API"}}
    old = [{"name": name, **far, "consumer": {"name": "to_all", "serverManaged": True}} for name in ("ONE", "TWO")]
    new = [{**old[0], "consumer": {"name": "renamed", "serverManaged": True}}, old[1]]
    fields = (FieldDiff("sources", old, new),)
    change = Change(key=Key("Stream", "ALL"), action=Action.UPDATE, cause=Cause.MANIFEST, fields=fields)
    text = lines_of(plan_of(change))
    start = text.index("        sources:")
    assert text[start + 1 : start + 4] == [
        "          - {name: ONE, external: {domain: leaf}, consumer: {name: to_all, serverManaged: true}}",
        "          + {name: ONE, external: {domain: leaf}, consumer: {name: renamed, serverManaged: true}}",
        "          1 kept",
    ]


def test_a_procedure_shows_steps_point_of_no_return_and_duplicates() -> None:
    text = lines_of(everything())
    start = text.index("        1. pause")
    assert text[start : start + 7] == [
        "        1. pause",
        "        2. reset to 17",
        "        3. update",
        "        4. resume",
        "        point of no return: the reset",
        "        30 messages will be delivered again",
        "        note: workers stand still",
    ]


def test_what_could_not_be_looked_at_is_not_called_missing() -> None:
    unseen = Reason("unknown", "nobody answers", "look again")
    change = Change(key=Key("Stream", "FAR", "", "leaf"), action=Action.BLOCKED, cause=Cause.MISSING, reasons=(unseen,))
    assert "    ! leaf:Stream/FAR  blocked" in lines_of(plan_of(change))


def test_a_blocked_change_says_why_and_the_way_out() -> None:
    text = lines_of(everything())
    place = text.index("        data-loss: 12 pending messages would be lost")
    assert text[place + 1] == "          way out: --allow data-loss=leaf:Consumer/BILLING/w"


def test_a_refusal_is_said_before_the_sum() -> None:
    plan = plan_of(refused=(Reason("empty", "nothing is declared", "check the path"),))
    assert "Refused, nothing will be written: empty: nothing is declared; check the path" in lines_of(plan)


def test_nothing_from_a_server_reaches_the_terminal_as_a_control_sequence() -> None:
    fields = (FieldDiff("description", "\x1b[31mred\nsecond line", None),)
    change = Change(key=Key("Stream", "S"), action=Action.UPDATE, cause=Cause.DRIFT, fields=fields, notes=("\x1b]0;title\x07",))
    text = lines_of(plan_of(change))
    assert not any("\x1b" in line or "\n" in line or "\x07" in line for line in text)


def test_changes_are_grouped_in_their_order() -> None:
    text = lines_of(dataclasses.replace(everything()))
    headings = [line for line in text if line and not line.startswith(" ")][1:-3]
    assert headings == ["Streams", "Consumers of BILLING", "Consumers of BILLING in domain leaf", "Streams"]


def updates(count: int, *fields: str, **more: object) -> list[Change]:
    return [
        Change(
            key=Key("Consumer", f"c{number:04}", f"S{number % 50:02}"),
            action=Action.UPDATE,
            cause=Cause.MANIFEST,
            fields=tuple(FieldDiff(field, 1, 2) for field in fields),
            **more,  # type: ignore[arg-type]
        )
        for number in range(count)
    ]


def test_of_very_many_that_are_alike_the_first_are_shown_and_the_rest_is_counted() -> None:
    plan = plan_of(*sorted(updates(2000, "maxDeliver"), key=lambda change: change.key), *everything().changes)
    text = [line.plain for line in plan_lines(plan, full=False)]
    assert len(text) < 120
    assert "    ~ 1,997 more of Consumer like these: update of maxDeliver (shown with --full)" in text
    assert [line for line in text if line.startswith("Consumers of S")] == ["Consumers of S00"], "no group without its changes"
    for line in (line.plain for change in everything().changes for line in change_lines(change)):
        assert line in text, "what is not one of many is seen"
    assert text[-1].startswith("Plan: 1 to create, 2001 to update")
    assert len(lines_of(plan)) > 4000


def test_what_is_dangerous_is_shown_however_much_there_is_of_it() -> None:
    warned = updates(300, "maxDeliver", notes=("loses what was delivered twice",))
    gone = [Change(key=Key("Stream", f"S{number}"), action=Action.DELETE, cause=Cause.PRUNE) for number in range(300)]
    text = [line.plain for line in plan_lines(plan_of(*warned, *gone, *updates(200, "ackWait")), full=False)]
    assert sum(line.startswith("    ~ ") for line in text) == 500
    assert sum(line.startswith("    - ") for line in text) == 300
    assert not any("--full" in line for line in text)
