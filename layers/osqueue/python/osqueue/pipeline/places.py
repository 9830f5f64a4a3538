"""Where an archive and the tables are: addresses as people write them, made fit for the library's stores and Spark."""

from __future__ import annotations

from pathlib import Path

from ..errors import NotSupported, Rejected
from ..stores.address import anywhere, open_store

_EXAMPLES = "file:///var/lib/jobs, s3://bucket/prefix"
_PATTERN = "*?[]{}\\"  # what Spark expands in the paths that it reads


def store_at(address: str, field: str) -> str:
    """The address of a store, or a plain path, as what a task opens, wherever it began. Raises Rejected."""
    scheme, path, options = _parts(address, field)
    try:
        address = anywhere(f"{scheme}://{_absolute(scheme, path)}{options}")
        store = open_store(address)
    except Rejected as error:
        raise type(error)(f"{field}: {error.message}", field=field) from None
    store.close()
    if not store.shared:
        raise NotSupported(
            f"{field}: memory:// is in one process, and the pipeline runs in others. Use one of {_EXAMPLES}.",
            field=field,
        )
    return address


def place(address: str, field: str) -> str:
    """The address of a folder, or a plain path, as the path that Spark takes. A store can be opened there, too.

    The options of a folder say how to write it, which is none of Spark's affair. A bucket takes none: Spark would not
    know of them, and where one job heeds them and the next does not, nobody can tell what holds. Raises Rejected.
    """
    scheme, path, options = _parts(address, field)
    if "endpoint=" in options:
        raise NotSupported(
            f"{field}: Spark reads and writes s3:// on EMR only, not at an endpoint. Use a folder, and copy it there.",
            field=field,
        )
    if scheme not in ("file", "s3"):
        raise NotSupported(f"{field}: Spark cannot read {scheme}://. Use one of {_EXAMPLES}.", field=field)
    if options and scheme == "file":
        store_at(address, field)
    elif options:
        raise Rejected(
            f"{field}: Spark would not know of the options of this address. Leave out all from the ? on. The region of"
            " a bucket comes from the environment: AWS_REGION.",
            field=field,
        )
    path = _absolute(scheme, path)
    if found := next((each for each in path if each in _PATTERN), ""):
        raise Rejected(
            f"{field}: Spark takes the {found} in {path} for a pattern. Use a folder without any of {_PATTERN}",
            field=field,
        )
    return f"{scheme}://{path}"


def _parts(address: str, field: str) -> tuple[str, str, str]:
    """Scheme, path, and the options of an address with their mark."""
    if not address:
        raise Rejected(f"{field}: it is empty. Give a folder or an address like {_EXAMPLES}.", field=field)
    scheme, separator, rest = address.partition("://")
    path, mark, options = rest.partition("?") if separator else (address, "", "")
    if "?" in path:
        raise Rejected(f"{field}: a ? in a path begins options. Use a folder without one.", field=field)
    if not path.strip("/") and scheme != "memory":
        raise Rejected(f"{field}: it names no folder. Give one like {_EXAMPLES}.", field=field)
    return scheme.lower() if separator else "file", path, mark + options


def _absolute(scheme: str, path: str) -> str:
    return str(Path(path).resolve()) if scheme == "file" else path.rstrip("/")
