"""What the Spark jobs import on EMR Serverless, as one archive, built from the lock file with uv alone.

    python -m infra.bundle                 writes build/pipeline.tgz and says what is in it, and how large

It holds ``pipeline``, the library and what the library needs: msgspec. Spark and Py4J are those of the release that the
application runs on. The same sources give the same bytes, so a deployment without changes uploads nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import layers
from .layers import MB, ROOT, Built, Platform, Unbuildable

JOBS = ROOT / "pipeline"
ENTRY = JOBS / "jobs/run.py"  # what spark-submit is told to run
# Spark unpacks what ends in .tgz or .tar.gz; the CDK names a file by its last suffix alone.
ARCHIVE = ROOT / "build/pipeline.tgz"
BYTES_MAX = 10 * MB  # unpacked; every worker of every run fetches it
PYTHON = "3.11"  # of those that emr-spark-8.0.0 brings, the one that the tests run on
# The release stands on Amazon Linux 2023, which has glibc 2.34.
EMR = Platform("aarch64-manylinux_2_28", PYTHON)


def build(path: Path = ARCHIVE, platform: Platform = EMR, bytes_max: int = BYTES_MAX) -> Built:
    """Write the archive. Raises Unbuildable, also when it is too large: then nothing is written."""
    files, packages = layers.gathered(platform)
    jobs = {f"pipeline/{name}": data for name, data in _jobs()}
    packages["pipeline"] = sum(map(len, jobs.values()))
    size = sum(packages.values())
    if size > bytes_max:
        raise Unbuildable(
            f"the pipeline's archive has {size / MB:.1f} MB unpacked, {bytes_max / MB:g} MB is its limit:\n"
            f"{layers.table(packages)}\nRemedy: see what the core of the library has come to depend on."
        )
    data = packed({**files, **jobs})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Built(path, hashlib.sha256(data).hexdigest(), packages)


def _jobs() -> Iterator[tuple[str, bytes]]:
    for path in JOBS.rglob("*"):
        name = path.relative_to(JOBS)
        if path.is_file() and "__pycache__" not in name.parts:
            yield name.as_posix(), path.read_bytes()


def packed(files: Mapping[str, bytes]) -> bytes:
    """A compressed tar archive that is the same for the same files, whenever and by whomever it is made."""
    data = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=data, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    return data.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m infra.bundle", description="Build the archive of the Spark jobs."
    )
    parser.add_argument(
        "--output", type=Path, default=ARCHIVE, help="where the archive goes (build/pipeline.tgz)"
    )
    arguments = parser.parse_args()
    try:
        bundle = build(arguments.output)
    except Unbuildable as error:
        sys.exit(f"error: {error}")
    print(layers.table(bundle.packages))
    print(f"  {bundle.unzipped / MB:7.2f} MB  of {BYTES_MAX / MB:g}")
    print(f"{bundle.path}: {bundle.path.stat().st_size / MB:.2f} MB, sha256 {bundle.digest}")


if __name__ == "__main__":
    main()
