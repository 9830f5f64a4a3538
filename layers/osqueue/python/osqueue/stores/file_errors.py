"""What an operating system's error on a file means to a caller: what happened and what to do."""

from __future__ import annotations

import errno
import os

from ..errors import OsqueueError, Rejected, Unavailable, pass_on_interruption

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free space or move the store",
    errno.EDQUOT: "the disk quota is used up; raise it or free space",
    errno.EACCES: "this user may not read and write there. Run all processes of the store as the user who created it, "
    "or share its folder with a group that all of them are in: chgrp -R GROUP FOLDER; chmod -R g+rwX FOLDER. Readers "
    "need it too, since they take locks",
    errno.EPERM: "the file system forbids it; the store needs hard links, and a folder without the sticky bit where "
    "users share it",
    errno.EROFS: "the file system is mounted read-only; mount it for writing",
    errno.EMFILE: "this process has too many open files; raise `ulimit -n`",
    errno.ENFILE: "the machine has too many open files; raise fs.file-max",
    errno.ENOTSUP: "the file system lacks hard links or locks; use a local one such as ext4, xfs or apfs",
    errno.EIO: "the disk reports an error; check it before going on",
}
# Until somebody changes something, the file system will go on refusing. Only what comes before a change is sure.
_PERMANENT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTSUP})
FLUSH = "flush"  # the verb of what comes after it


def explained(verb: str, path: str, error: OSError) -> OsqueueError:
    """The error to raise when ``verb`` failed at ``path``."""
    pass_on_interruption(error)
    number = error.errno or 0
    if number == errno.ENAMETOOLONG:
        return Rejected(
            f"cannot {verb} {path!r}: one part of the key is over 255 bytes; shorten it", field="key"
        )
    if number in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return Rejected(
            f"cannot {verb} {path!r}: on a file system no key can also be the folder of another; rename one",
            field="key",
        )
    if number in (errno.ESPIPE, errno.ENXIO) and verb != FLUSH:
        return Rejected(
            f"cannot {verb} {path!r}: a pipe, a socket or a device stands there, not a file. Remove it.",
            field="key",
        )
    remedy = _REMEDIES.get(number, "check the folder and the disk")
    permanent = number in _PERMANENT and verb != FLUSH
    return Unavailable(
        f"cannot {verb} {path!r}: {os.strerror(number)}. Remedy: {remedy}.", permanent=permanent
    )


def dangling(path: str) -> Rejected:
    """The error to raise when a link that leads nowhere stands where an object is to be made."""
    return Rejected(
        f"cannot write {path!r}: a symbolic link stands there that leads nowhere. Remove it, or restore what it leads "
        "to.",
        field="key",
    )


def on_a_network(folder: str, kind: str) -> Rejected:
    """The error to raise for a folder that several machines may share."""
    return Rejected(
        f"{folder!r} lies on a network file system ({kind}), whose locks and versions do not keep writers apart: jobs "
        "could be lost. Name a folder on a local disk, or use s3://. If one machine alone uses the folder and you know "
        "that locks and hard links work there, add ?network=allow to the address.",
        field="address",
    )


def time_not_kept(folder: str, set_ns: int, kept_ns: int) -> Rejected:
    """The error to raise when the file system made another time of one that was set."""
    return Rejected(
        f"the file system of {folder!r} does not keep times to the nanosecond ({set_ns} became {kept_ns}), so that "
        "two versions of an object could look the same and jobs be lost. Name a folder on one that does, such as "
        "ext4 with inodes of 256 bytes, xfs or apfs; if it does, the machine's clock is wrong: set it.",
        field="address",
    )
