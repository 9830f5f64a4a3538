"""The access to the files of a store in a folder: for its user alone, for a group, or by an access list."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from osqueue import Queue
from osqueue.errors import Unavailable
from osqueue.stores import file_access
from osqueue.stores.base import (
    Answered,
    Delete,
    Deleted,
    Found,
    Get,
    PassTurn,
    Put,
    PutIfAbsent,
    TakeTurn,
    Turn,
    Written,
)
from osqueue.stores.file import FileStore

GROUP, FIRST, SECOND, STRANGER = 60_100, 60_101, 60_102, 60_103
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def use(folder: Path) -> None:
    """Let a store create each kind of file: objects, lock files, pipes, and the folders they lie in."""
    store = FileStore(folder)
    q: Queue[object] = Queue(store, "mail")
    q.enqueue({"n": 1})
    q.enqueue("x" * 3_000)
    q.claim(limit=2)[0].complete()
    turn = store.take_turn(TakeTurn("q/head", b"note", 0.0))
    assert isinstance(turn, Turn)
    store.take_turn(TakeTurn("q/head", b"another", 0.0))  # which needs a pipe of its own
    store.pass_turn(PassTurn(turn, ()))


def modes(folder: Path) -> dict[str, set[int]]:
    """The modes that a folder's content has, by what it is."""
    found: dict[str, set[int]] = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            mode = os.lstat(os.path.join(root, name)).st_mode
            kind = {stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFIFO: "pipe"}[stat.S_IFMT(mode)]
            found.setdefault(kind, set()).add(stat.S_IMODE(mode))
    return found


