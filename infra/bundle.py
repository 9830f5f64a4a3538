"""What the Spark jobs import on EMR Serverless, as one archive, built from the lock file with uv alone.

    python -m infra.bundle                 writes build/pipeline.tgz and says what is in it, and how large

It holds the library, and what the extra ``emr`` of pyproject.toml needs: pyarrow, obstore and boto3, less what no job
loads of them. numpy and pandas are not among it. Spark, Py4J and Java are those of the release that the
application runs on. The same sources give the same bytes, so a deployment without changes uploads nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from . import layers
from .layers import MB, ROOT, Built, Platform, Unbuildable

ENTRY = ROOT / "pipeline/jobs/run.py"  # what spark-submit is told to run
# Spark unpacks what ends in .tgz or .tar.gz; the CDK names a file by its last suffix alone.
ARCHIVE = ROOT / "build/pipeline.tgz"
BYTES_MAX = 140 * MB  # unpacked; every worker of every run fetches and unpacks it
COMPRESSION = 4  # of 9: two seconds instead of eleven, for 4 % more bytes

# What no job loads. A pattern's * goes through folders.
LEFT_OUT = (
    *("pyarrow/include/*", "pyarrow/src/*", "pyarrow/tests/*", "pyarrow/*flight*"),
    # Copies of libarrow*.so.2100, which alone is linked to.
    *("pyarrow/libarrow*.so", "pyarrow/libarrow*.so.*.*"),
    # Descriptions of AWS's services.
    *("boto3/data/*", "boto3/examples/*", "botocore/data/*/*"),
)
# Of these S3's, and those by which a role or a profile becomes credentials.
SERVICES = tuple(f"botocore/data/{name}/" for name in ("s3", "sso", "sso-oidc", "sts"))

PYTHON = "3.11"  # of those that emr-spark-8.0.0 brings, the one that the tests run on
# The release stands on Amazon Linux 2023, which has glibc 2.34.
EMR = Platform("aarch64-manylinux_2_28", PYTHON)


def build(path: Path = ARCHIVE, platform: Platform = EMR, bytes_max: int = BYTES_MAX) -> Built:
    """Write the archive. Raises Unbuildable, also when it is too large: then nothing is written."""
    files, packages = layers.gathered(platform, "emr", layers.TOOLS)
    named = {each.partition(" ")[0]: each for each in packages}
    for name in filter(_left_out, tuple(files)):
        packages[named[name.partition("/")[0]]] -= len(files.pop(name))
    size = sum(packages.values())
    if size > bytes_max:
        raise Unbuildable(
            f"the pipeline's archive has {size / MB:.1f} MB unpacked, {bytes_max / MB:g} MB is its limit:\n"
            f"{layers.table(packages)}\n"
            "Remedy: take something out of the extra 'emr' in pyproject.toml, or add to LEFT_OUT."
        )
    data = packed(files)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Built(path, hashlib.sha256(data).hexdigest(), packages)


def _left_out(name: str) -> bool:
    return not name.startswith(SERVICES) and any(fnmatchcase(name, pattern) for pattern in LEFT_OUT)


def packed(files: Mapping[str, bytes]) -> bytes:
    """A compressed tar archive that is the same for the same files, whenever and by whomever it is made."""
    data = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=data, mtime=0) as stream,
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
