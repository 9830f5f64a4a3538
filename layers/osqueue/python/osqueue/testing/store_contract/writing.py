"""Rules on writing and deleting, also under a condition: a definite answer tells what happened."""

from __future__ import annotations

from ...stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    Written,
)
from .opening import create, found, keys, rule


class WritingRules:
    """What writes and deletions answer, and leave."""

    @rule
    def test_only_the_first_creation_is_written(self, store: Store) -> None:
        """PutIfAbsent creates, and is refused where an object is; that one stays as it is.

        By it a queue's head comes to be, and a client's id stands for one job. Two creations would be two heads.
        """
        version = create(store, "a/key", b"first")
        assert store.perform(PutIfAbsent("a/key", b"second")) == Refused()
        read = found(store, "a/key")
        assert (read.body, read.version) == (b"first", version)

    @rule
    def test_a_write_against_the_current_version_replaces(self, store: Store) -> None:
        """PutIfMatch of the current version writes, and answers the new version.

        Every commit is one.
        """
        version = create(store, "head", b"one")
        reply = store.perform(PutIfMatch("head", b"two", version))
        assert isinstance(reply, Written), reply
        assert reply.version != version
        read = found(store, "head")
        assert (read.body, read.version) == (b"two", reply.version)

    @rule
    def test_a_refused_write_leaves_the_content_unchanged(self, store: Store) -> None:
        """PutIfMatch of any other version is refused, and Refused is definite: nothing was written.

        Of two commits that began with the same head one has to lose. If both are written, the jobs of the first are
        lost; if the refused one is written all the same, its caller repeats it, and its jobs run twice.
        """
        stale = create(store, "head", b"one")
        assert isinstance(store.perform(PutIfMatch("head", b"two", stale)), Written)
        before = found(store, "head")
        assert store.perform(PutIfMatch("head", b"three", stale)) == Refused()
        assert store.perform(PutIfMatch("head", b"three", '"0123456789abcdef0123456789abcdef"')) == Refused()
        assert found(store, "head") == before

    @rule
    def test_a_write_against_a_missing_object_is_refused(self, store: Store) -> None:
        """PutIfMatch of a key without an object is refused, and creates none.

        A writer that was away while a queue was removed must not bring it back.
        """
        version = create(store, "other", b"one")
        assert store.perform(PutIfMatch("head", b"two", version)) == Refused()
        assert store.perform(Get("head")) == Missing()

    @rule
    def test_an_unconditional_write_creates_and_replaces(self, store: Store) -> None:
        """Put writes whatever is there, durable or not, and answers the version.

        Archives, backups and the object that measures the clock are written so.
        """
        first = store.perform(Put("a/b", b"one", durable=False))
        second = store.perform(Put("a/b", b"two"))
        third = store.perform(Put("a/b", b"three", durable=False))
        assert isinstance(first, Written), first
        assert isinstance(second, Written), second
        assert isinstance(third, Written), third
        assert len({first.version, second.version, third.version}) == 3
        read = found(store, "a/b")
        assert (read.body, read.version) == (b"three", third.version)

    @rule
    def test_a_version_never_returns(self, store: Store) -> None:
        """Other bytes are another version, for ever: also those of an object that was deleted and made again.

        A writer that stood still for an hour compares with the version that it read then. Were it back, its write would
        pass for one that knows the newest. (The bodies here begin with a count, as the head with a random number: equal
        bytes may be an equal version.)
        """
        seen: list[str] = []
        for turn in range(12):
            for content in (b"A", b"B", b"A"):
                body = b"%d %s" % (len(seen), content)
                current = store.perform(Get("head"))
                if isinstance(current, Found):
                    reply = store.perform(PutIfMatch("head", body, current.version))
                else:
                    reply = store.perform(PutIfAbsent("head", body))
                assert isinstance(reply, Written), reply
                seen.append(reply.version)
            if turn % 2:
                store.perform(Delete(("head",)))
            else:
                assert store.perform(DeleteIfMatch("head", seen[-1])) == Deleted()
        assert len(set(seen)) == len(seen)

    # ── Deleting ─────────────────────────────────────────────────────────────
    @rule
    def test_deleted_objects_are_gone_and_others_stay(self, store: Store) -> None:
        """Delete removes what it names, and neither a missing object nor an empty list is an error.

        Deletions are repeated after a failure, and find what is gone already.
        """
        for name in ("a/1", "a/2", "a/3", "b"):
            create(store, name)
        assert store.perform(Delete(("a/1", "a/3", "a/never-there"))) == Deleted()
        assert store.perform(Delete(())) == Deleted()
        assert keys(store, "") == ("a/2", "b")
        assert store.perform(Get("a/1")) == Missing()

    @rule
    def test_many_objects_are_deleted_in_one_request(self, store: Store) -> None:
        """One Delete takes many keys.

        What is garbage is removed a page of a listing at a time.
        """
        names = tuple(f"many/{number:04d}" for number in range(60))
        for name in names:
            store.perform(Put(name, b"x", durable=False))
        assert store.perform(Delete(names)) == Deleted()
        assert keys(store, "") == ()

    @rule
    def test_a_conditional_deletion_needs_the_current_version(self, store: Store) -> None:
        """DeleteIfMatch removes the version that it names, and spares any other; of a missing object it is refused.

        It frees a client's id of a job that is over. One that somebody has just taken again must stay.
        """
        stale = create(store, "ids/1", b"one")
        current = store.perform(PutIfMatch("ids/1", b"two", stale))
        assert isinstance(current, Written), current
        assert store.perform(DeleteIfMatch("ids/1", stale)) == Refused()
        assert found(store, "ids/1").body == b"two"
        assert store.perform(DeleteIfMatch("ids/1", current.version)) == Deleted()
        assert store.perform(Get("ids/1")) == Missing()
        assert store.perform(DeleteIfMatch("ids/1", current.version)) == Refused()

    @rule
    def test_a_deleted_key_can_be_created_again(self, store: Store) -> None:
        """After a deletion a key is as one that was never used, but for its old versions, which stay refused.

        A queue of a name that was removed begins anew, and writers of the old one must not reach it.
        """
        first = create(store, "ids/1", b"one")
        store.perform(Delete(("ids/1",)))
        assert store.perform(PutIfMatch("ids/1", b"two", first)) == Refused()
        create(store, "ids/1", b"three")
        assert store.perform(PutIfMatch("ids/1", b"two", first)) == Refused()
        assert found(store, "ids/1").body == b"three"