@pytest.mark.parametrize("mask", [0, 0o22, 0o77])
@pytest.mark.parametrize("made", [None, 0o755, 0o777 & ~stat.S_IWGRP])
def test_a_folder_is_private_unless_its_group_may_write(tmp_path: Path, mask: int, made: int | None) -> None:
    folder = tmp_path / "jobs"
    if made is not None:
        folder.mkdir()
        folder.chmod(made)
    with umask(mask):
        use(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == (0o700 if made is None else made)
    assert modes(folder) == {"folder": {0o700}, "file": {0o600}, "pipe": {0o600}}


@pytest.mark.parametrize("mask", [0, 0o22, 0o77])
@pytest.mark.parametrize("made", [0o770, 0o775, 0o2775])
def test_a_folder_that_its_group_may_write_is_shared_with_the_group(
    tmp_path: Path, mask: int, made: int
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    folder.chmod(made)
    with umask(mask):
        use(folder)
    assert modes(folder) == {"folder": {0o2770}, "file": {0o660}, "pipe": {0o660}}
    names = [name for _, folders, files in os.walk(folder) for name in folders + files]
    assert [name for name in names if name.startswith(".") and name != ".osqueue"] == []


def test_a_folder_that_is_shared_later_shares_what_is_created_then(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    tmp_path.chmod(0o700)
    store.perform(PutIfAbsent("q/one", b"1"))
    tmp_path.chmod(0o770)
    store.perform(PutIfAbsent("q/two", b"2"))
    assert [stat.S_IMODE((tmp_path / "q" / name).stat().st_mode) for name in ("one", "two")] == [0o600, 0o660]


@pytest.mark.parametrize(
    ("above", "expected"), [(0o2770, 0o2770), (0o2775, 0o2770), (0o2755, 0o2700), (0o770, 0o700)]
)
def test_a_new_store_follows_a_setgid_folder_that_its_group_may_write(
    tmp_path: Path, above: int, expected: int
) -> None:
    tmp_path.chmod(above)
    folder = tmp_path / "jobs"
    with umask(0o22):
        use(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == expected
    assert modes(folder)["file"] == {0o660 if expected & stat.S_IWGRP else 0o600}


def test_an_error_of_access_names_both_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    store = FileStore(tmp_path)
    monkeypatch.setattr(os, "link", refused)
    reply = store.perform(PutIfAbsent("q/one", b"1"))
    assert (
        "as the user who created it, or share its folder with a group that all of them are in: chgrp -R"
        in str(reply)
    )


# ── Users ────────────────────────────────────────────────────────────────────


def as_user(user: int, groups: list[int], do: Callable[[], None]) -> str:
    """Run something as a user, in a process of its own. Return its error, or nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = ""
        try:
            os.setgroups(groups)
            os.setgid(user)  # each user has a group of that number
            os.setuid(user)
            do()
        except BaseException:
            said = traceback.format_exc()
        os.write(write, said.encode()[:4_000])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as stream:
        said = stream.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder that each user reaches, and a group may write. Modules are loaded: not every user reaches those."""
    FileStore(tmp_path / "loads", fsync=False).perform(Put("q/plain", b"one"))
    FileStore(tmp_path / "loads", fsync=False).perform(Put("q/plain", b"two"))
    with tempfile.TemporaryDirectory() as place:  # pytest closes its own folders whenever another run begins
        Path(place).chmod(0o711)
        if not all(above.stat().st_mode & stat.S_IXOTH for above in Path(place).parents):
            pytest.skip("other users do not reach the folder for temporary files")
        folder = Path(place, "shared")
        folder.mkdir()
        os.chown(folder, 0, GROUP)
        folder.chmod(0o2775)
        yield folder


def stranger_gets_nothing(folder: Path) -> None:
    """Try to open everything. Raises AssertionError where that works."""
    paths = [os.path.join(root, name) for root, _, files in os.walk(folder) for name in files]
    for path in [*paths, *(f"{folder}/.osqueue/{part}" for part in ("locks/00", "turns/x.box"))]:
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            try:
                descriptor = os.open(path, flags | os.O_NONBLOCK)
            except PermissionError:
                continue
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            raise AssertionError(f"{path} opens")


@as_root
@pytest.mark.parametrize(("setgid", "mask", "fsync"), [(True, 0o22, True), (False, 0o77, False)])
def test_users_of_a_group_share_a_folder_and_a_stranger_gets_nothing(
    shared: Path, setgid: bool, mask: int, fsync: bool
) -> None:
    shared.chmod(0o2775 if setgid else 0o775)

    def work() -> None:
        """Change each kind of object, also what the other user has created."""
        os.umask(mask)
        with closing(FileStore(shared, fsync)) as store:
            q: Queue[object] = Queue(store, "mail", timeout=5)
            q.enqueue({"n": 1}, id="once")
            q.enqueue("x" * 3_000)
            for lease in q.claim(limit=2):
                lease.complete(result="y" * 3_000)
            for body in (b"one", b"two"):  # in the same place: who replaces it ends a version of the other
                assert type(store.perform(Put("q/plain", body))).__name__ == "Written"
            turn = store.take_turn(TakeTurn("q/head", b"note", 1.0))
            assert isinstance(turn, Turn), turn
            store.pass_turn(PassTurn(turn, ()))

    for user in (FIRST, SECOND, FIRST, SECOND):
        assert as_user(user, [GROUP], work) == ""
    assert as_user(STRANGER, [], lambda: stranger_gets_nothing(shared)) == ""
    assert as_user(STRANGER, [FIRST], lambda: stranger_gets_nothing(shared)) == ""


@as_root
def test_a_note_of_one_user_is_carried_out_by_another(shared: Path) -> None:
    store = FileStore(shared)
    turn = store.take_turn(TakeTurn("q/head", b"", 0.0))
    assert isinstance(turn, Turn)
    ready, done = os.pipe(), os.pipe()

    def wait() -> None:
        os.write(ready[1], b"x")
        answer = FileStore(shared).take_turn(TakeTurn("q/head", b"note", 20.0))
        assert isinstance(answer, Answered | Turn), answer

    child = os.fork()
    if not child:
        os.write(done[1], as_user(FIRST, [GROUP], wait).encode() or b"-")
        os._exit(0)
    os.read(ready[0], 1)
    store.pass_turn(PassTurn(turn, ()))
    assert os.read(done[0], 4_000) == b"-"
    os.waitpid(child, 0)


@as_root
def test_a_private_folder_keeps_other_users_away_and_its_error_says_so(shared: Path) -> None:
    shared.chmod(0o775)  # without the setgid bit: a new store does not follow it
    private = shared / "private"

    def connect() -> None:
        with pytest.raises(Unavailable, match="chgrp -R GROUP FOLDER"):
            Queue.connect(f"file://{private}", "mail").enqueue(1)

    assert as_user(FIRST, [GROUP], lambda: use(private)) == ""
    for user, groups in ((SECOND, [GROUP]), (STRANGER, [])):
        assert as_user(user, groups, connect) == ""
        assert as_user(user, groups, lambda: stranger_gets_nothing(private)) == ""


@as_root
@pytest.mark.parametrize(
    ("mode", "owner"), [(0o777, 0), (0o1777, 0), (0o2777, 0), (0o775, FIRST), (0o2775, FIRST)]
)
def test_a_user_outside_the_group_has_a_private_store(shared: Path, mode: int, owner: int) -> None:
    os.chown(shared, owner, GROUP)
    shared.chmod(mode)

    def connect() -> None:
        with pytest.raises(Unavailable, match="a group that all of them are in: chgrp -R GROUP FOLDER"):
            Queue.connect(f"file://{shared}", "mail").enqueue(1)

    for _ in range(2):
        assert as_user(FIRST, [], lambda: use(shared)) == ""
    assert {mode & 0o777 for each in modes(shared).values() for mode in each} == {0o600, 0o700}
    for user, groups in ((SECOND, []), (STRANGER, [GROUP])):
        assert as_user(user, groups, connect) == ""
        assert as_user(user, groups, lambda: stranger_gets_nothing(shared)) == ""


def test_a_root_without_the_right_to_give_a_group_has_a_private_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(file_access, "_group_of", lambda folder: GROUP)
    monkeypatch.setattr(os, "chown", refused)
    assert isinstance(FileStore(tmp_path).perform(PutIfAbsent("q/one", b"1")), Written)
    assert modes(tmp_path) == {"folder": {0o700}, "file": {0o600}}


@as_root
def test_a_user_deletes_what_it_may_not_open(shared: Path) -> None:
    os.chown(shared, FIRST, FIRST)
    shared.chmod(0o700)
    keys = tuple(f"q/{n}" for n in range(3))

    def put() -> None:
        for key in keys:
            FileStore(shared).perform(PutIfAbsent(key, b"1"))
        FileStore(shared).perform(Delete(("q/none",)))

    def delete() -> None:
        assert isinstance(FileStore(shared).perform(Delete(keys)), Deleted)

    assert as_user(FIRST, [], put) == ""
    os.chown(shared / "q/1", 0, 0)  # as a restored backup or a command of root would leave it
    assert as_user(FIRST, [], delete) == ""
    assert os.listdir(shared / "q") == []


# ── Access lists ─────────────────────────────────────────────────────────────

NONE, READ, ALL = 0, 5, 7  # permissions of an entry
OWNER, USER, OWNING_GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20  # tags


def access_list(group: int, users: tuple[int, ...], mask: int = ALL) -> bytes:
    """Return a list with these permissions of the owning group, and all for the users."""
    named = [(USER, ALL, user) for user in users]
    entries = [(OWNER, ALL, 2**32 - 1), *named]
    entries += [
        (tag, permits, 2**32 - 1) for tag, permits in ((OWNING_GROUP, group), (MASK, mask), (OTHER, 0))
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def set_list(folder: Path, kind: str, content: bytes) -> None:
    try:
        os.setxattr(folder, f"system.posix_acl_{kind}", content)
    except (AttributeError, OSError):
        pytest.skip("no access lists here")


def put_and_replace(folder: Path) -> Callable[[], None]:
    def work() -> None:
        store = FileStore(folder)
        for body in (b"one", b"two"):
            assert isinstance(store.perform(Put("q/plain", body)), Written)
        assert isinstance(store.perform(Get("q/plain")), Found)

    return work


@as_root
@pytest.mark.parametrize("permits", [NONE, READ])
def test_the_group_gets_nothing_if_its_entry_in_an_access_list_may_not_write(
    shared: Path, permits: int
) -> None:
    os.chown(shared, FIRST, GROUP)
    shared.chmod(0o700)
    set_list(shared, "access", access_list(permits, (SECOND,)))
    assert stat.S_IMODE(shared.stat().st_mode) == 0o770  # the mask
    assert as_user(FIRST, [GROUP], put_and_replace(shared)) == ""
    assert modes(shared) == {"folder": {0o700}, "file": {0o600}}


@as_root
def test_the_group_shares_a_folder_with_an_access_list_that_lets_it_write(shared: Path) -> None:
    set_list(shared, "access", access_list(ALL, (STRANGER,)))
    for user in (FIRST, SECOND):
        assert as_user(user, [GROUP], put_and_replace(shared)) == ""
    assert modes(shared) == {"folder": {0o2770}, "file": {0o660}}


@as_root
def test_users_of_a_default_access_list_share_a_folder_and_a_stranger_gets_nothing(shared: Path) -> None:
    for kind in ("access", "default"):
        set_list(shared, kind, access_list(NONE, (FIRST, SECOND)))

    def work() -> None:
        os.umask(0o22)
        with closing(FileStore(shared, fsync=False)) as store:
            q: Queue[object] = Queue(store, "mail", timeout=5)
            q.enqueue("x" * 3_000)
            q.claim()[0].complete()
            for body in (b"one", b"two"):
                assert type(store.perform(Put("q/plain", body))).__name__ == "Written"

    for user in (FIRST, SECOND, FIRST, SECOND):
        assert as_user(user, [], work) == ""
    assert as_user(STRANGER, [], lambda: stranger_gets_nothing(shared)) == ""
    assert as_user(STRANGER, [GROUP], lambda: stranger_gets_nothing(shared)) == ""
