"""Folders of the wrong kind: on network file systems, and with other things where objects should be."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from osqueue import Queue
from osqueue.errors import Rejected
from osqueue.objects.layout import root_of
from osqueue.stores import file_system
from osqueue.stores.address import open_store
from osqueue.stores.base import (
    Delete,
    Deleted,
    Get,
    List,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
)
from osqueue.stores.file import FileStore
from osqueue.stores.file_system import network_type
from tests.support.replies import error_of, version_of

# As proc(5) has them: a disk, a share with a blank in its name, a disk inside it, one place mounted twice.
MOUNTS = r"""22 1 259:1 / / rw,relatime - ext4 /dev/root rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:40 / @/jobs\040of\134all rw,relatime shared:7 master:2 - nfs4 server:/jobs rw,vers=4.1
31 30 8:1 / @/jobs\040of\134all/disk rw shared:8 - xfs /dev/sda1 rw
32 22 0:41 / @/covered rw - cifs //server/share rw
33 22 8:2 / @/covered rw - ext4 /dev/sdb1 rw
34 22 8:3 / @/twice rw - autofs systemd-1 rw
35 34 0:42 / @/twice rw - fuse.sshfs me@there: rw
"""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which other file systems are said to be mounted."""
    place = tmp_path / "mounts"
    table = tmp_path / "table"
    table.write_text(MOUNTS.replace("@", str(place)))
    monkeypatch.setattr(file_system, "MOUNTS", str(table))
    return place


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("jobs of\\all", "nfs4"),
        ("jobs of\\all/of/mine", "nfs4"),
        ("jobs of\\all/disk", None),
        ("jobs of\\all/disk/of/mine", None),
        ("jobs of\\all/disks", "nfs4"),
        ("jobs", None),
        ("covered/jobs", None),
        ("twice/jobs", "fuse.sshfs"),
        ("", None),
    ],
)
def test_the_innermost_mount_tells_the_file_system(mounted: Path, folder: str, kind: str | None) -> None:
    assert network_type(str(mounted / folder)) == kind


def test_a_link_into_a_network_file_system_is_followed(mounted: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(mounted / "twice")
    assert network_type(str(tmp_path / "link" / "jobs")) == "fuse.sshfs"


def test_where_no_mounts_are_told_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_system, "MOUNTS", str(tmp_path / "missing"))
    assert network_type("/") is None


def test_the_real_table_of_mounts_can_be_read(tmp_path: Path) -> None:
    assert network_type(str(tmp_path)) is None  # else none of these tests could be trusted here


def test_a_folder_on_a_network_file_system_is_refused_unless_it_is_allowed(mounted: Path) -> None:
    address = f"file://{mounted}/twice/jobs"
    for refused in (address, f"{address}?network=refuse"):
        with pytest.raises(Rejected, match=r"fuse\.sshfs.*network=allow") as told:
            Queue.connect(refused, "mail")
        assert told.value.field == "address"
    assert not mounted.exists()
    assert open_store(f"{address}?network=allow").perform(Get("a")) == Missing()
    with pytest.raises(Rejected):
        FileStore(mounted / "twice")


# ── Links ────────────────────────────────────────────────────────────────────


def test_a_link_that_leads_nowhere_is_named_instead_of_tried_for_ever(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    version_of(store.perform(Put("q/other", b"x")))
    (tmp_path / "q/head").symlink_to(tmp_path / "gone")
    assert store.perform(Get("q/head")) == Missing()
    assert store.perform(PutIfMatch("q/head", b"x", "version")) == Refused()
    for request in (Put("q/head", b"x"), PutIfAbsent("q/head", b"x")):
        error = error_of(store.perform(request))
        assert isinstance(error, Rejected)
        assert "q/head" in error.message
        assert "leads nowhere" in error.message
    assert store.perform(Delete(("q/head",))) == Deleted()
    assert os.listdir(tmp_path / ".osqueue/tmp") == []


def test_a_link_to_a_folder_is_a_folder_of_keys_and_no_key(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    store = FileStore(tmp_path / "store")
    version_of(store.perform(Put("other", b"x")))
    (tmp_path / "store/linked").symlink_to(tmp_path / "elsewhere")
    version = version_of(store.perform(PutIfAbsent("linked/key", b"one")))
    version_of(store.perform(PutIfMatch("linked/key", b"two", version)))
    assert (tmp_path / "elsewhere/key").read_bytes() == b"two"
    assert store.list(List("")).keys == ("linked/key", "other")
    for request in (Put("linked", b"x"), PutIfAbsent("linked", b"x")):
        assert isinstance(error_of(store.perform(request)), Rejected)
    assert store.perform(Get("linked")) == store.perform(Get("linked", length=0)) == Missing()
    assert store.perform(PutIfMatch("linked", b"x", "version")) == Refused()
    assert store.perform(Delete(("linked",))) == Deleted()
    assert (tmp_path / "store/linked").is_symlink()


# ── What other programs leave ────────────────────────────────────────────────
def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    made = socket.socket(socket.AF_UNIX)
    with made, contextlib.chdir(path.parent):  # the name of a socket is short
        made.bind(path.name)


def put_link_to_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def put_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def put_folder(path: Path) -> None:
    path.mkdir()


def put_name_beside_utf_8(path: Path) -> None:
    Path(os.fsdecode(os.fsencode(path) + b"\xff")).write_bytes(b"x")


@pytest.mark.parametrize(
    "put", [put_pipe, put_socket, put_link_to_nowhere, put_link_to_itself, put_folder, put_name_beside_utf_8]
)
def test_a_listing_passes_over_what_is_no_object(tmp_path: Path, put: Callable[[Path], None]) -> None:
    store = FileStore(tmp_path, fsync=False)
    for key in ("q/a", "q/é"):
        version_of(store.perform(Put(key, b"x")))
    put(tmp_path / "q/other")
    assert store.list(List("q/")).keys == ("q/a", "q/é")


@pytest.mark.parametrize("put", [put_pipe, put_socket])
def test_a_pipe_or_socket_in_the_place_of_an_object_is_named_and_not_waited_for(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    store = FileStore(tmp_path, fsync=False)
    version_of(store.perform(Put("q/a", b"x")))
    put(tmp_path / "q/head")
    for request in (
        Get("q/head"),
        Get("q/head", length=0),
        Put("q/head", b"x"),
        PutIfMatch("q/head", b"x", "v"),
    ):
        error = error_of(store.perform(request))
        assert isinstance(error, Rejected)
        assert "not a file" in error.message
    assert store.perform(PutIfAbsent("q/head", b"x")) == Refused()


def test_a_queue_whose_head_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    q: Queue[int] = Queue(FileStore(tmp_path, fsync=False), "mail")
    head = tmp_path / f"{root_of('mail', 0)}head"
    head.parent.mkdir(parents=True)
    os.mkfifo(head)
    with pytest.raises(Rejected, match="not a file"):
        q.enqueue(1)
