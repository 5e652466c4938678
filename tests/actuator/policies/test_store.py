"""The policies that were sent to a node."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from policy_files import write_policy

from stallward.actuator.errors import DaemonError, PolicyStoreError
from stallward.actuator.policies import store as module
from stallward.actuator.policies.index import StoredPolicy
from stallward.actuator.policies.store import MAX_INCOMING, STALE_S, PolicyStore
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.errors import PolicyError

CONTENT = b"a policy" * 1000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def send(store: PolicyStore, content: bytes, name: str = "mine", part: int = 1000) -> StoredPolicy:
    sha256 = digest(content)
    for at in range(0, len(content), part):
        store.append(sha256, at, content[at : at + part])
    return store.complete(sha256, name, runs)


def runs(_path: Path) -> None:
    """The trial of a policy that runs."""


@pytest.fixture
def store(tmp_path: Path) -> PolicyStore:
    return PolicyStore(tmp_path / "policies", now_s=lambda: 1000.0)


def test_what_was_sent_in_parts_is_kept_as_a_whole(store: PolicyStore) -> None:
    policy = send(store, CONTENT)
    assert store.file(policy).read_bytes() == CONTENT
    assert (policy.size_bytes, policy.stored_s) == (len(CONTENT), 1000.0)
    assert store.policies() == (policy,)
    again = PolicyStore(store.file(policy).parents[1])
    assert again.policies() == (policy,)


def test_an_upload_is_resumed_where_it_ended(store: PolicyStore) -> None:
    sha256 = digest(CONTENT)
    assert store.received_bytes(sha256) == 0
    assert store.append(sha256, 0, CONTENT[:3000]) == 3000
    with pytest.raises(PolicyStoreError, match="3000 bytes of this policy are here") as raised:
        store.append(sha256, 2000, CONTENT[2000:])
    assert raised.value.next_step == "Go on at 3000."
    later = PolicyStore(store._folder)
    assert later.received_bytes(sha256) == 3000
    later.append(sha256, 3000, CONTENT[3000:])
    assert later.complete(sha256, "mine", runs).sha256 == sha256
    assert later.received_bytes(sha256) == len(CONTENT)


def test_half_a_policy_and_a_damaged_one_never_become_versions(store: PolicyStore) -> None:
    sha256 = digest(CONTENT)
    store.append(sha256, 0, CONTENT[:-1])
    with pytest.raises(PolicyStoreError, match="What was sent has the digest"):
        store.complete(sha256, "mine", runs)
    assert store.received_bytes(sha256) == 0, "the next try begins anew"
    with pytest.raises(PolicyStoreError, match="Nothing of the policy"):
        store.complete(sha256, "mine", runs)
    assert store.policies() == ()


def contents(store: PolicyStore) -> dict[str, bytes]:
    """Every file of the store."""
    files = (path for path in store._folder.rglob("*") if path.is_file())
    return {str(path.relative_to(store._folder)): path.read_bytes() for path in files}


def test_a_policy_that_does_not_run_changes_nothing(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In particular it hides none of its name, and none is dropped to make room for it."""
    monkeypatch.setattr(module, "MAX_STORED", 2)
    first, good = send(store, b"1", "first"), send(store, b"good", "november")
    before = contents(store)

    def fails(path: Path) -> None:
        assert store.policies() == (first, good), "others use the store meanwhile"
        raise PolicyError(f"The policy {path.name} is bad.")

    store.append(digest(b"bad"), 0, b"bad")
    with pytest.raises(PolicyError, match="is bad"):
        store.complete(digest(b"bad"), "november", fails)
    assert contents(store) == before
    assert store.find("november") == good


def test_one_that_is_there_and_does_not_run_any_more_gets_no_new_name(
    store: PolicyStore,
) -> None:
    """An earlier version of the daemon took any content; and libraries change."""
    sent = send(store, b"old", "old")
    before = contents(store)

    def fails(_path: Path) -> None:
        raise PolicyError("It is bad.")

    with pytest.raises(PolicyError, match="It is bad"):
        store.complete(sent.sha256, "new", fails)
    assert contents(store) == before


def test_an_upload_that_could_not_be_tried_is_kept_and_tried_again(store: PolicyStore) -> None:
    sha256 = digest(CONTENT)
    store.append(sha256, 0, CONTENT)

    def busy(_path: Path) -> None:
        raise DaemonError("It took more than 15 s.")

    with pytest.raises(DaemonError, match="more than 15 s"):
        store.complete(sha256, "mine", busy)
    assert (store.policies(), store.received_bytes(sha256)) == ((), len(CONTENT))
    assert store.complete(sha256, "mine", runs).sha256 == sha256


