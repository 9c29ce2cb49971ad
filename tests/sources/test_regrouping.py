"""Entries of one origin that are split, joined or dealt anew; names that pass between streams; and what is blocked midway."""

from __future__ import annotations

import contextlib
import copy

import pytest

from reconciler.model.desired import Declared, Desired
from reconciler.model.kinds.common import Intent
from reconciler.plan.change import Action, Change, Plan, Rules
from tests.support.values.build import stream
from tests.support.world.declared import IDENTITY, MOVED, RETENTIONS, Entry, copier, managed, origin, own, plain, user
from tests.support.world.driver import NO_CRASH
from tests.support.world.keeper import SYNC, Keeper, Killed, manifests, planned
from tests.support.world.kept import KeptWorld, leftovers, world_of
from tests.support.world.sources import A, SourceWorld

BOTH = ("s.a", "s.b")
pytestmark = pytest.mark.diagonal
RETENTION = pytest.mark.parametrize("retention", RETENTIONS)
CODES = {"limits": {"position-loss"}, "interest": {"position-loss", "data-loss"}, "workqueue": {"swap"}}


def there(*declared: Declared) -> KeptWorld:
    """As these want it; messages on two subjects have been copied."""
    found = world_of(manifests(*declared), str(declared[0].config.get("retention", "limits")), subjects=BOTH)
    found.settle()
    return found


def of_a(found: Plan) -> Change:
    return next(change for change in found.changes if change.key == A)


def dealt(form: str, subject: str = "") -> Entry:
    """An entry for one subject, or for all: ephemeral, or through a durable of that name."""
    chosen = {"filterSubject": subject} if subject else {}
    return plain(**chosen) if form == "plain" else managed(form, **chosen)


ONE_TO_ANOTHER = {
    "split": ([dealt("c")], [dealt("c", "s.a"), dealt("d", "s.b")]),
    "split, the rest ephemeral": ([dealt("c")], [dealt("c", "s.a"), dealt("plain", "s.b")]),
    "split, all ephemeral": ([dealt("c")], [dealt("plain", "s.a"), dealt("plain", "s.b")]),
    "joined": ([dealt("c", "s.a"), dealt("d", "s.b")], [dealt("f")]),
    "joined from ephemeral ones": ([dealt("plain", "s.a"), dealt("plain", "s.b")], [dealt("c")]),
    "exchanged": ([dealt("c", "s.a"), dealt("d", "s.b")], [dealt("d", "s.a"), dealt("c", "s.b")]),
}


@RETENTION
@pytest.mark.parametrize("name", ONE_TO_ANOTHER)
def test_subjects_do_not_pass_from_one_entry_to_another(name: str, retention: str) -> None:
    before, now = ONE_TO_ANOTHER[name]
    world = there(origin(retention), copier(*before))
    wanted = manifests(origin(retention), copier(*now))
    change = of_a(planned(wanted, world.server))
    assert change.action is Action.BLOCKED
    assert CODES[retention] <= {reason.code for reason in change.reasons}
    assert all(reason.way_out for reason in change.reasons)
    swaps = [reason.way_out for reason in change.reasons if reason.code == "swap"]
    assert not [way_out for way_out in swaps if "allow" in way_out], "a workqueue knows no such choice"
    Keeper(world).bring(wanted)
    world.settle()
    assert (world.missing(), world.duplicates()) == ([], [])


def test_a_workqueue_s_subjects_pass_in_two_steps() -> None:
    world = there(origin("workqueue"), copier(managed("c")))
    for entries in ((dealt("c", "s.a"),), (dealt("c", "s.a"), dealt("d", "s.b"))):
        assert Keeper(world).bring(manifests(origin("workqueue"), copier(*entries))).changes == ()
        world.live(1)
        world.settle()
    assert (world.missing(), world.duplicates(), world.stuck()) == ([], [], [])


def test_a_workqueue_s_entry_that_has_lost_its_durable_midway_gives_nothing_away() -> None:
    world = there(origin("workqueue"), copier(dealt("d", "s.a")))
    world.remove("d")
    assert Keeper(world).bring(manifests(origin("workqueue"), copier(dealt("plain", "s.a"), dealt("plain", "s.b")))).changes == ()


def test_a_declared_durable_that_would_get_the_subjects_is_not_made_either() -> None:
    world = there(origin("workqueue"), copier(dealt("plain", "s.a"), dealt("c", "s.b")))
    (change,) = planned(manifests(origin("workqueue"), copier(own("u")), user("u")), world.server).changes
    assert (change.key, change.action) == (A, Action.BLOCKED)


