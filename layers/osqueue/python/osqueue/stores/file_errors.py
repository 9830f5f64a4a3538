"""What an operating system's error on a file means to a caller: what happened and what to do."""

from __future__ import annotations

import errno
import os

from ..errors import OsqueueError, Rejected, Unavailable

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space or move the store",
    errno.EDQUOT: "the disk quota is used up; raise it or free space",
    errno.EACCES: "this user may not read and write there; change the folder's owner or mode",
    errno.EPERM: "the file system forbids it; the store needs hard links and this user as the files' owner",
    errno.EROFS: "the file system is mounted read-only; mount it for writing",
    errno.EMFILE: "this process has too many open files; raise `ulimit -n`",
    errno.ENFILE: "the machine has too many open files; raise fs.file-max",
    errno.ENOTSUP: "the file system lacks hard links or locks; use a local one such as ext4, xfs or apfs",
    errno.EIO: "the disk reports an error; check it before going on",
}


def explained(verb: str, path: str, error: OSError) -> OsqueueError:
    """The error to raise when ``verb`` failed at ``path``."""
    number = error.errno or 0
    if number == errno.ENAMETOOLONG:
        return Rejected(
            f"cannot {verb} {path}: one part of the key is over 255 bytes; shorten it", field="key"
        )
    if number in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return Rejected(
            f"cannot {verb} {path}: on a file system no key can also be the folder of another; rename one",
            field="key",
        )
    remedy = _REMEDIES.get(number, "check the folder and the disk")
    return Unavailable(f"cannot {verb} {path}: {os.strerror(number)}. Remedy: {remedy}.")