def damaged(policy: bytes, rng: random.Random) -> bytes:
    """A policy that was cut short, with a bit that was turned, or with a part that is missing."""
    at = rng.randrange(len(policy))
    match rng.randrange(3):
        case 0:
            return policy[:at]
        case 1:
            return policy[:at] + bytes([policy[at] ^ 1 << rng.randrange(8)]) + policy[at + 1 :]
        case _:
            return policy[:at] + policy[at + rng.randrange(1, 64) :]


def test_of_damaged_policies_the_store_takes_those_alone_that_run(
    store: PolicyStore, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path / "good.onnx").read_bytes()
    send(store, policy, "november")
    rng, refused = random.Random(7), 0
    for _ in range(60):
        content, before = damaged(policy, rng), contents(store)
        store.append(digest(content), 0, content)
        try:
            taken = store.complete(digest(content), "november", OnnxController)
        except PolicyError:
            assert contents(store) == before
            refused += 1
        else:
            OnnxController(store.file(taken))
    assert 40 <= refused < 60, "a bit of a weight makes another policy, which runs"


def test_sending_one_again_changes_only_its_name_and_place(store: PolicyStore) -> None:
    first = send(store, CONTENT, "old")
    other = send(store, b"other", "other")
    assert store.append(first.sha256, 0, CONTENT) == len(CONTENT)
    renamed = store.complete(first.sha256, "new", runs)
    assert [one.name for one in store.policies()] == ["other", "new"]
    assert store.file(renamed).read_bytes() == CONTENT
    assert store.find("old") is None
    assert store.find("other") == other


def test_policies_are_found_by_name_and_by_digest(store: PolicyStore) -> None:
    first, second = send(store, b"1", "mine"), send(store, b"2", "mine")
    assert store.find("mine") == second, "the newest"
    assert store.find(first.sha256) == first
    assert store.find(first.sha256[:8]) == first
    assert store.find(first.sha256[:5]) is None, "too short to be meant as a digest"
    assert store.find("nobody") is None


