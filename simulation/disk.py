"""The model of a disk: what a file system shows, and all that a power cut may leave of it.

What was flushed stays. Of the rest nothing is promised, and nothing keeps an order:

* A file has the content and the time of its last flush, or those it has now, or a part of the content, or none.
* Of a file that was written in place, each block holds what it held at the last flush, or anything it has held since.
* A name in a folder stands for what it stood for at the folder's last flush, or for anything it has stood for since.
  So a created file may be gone, a removed one may be back, and a rename is old or new at either of its ends.

Inode numbers are used again as soon as they are free. No two files share one, not even after a power cut.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

BLOCK_BYTES = 512  # what a disk writes as a whole

Slot = tuple[
    str, int, str
]  # what may be one thing or another after a power cut: a kind, an inode, a name in it
Choose = Callable[[Slot, int], int]  # which of so many possibilities, the oldest first


class File:
    """A file: what it holds, and what of that would outlast a power cut."""

    def __init__(self, number: int, mtime_ns: int, data: bytes = b"") -> None:
        self.number = number
        self.data = self.flushed = data
        self.mtime_ns = self.flushed_ns = mtime_ns
        self.names = 0
        self.opened = 0
        self.past: dict[
            int, list[bytes]
        ] = {}  # of blocks written in place since the last flush, the oldest first

    def overwrite(self, start: int, data: bytes) -> None:
        """Change a part of it."""
        end = start + len(data)
        assert end <= len(self.data), "only what is there is written in place"
        for block in range(start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1):
            self.past.setdefault(block, []).append(_block(self.data, block))
        self.data = self.data[:start] + data + self.data[end:]

    def flush(self) -> None:
        """Now it would."""
        self.flush_data()
        self.flushed_ns = self.mtime_ns

    def flush_data(self) -> None:
        """Its content would; its time might."""
        self.flushed = self.data
        self.past.clear()


class Folder:
    """A folder: what its names stand for, and what they have stood for since its last flush."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, File | Folder] = {}
        self.past: dict[str, list[File | Folder | None]] = {}  # the oldest first, without what is now

    def put(self, name: str, node: File | Folder | None) -> File | Folder | None:
        """Let a name stand for something else; what it stood for."""
        before = self.names.get(name)
        self.past.setdefault(name, []).append(before)
        if node is None:
            del self.names[name]
        else:
            self.names[name] = node
        return before

    def flush(self) -> None:
        """What it holds now would outlast a power cut."""
        self.past.clear()


class Disk:
    """A tree of folders and files, with the calls that change it. Paths are absolute."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 2
        self.root = Folder(self._number())

    def _number(self) -> int:
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next

    def _let_go(self, node: File | Folder | None) -> None:
        if isinstance(node, File) and not node.names and not node.opened:
            heappush(self._free, node.number)

    # ── Looking ──────────────────────────────────────────────────────────────
    def find(self, path: str) -> File | Folder:
        """What a path stands for."""
        node: File | Folder = self.root
        for name in path.split("/"):
            if name:
                if isinstance(node, File):
                    raise _error(errno.ENOTDIR, path)
                if name not in node.names:
                    raise _error(errno.ENOENT, path)
                node = node.names[name]
        return node

    def place(self, path: str) -> tuple[Folder, str]:
        """The folder a path's last name is in, and that name."""
        above, _, name = path.rpartition("/")
        folder = self.find(above)
        if isinstance(folder, File):
            raise _error(errno.ENOTDIR, path)
        return folder, name

    def files(self) -> Iterator[tuple[str, File]]:
        """Every file, with its path."""
        folders: list[tuple[str, Folder]] = [("", self.root)]
        for path, folder in folders:
            for name, node in folder.names.items():
                if isinstance(node, Folder):
                    folders.append((f"{path}/{name}", node))
                else:
                    yield f"{path}/{name}", node

    # ── Changing ─────────────────────────────────────────────────────────────
    def create(self, path: str, mtime_ns: int) -> File:
        """A new empty file."""
        folder, name = self.place(path)
        if name in folder.names:
            raise _error(errno.EEXIST, path)
        made = File(self._number(), mtime_ns)
        made.names = 1
        folder.put(name, made)
        return made

    def make_folder(self, path: str) -> None:
        """A new empty folder."""
        folder, name = self.place(path)
        if name in folder.names:
            raise _error(errno.EEXIST, path)
        folder.put(name, Folder(self._number()))

    def link(self, source: str, target: str) -> None:
        """Another name for a file."""
        file, (folder, name) = self.find(source), self.place(target)
        if name in folder.names:
            raise _error(errno.EEXIST, target)
        assert isinstance(file, File), source
        file.names += 1
        folder.put(name, file)

    def rename(self, source: str, target: str) -> None:
        """A file takes another name, and the place of what has it."""
        (source_folder, source_name), (folder, name) = self.place(source), self.place(target)
        file = self.find(source)
        source_folder.put(source_name, None)
        self._unname(folder.put(name, file))

    def unlink(self, path: str) -> None:
        """A name less."""
        folder, name = self.place(path)
        node = self.find(path)
        if isinstance(node, Folder):
            raise _error(errno.EISDIR, path)
        folder.put(name, None)
        self._unname(node)

    def _unname(self, node: File | Folder | None) -> None:
        if isinstance(node, File):
            node.names -= 1
            self._let_go(node)

    def close(self, file: File) -> None:
        """One fewer has it open."""
        file.opened -= 1
        self._let_go(file)

    # ── Power cuts ───────────────────────────────────────────────────────────
    def survivor(self, choose: Choose) -> Disk:
        """A disk that a power cut may leave, whose slots are as chosen."""
        left = Disk()
        left._next = self._next
        known: dict[int, File] = {}
        numbers: set[int] = set()

        def copy(folder: Folder, into: Folder) -> None:
            for name in [*folder.names, *(name for name in folder.past if name not in folder.names)]:
                options = [*folder.past.get(name, ()), folder.names.get(name)]
                at = choose(("name", folder.number, name), len(options)) if len(options) > 1 else 0
                node = options[at]
                if isinstance(node, Folder):
                    into.names[name] = below = Folder(left._number())
                    copy(node, below)
                elif node is not None:
                    if id(node) not in known:
                        # A removed file may be back beside the file that has its number since.
                        number = left._number() if node.number in numbers else node.number
                        numbers.add(number)
                        known[id(node)] = _remnant(node, number, choose)
                    file = into.names[name] = known[id(node)]
                    file.names += 1

        copy(self.root, left.root)
        return left


def _remnant(file: File, number: int, choose: Choose) -> File:
    """Return what is left of a file, with this inode number."""
    data, mtime_ns = file.data, file.mtime_ns
    if file.past and len(file.flushed) == len(data):
        for block, past in file.past.items():
            options = [*past, _block(file.data, block)]
            left = options[choose(("block", file.number, f"{block}"), len(options))]
            data = data[: block * BLOCK_BYTES] + left + data[block * BLOCK_BYTES + len(left) :]
    elif file.flushed != data:
        options = [file.flushed, b"", data[: len(data) // 2], bytes(len(data)), data]
        data = options[choose(("data", file.number, ""), len(options))]
    if file.flushed_ns != mtime_ns:
        mtime_ns = (file.flushed_ns, mtime_ns)[choose(("time", file.number, ""), 2)]
    return File(number, mtime_ns, data)


def _block(data: bytes, block: int) -> bytes:
    return data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]


def mode_of(node: File | Folder) -> int:
    """The mode that ``stat`` tells."""
    return stat.S_IFREG | 0o644 if isinstance(node, File) else stat.S_IFDIR | 0o755


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