def test_what_is_left_of_another_durable_does_not_hide_that_subjects_pass() -> None:
    world = there(origin(), copier(dealt("c", "s.a"), dealt("f", "s.b")))
    Keeper(world, refuse=3).attempt(manifests(origin(), copier(dealt("c", "s.a"))))
    assert ("S", "f") in world.server.consumers, "else nothing is left over"
    change = of_a(planned(manifests(origin(), copier(dealt("d", "s.a"), dealt("c", "s.b"))), world.server))
    assert any("s.a of Stream/S would pass" in str(text) for text in (*change.reasons, *change.notes))


def test_an_entry_that_comes_beside_another_one_takes_nothing_away() -> None:
    world = there(origin(), copier(dealt("c", "s.a")))
    wanted = manifests(origin(), copier(dealt("d", "s.a"), dealt("e", "s.b")))
    assert Keeper(world).bring(wanted).changes == ()
    world.settle()
    assert (world.missing(), world.duplicates()) == ([], [])


@RETENTION
def test_what_is_split_where_somebody_allowed_it_is_done(retention: str) -> None:
    allowed = Intent(allow=frozenset({"position-loss", "data-loss"}))
    world = there(origin(retention), copier(dealt("c")))
    wanted = manifests(origin(retention), copier(dealt("c", "s.a"), dealt("d", "s.b"), intent=allowed))
    assert bool(Keeper(world).bring(wanted).changes) == (retention == "workqueue")


def test_how_a_stream_reads_does_not_change_while_it_is_made_anew() -> None:
    rules = Rules(policy="sync", allow=frozenset({("recreate", "Stream/A"), ("data-loss", "Stream/A")}))
    world = there(origin(), copier(managed("c")))
    both = planned(manifests(origin(), copier(managed("d"), storage="memory")), world.server, rules)
    assert [reason.code for reason in of_a(both).reasons] == ["depends-on"]
    one = planned(manifests(origin(), copier(managed("c"), storage="memory")), world.server, rules)
    assert of_a(one).action is Action.RECREATE
    assert [note for note in of_a(one).notes if "behind sequence 20 of Stream/S" in note and "missing" in note]


@RETENTION
def test_a_stream_gets_the_name_of_a_durable_that_another_one_has_left(retention: str) -> None:
    def wanted(mine: str, theirs: str) -> Desired:
        other = stream("B", {"subjects": ["other.>"], "sources": [managed(theirs, filterSubject="s.b")]})
        return manifests(origin(retention), copier(managed(mine, filterSubject="s.a")), other)

    world = world_of(wanted("c", "d"), retention)
    found = Keeper(world).bring(wanted("d", "e"))
    world.settle()
    assert found.changes == ()
    assert {name for _, name in world.server.consumers} == {"d", "e"}
    assert (world.missing(), world.duplicates(), world.stuck()) == ([], [], [])


def test_a_durable_stays_while_it_is_wanted_for_another_stream_that_could_not_go_on_from_it() -> None:
    mine, other = copier(managed()), stream("B", {"subjects": ["other.>"]})
    world = there(origin("interest"), mine, other)
    taken = stream("B", {"subjects": ["other.>"], "sources": [managed()]})
    (left,) = Keeper(world).bring(manifests(origin("interest"), copier(), taken)).changes
    assert [reason.code for reason in left.reasons] == ["not-owned"]
    assert ("S", "c") in world.server.consumers, "it keeps what is published"


BEGUN = {
    "taken": ((copier(plain()),), (copier(managed()),)),
    "renamed": ((copier(managed("d")),), (copier(managed()),)),
    "taken under another name": ((copier(plain()),), (copier(managed("d")),)),
    "declared by a person": ((copier(plain()),), (copier(own("c")), user("c"))),
    "given to a person": ((copier(managed()),), (copier(own("c")), user("c"))),
    "transformed": ((copier(managed(subjectTransforms=IDENTITY)),), (copier(managed(subjectTransforms=MOVED)),)),
    "changed as it is taken": ((copier(plain()),), (copier(own("c"), maxAge="1d"), user("c", description="b"))),
}


def without_reader(world: SourceWorld) -> bool:
    """On a workqueue the old durable goes before the new one comes: in between, the queue keeps everything."""
    (entry,) = world.server.streams["A"].config["sources"]
    name = (entry.get("consumer") or {}).get("name", "")
    return world.retention == "workqueue" and bool(name) and ("S", name) not in world.server.consumers


