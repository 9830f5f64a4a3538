"""Which file system a folder lies on, where the system tells: those of networks do not keep what a store needs.

Over a network a lock may hold on one machine alone, a version may be told from a cache, and a ``link`` that was
repeated on the way reports its own success as a name that exists.
"""

from __future__ import annotations

import os
import re

MOUNTS = (
    "/proc/self/mountinfo"  # of Linux, see proc(5); other systems have none, and nothing is refused there
)
_NETWORK = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ncpfs",
            "afs",
            "coda",
            "davfs",
            "ceph",
            "lustre",
            "gpfs",
            "beegfs",
        ),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs", "fuse.rclone", "fuse.davfs"),
        *(
            "fuse.s3fs",
            "fuse.goofys",
            "fuse.gcsfuse",
            "fuse.blobfuse",
            "fuse.blobfuse2",
            "fuse.mountpoint-s3",
        ),
    }
)
_ESCAPE = re.compile(r"\\([0-7]{3})")  # how blanks and backslashes stand in that file


def network_type(path: str) -> str | None:
    """The type of the network file system that a path lies on, or will once it is made; None: on none that is known."""
    real = os.path.realpath(path) + "/"
    os.path.exists(real)  # what is mounted when it is first looked into is so now
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return None
    found, longest = "", 0
    for fields in mounts:
        # Before a lone "-" stand where it is mounted, the fifth field, and as many others as there are; after it, what.
        point = _ESCAPE.sub(lambda code: chr(int(code[1], 8)), fields[4]).rstrip("/") + "/"
        if (
            real.startswith(point) and len(point) >= longest
        ):  # of two at one place, the later covers the other
            found, longest = fields[fields.index("-", 6) + 1], len(point)
    return found if found in _NETWORK else None