def test_a_policy_that_is_too_large_is_refused_and_dropped(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_POLICY_BYTES", 5000)
    sha256 = digest(CONTENT)
    store.append(sha256, 0, CONTENT[:5000])
    with pytest.raises(PolicyStoreError, match="at most 5000 bytes"):
        store.append(sha256, 5000, CONTENT[5000:])
    assert store.received_bytes(sha256) == 0


@pytest.mark.parametrize("sha256", ["", "../x", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_only_a_digest_becomes_part_of_a_path(store: PolicyStore, sha256: str) -> None:
    for call in (
        lambda: store.received_bytes(sha256),
        lambda: store.append(sha256, 0, b"x"),
        lambda: store.complete(sha256, "mine", runs),
    ):
        with pytest.raises(PolicyStoreError, match="is no SHA-256 digest"):
            call()


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "x" * 65, "a\nb"])
def test_a_name_is_short_and_plain(store: PolicyStore, name: str) -> None:
    store.append(digest(CONTENT), 0, CONTENT)
    with pytest.raises(PolicyStoreError, match="cannot be the name"):
        store.complete(digest(CONTENT), name, runs)
    assert store.complete(digest(CONTENT), "mine", runs), "nothing was lost"


def test_what_is_removed_is_gone_and_nothing_goes_back_to_it(store: PolicyStore) -> None:
    first, second = send(store, b"1", "same"), send(store, b"2", "same")
    assert store.named_before("same") == first
    for one in (first, second):
        store.activated(one.sha256, str(store.file(one)))
    assert store.remove(first.sha256) == first
    assert store.policies() == (second,)
    assert not store.file(first).exists()
    assert store.before(second.sha256) is None
    assert store.named_before("same") is None
    with pytest.raises(PolicyStoreError, match="There is no policy"):
        store.remove(first.sha256)


def test_all_policies_together_have_a_bound(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_STORED_BYTES", 3 * 1000)
    sent = [send(store, bytes([k]) * 1000, f"p{k}") for k in range(3)]
    for one in sent[:2]:
        store.activated(one.sha256, str(store.file(one)))
    sent += [send(store, bytes([k]) * 1000, f"p{k}") for k in range(3, 7)]
    left = [one for one in sent if store.file(one).exists()]
    assert left == [sent[0], sent[1], *sent[4:]], "those that decided last stay"
    assert store.policies() == tuple(left)
    large = send(store, b"x" * 4000, "large")
    assert store.file(large).exists()
    store.activated(large.sha256, str(store.file(large)))
    send(store, b"y", "small")
    assert not store.file(sent[0]).exists()
    assert store.before(large.sha256) is not None


def test_the_oldest_policies_and_uploads_make_room(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_STORED", 3)
    sent = [send(store, bytes([k]), f"p{k}") for k in range(5)]
    assert store.policies() == tuple(sent[2:])
    assert not store.file(sent[0]).exists()
    incoming = store._folder / "incoming"
    for k in range(MAX_INCOMING + 2):
        sha256 = digest(bytes([100 + k]))
        store.append(sha256, 0, bytes([100 + k]))
        os.utime(incoming / f"{sha256}.part", (1000.0 + k, 1000.0 + k))
    assert len(list(incoming.iterdir())) == MAX_INCOMING
    later = PolicyStore(store._folder, now_s=lambda: 1100.0 + STALE_S)
    later.append(digest(b"new"), 0, b"new")
    assert [part.stem for part in incoming.iterdir()] == [digest(b"new")]


def test_nobody_else_may_read_or_replace_what_is_stored(store: PolicyStore) -> None:
    policy = send(store, CONTENT)
    assert stat.S_IMODE(store.file(policy).stat().st_mode) == 0o600
    assert stat.S_IMODE(store._folder.stat().st_mode) == 0o700
    sha256, target = digest(b"x"), store._folder / "elsewhere"
    (store._folder / "incoming" / f"{sha256}.part").symlink_to(target)
    with pytest.raises(PolicyStoreError, match="cannot be stored"):
        store.append(sha256, 0, b"x")
    assert not target.exists()


def test_a_damaged_list_is_said_and_a_full_disk_loses_nothing(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = send(store, b"1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "open_private", full)
        with pytest.raises(PolicyStoreError, match="No space left on device"):
            store.append(digest(CONTENT), 0, CONTENT)
    assert store.policies() == (first,)
    (store._folder / "policies.json").write_text("{")
    with pytest.raises(PolicyStoreError, match="cannot be read"):
        store.policies()


def test_what_was_active_is_remembered_and_rolled_back_step_by_step(store: PolicyStore) -> None:
    assert store.before("c") is None
    for sha256 in "aabcb":
        store.activated(sha256, f"/{sha256}.onnx")
    later = PolicyStore(store._folder)
    previous = later.before("b")
    assert previous is not None
    assert (previous.sha256, previous.path) == ("c", "/c.onnx")
    later.rolled_back(previous)
    previous = later.before("c")
    assert previous is not None
    assert previous.sha256 == "b"
    later.rolled_back(previous)
    previous = later.before("b")
    assert previous is not None
    assert previous.sha256 == "a"
    later.rolled_back(previous)
    assert later.before("a") is None
    later.rolled_back(None)
    assert send(later, b"1") in later.policies(), "the policies stay"


def test_uploads_and_notes_from_many_threads_lose_nothing(store: PolicyStore) -> None:
    contents = [bytes([k]) * 5000 for k in range(20)]
    with ThreadPoolExecutor(MAX_INCOMING) as pool:
        for policy in pool.map(lambda c: send(store, c, "p", part=500), contents):
            assert policy
        list(pool.map(lambda k: store.activated(digest(contents[k]), "/p"), range(20)))
    assert {one.sha256 for one in store.policies()} == set(map(digest, contents))
    assert all(store.file(one).read_bytes() in contents for one in store.policies())
    assert store.before(digest(contents[0])) is not None


def test_what_was_dropped_is_never_gone_back_to(store: PolicyStore) -> None:
    for sha256 in "abc":
        store.activated(sha256, f"/{sha256}")
    store.dropped("b")
    previous = store.before("c")
    assert previous is not None
    assert previous.sha256 == "a"


def test_a_policy_that_is_active_stays(
    store: PolicyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_STORED", 2)
    first = send(store, b"0")
    store.activated(first.sha256, str(store.file(first)))
    for k in range(1, 5):
        send(store, bytes([k]))
    assert first in store.policies()
    assert store.file(first).exists()