@RETENTION
@pytest.mark.parametrize("name", BEGUN)
def test_what_was_begun_comes_to_rest_where_the_manifests_want_by_now_what_is_blocked(name: str, retention: str) -> None:
    before, begun = BEGUN[name]
    now = manifests(origin(retention), copier(managed(subjectTransforms=[{"src": "s.a", "dest": "s.a"}]), storage="memory"))
    world = there(origin(retention), *before)
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(manifests(origin(retention), *begun))
    for moment in smooth.moments():
        keeper = Keeper(copy.deepcopy(world), crash=moment)
        with contextlib.suppress(Killed):
            keeper.attempt(manifests(origin(retention), *begun))
        keeper.crash = NO_CRASH
        found = keeper.bring(now)
        assert {change.action for change in found.changes} == {Action.BLOCKED}
        keeper.world.settle()
        said = f"{moment}, {[reason.message for change in found.changes for reason in change.reasons]}"
        assert keeper.world.duplicates() == [], said
        if without_reader(keeper.world):
            queue = keeper.server.streams["S"]
            assert set(keeper.world.missing()) == {queue.id_of(seq) for seq in queue.messages}, said
            continue
        assert keeper.world.missing() == [], said
        assert leftovers(keeper.server, ("c", "d", "u")) == [], said


def test_a_mirror_is_not_taken_off_its_durable() -> None:
    def wanted(subject: str) -> Desired:
        return manifests(origin(), stream("A", {"mirror": managed(filterSubject=subject)}))

    world = KeptWorld()
    Keeper(world).bring(wanted("s.a"))
    (change,) = planned(wanted("s.>"), world.server, SYNC).changes
    assert [reason.code for reason in change.reasons] == ["immutable"]


@pytest.mark.parametrize("retention", ["limits", "interest"])
@pytest.mark.parametrize("name", ["taken", "renamed", "removed"])
def test_what_nobody_reads_through_is_not_left_waiting_for_an_entry_that_is_blocked(name: str, retention: str) -> None:
    two = (plain(filterSubject="s.a"), plain(filterSubject="s.b"))
    forms = {
        "taken": (two, (managed(subjectTransforms=[{"src": "s.a", "dest": "s.a"}]), plain(filterSubject="s.b"))),
        "renamed": ((*two, managed("d", filterSubject="s.c")), (*two, managed("c", filterSubject="s.c"))),
        "removed": ((*two, managed("c", filterSubject="s.c")), two),
    }
    before, begun = forms[name]
    allowed = Intent(allow=frozenset({"data-loss"}))
    world = there(origin(retention), copier(*before))
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(manifests(origin(retention), copier(*begun, intent=allowed)))
    now = manifests(origin(retention), copier(managed(), intent=allowed))
    for moment in smooth.moments():
        keeper = Keeper(copy.deepcopy(world), crash=moment)
        with contextlib.suppress(Killed):
            keeper.attempt(manifests(origin(retention), copier(*begun, intent=allowed)))
        keeper.crash = NO_CRASH
        found = keeper.bring(now)
        assert {change.action for change in found.changes} == {Action.BLOCKED}
        assert leftovers(keeper.server, ("c", "d")) == [], f"{moment}, {keeper.ends}"


def mirrored(entry: Entry) -> Declared:
    return stream("A", {"mirror": entry})


@RETENTION
@pytest.mark.parametrize("before", [managed(), plain()])
@pytest.mark.parametrize("now", [managed(), managed("d"), plain()])
def test_a_mirror_does_not_become_a_source_of_the_same_stream_at_once(before: Entry, now: Entry, retention: str) -> None:
    world = there(origin(retention), mirrored(before))
    change = of_a(planned(manifests(origin(retention), copier(now)), world.server))
    assert change.action is Action.BLOCKED
    (reason,) = [reason for reason in change.reasons if reason.code == "depends-on"]
    assert ("optStartSeq" in reason.way_out, "a new stream" in reason.way_out) == (retention == "limits", retention == "interest")


def test_a_mirror_s_durable_gets_no_other_name_as_a_way_out() -> None:
    world = there(origin(), mirrored(managed()))
    change = of_a(planned(manifests(origin(), mirrored(managed(optStartSeq=2))), world.server))
    (reason,) = change.reasons
    assert reason.code == "immutable"
    assert "another name" not in reason.way_out
    assert "a new stream" in reason.way_out
