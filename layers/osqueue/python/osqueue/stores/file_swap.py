"""Replacing a file without waiting for the disk, for stores that promise nothing about power cuts.

ext4 flushes a new file's data when a ``rename`` lets it replace another (``auto_da_alloc``, see ext4(5)):
four fifths of what a small replacement costs. Exchanging the two names (``RENAME_EXCHANGE``, see
rename(2)) is as atomic for everybody who looks, and waits for nothing. Python has no call for it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_OFFERED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


def replace_unflushed(temporary: str, path: str) -> None:
    """Let ``temporary`` take the place of the file at ``path``, in one step, by ``rename`` where need be."""
    exchange = _exchange()
    if exchange is not None and exchange(temporary, path):
        drop(temporary)  # it is what was replaced now
    else:
        os.rename(temporary, path)


def drop(temporary: str) -> None:
    """Remove a temporary file, or leave it to those who tidy: what was written, or was not, stays so either way."""
    with contextlib.suppress(OSError):
        os.unlink(temporary)


def drop_older(folder: str, mtime_ns: int) -> None:
    """Remove the temporary files that are older than this."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # somebody else tidies as well
                if entry.stat().st_mtime_ns < mtime_ns:
                    os.unlink(entry.path)


@functools.cache
def _exchange() -> Callable[[str, str], bool] | None:
    """The system's call; None where the C library has none. It answers False where the folder has none."""
    import ctypes  # here: only those who switch flushes off pay for it

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)

    def exchange(one: str, other: str) -> bool:
        if not renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
            return True
        number = ctypes.get_errno()
        if number in _NOT_OFFERED:
            return False
        raise OSError(number, os.strerror(number), one, None, other)

    return exchange
