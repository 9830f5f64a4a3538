"""The Lambda layer, built from lock files with uv and Node.js: no Docker, the same bytes every time.

    python -m infra.layers                 writes build/layer.zip and says what is in it, and how large

It holds the library and what the extra ``functions`` of pyproject.toml needs, for the platform the functions run on.
boto3 is left out: the runtime brings it, and the functions load it for conditional deletions and events only. Byte code
is in it: a function cannot write it beside the modules, so it would compile them at each cold start.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "layers/osqueue/python/osqueue"
ARCHIVE = ROOT / "build/layer.zip"
COMPILER = ROOT / "infra/byte_code.mjs"
KEPT = ROOT / "build/byte-code"
KEPT_MAX = 8  # of the newest sources
MB = 1024 * 1024
UNZIPPED_BYTES_MAX = 30 * MB  # what a cold start has to map; Lambda itself takes 250 MB with everything

# What people and tests use, no function and no job. Nothing else in the library imports these:
# tests/unit/test_architecture.py.
TOOLS = ("asgi", "cli", "devstack", "testing", "__main__.py", "pytest_plugin.py")
LEFT_OUT = (*TOOLS, "pipeline", "spark")
# Notes of the installer. They tell how and where something was installed, so they are not the same everywhere.
NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
UNPACKED = "/opt/python"  # where Lambda unpacks it
FILE_MODE = 0o100644  # a plain file that everybody may read


class Platform(Struct, frozen=True):
    """What the packages are chosen for, in uv's words; None: the machine that builds."""

    system: str | None
    python: str


# Amazon Linux 2023, on which Lambda's Python 3.14 runs, has glibc 2.34.
LAMBDA = Platform("aarch64-manylinux_2_28", "3.14")
HERE = Platform(None, f"{sys.version_info.major}.{sys.version_info.minor}")


class Built(Struct, frozen=True):
    """A layer, or the archive of the Spark jobs (``infra.bundle``), that was built."""

    path: Path
    digest: str  # SHA-256 of the file
    packages: dict[str, int]  # bytes unpacked, by name and version

    @property
    def unzipped(self) -> int:
        """Bytes of all its files."""
        return sum(self.packages.values())


class Unbuildable(Exception):
    """The layer cannot be built as it has to be."""


def build(path: Path = ARCHIVE, platform: Platform = LAMBDA, bytes_max: int = UNZIPPED_BYTES_MAX) -> Built:
    """Write the layer's zip file. Raises Unbuildable, also when it is too large: then nothing is written."""
    files, packages = gathered(platform, "functions", LEFT_OUT)
    if platform == LAMBDA:  # this machine compiles for itself
        byte_code = compiled(files)
        files |= byte_code
        packages["byte code"] = sum(map(len, byte_code.values()))
    size = sum(packages.values())
    if size > bytes_max:
        raise Unbuildable(
            f"the layer has {size / MB:.1f} MB unzipped, {bytes_max / MB:g} MB is its limit:\n{table(packages)}\n"
            "Remedy: leave something out of the extra 'functions' in pyproject.toml."
        )
    data = zipped({f"python/{name}": content for name, content in files.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Built(path, hashlib.sha256(data).hexdigest(), packages)


def gathered(
    platform: Platform, extra: str, left_out: Sequence[str]
) -> tuple[dict[str, bytes], dict[str, int]]:
    """The library's files without some, and those of what it needs with an extra; and the bytes of each package."""
    with tempfile.TemporaryDirectory(prefix="osqueue-layer-") as folder:
        target = Path(folder)
        _install(target, platform, extra)
        packages = dict(_packages(target))
        files = _files(target)
    library = {f"osqueue/{name}": data for name, data in _library(left_out)}
    packages["osqueue"] = sum(map(len, library.values()))
    return {**files, **library}, packages


def _install(target: Path, platform: Platform, extra: str) -> None:
    """Put what the lock file names into a folder: wheels alone, their hashes checked."""
    uv = (
        _uv(),
        "--color",
        "never",
    )  # the CDK's command line asks everybody for colours, also in lists of packages
    plain = ("--no-default-groups", "--no-emit-project")
    wanted = _run("uv export", [*uv, "export", "--quiet", "--frozen", "--extra", extra, *plain])
    system = () if platform.system is None else ("--python-platform", platform.system)
    _run(
        "uv pip install",
        [
            *(*uv, "pip", "install", "--quiet", "--target", str(target), "--python", sys.executable),
            *(*system, "--python-version", platform.python, "--only-binary", ":all:", "--link-mode", "copy"),
            *("--no-deps", "--require-hashes", "--requirements", "-"),
        ],
        wanted,
    )


def compiled(files: Mapping[str, bytes], python: str = LAMBDA.python) -> dict[str, bytes]:
    """The byte code of the modules among some files, kept for the next time. Raises Unbuildable."""
    modules = {name: content for name, content in sorted(files.items()) if name.endswith(".py")}
    state = [
        python,
        UNPACKED,
        COMPILER.read_text(encoding="utf-8"),
        (ROOT / "package-lock.json").read_text(encoding="utf-8"),
    ]
    known = hashlib.sha256(repr((state, modules)).encode()).hexdigest()
    kept = KEPT / f"{known}.zip"
    with suppress(FileNotFoundError), zipfile.ZipFile(kept) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
    made = _compiled(modules, python)
    _keep(made, kept)
    return made


def _keep(made: Mapping[str, bytes], place: Path) -> None:
    """Keep what was compiled, and nothing that is old. Others may build at the same time."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=KEPT, delete=False) as file:
        file.write(zipped(made))
    os.replace(file.name, place)  # in one step
    with suppress(FileNotFoundError):  # somebody else has just deleted it
        for old in sorted(KEPT.glob("*.zip"), key=lambda path: path.stat().st_mtime)[:-KEPT_MAX]:
            old.unlink()


def _compiled(modules: Mapping[str, bytes], python: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="osqueue-layer-") as place:
        folder = Path(place)
        for name, content in modules.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        node = shutil.which("node")
        if node is None or not (ROOT / "node_modules/pyodide").is_dir():
            raise Unbuildable("what compiles byte code is missing. Remedy: Node.js, and npm ci.")
        _run("the compiler of byte code", [node, str(COMPILER), place, UNPACKED, python])
        found = ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*.pyc"))
        return {name: path.read_bytes() for name, path in found}


def _uv() -> str:
    own = ROOT / ".venv-tools/bin/uv"
    found = str(own) if own.is_file() else shutil.which("uv")
    if found is None:
        raise Unbuildable("uv is missing. Remedy: make setup installs it under .venv-tools.")
    return found


def _run(what: str, command: list[str], given: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    ended = subprocess.run(  # noqa: S603 - uv or a Python, with arguments of our own
        command, input=given, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    if ended.returncode:
        raise Unbuildable(f"{what} ended with {ended.returncode}: {ended.stderr.strip()}")
    return ended.stdout


def _kept(name: str) -> bool:
    """Does a file that was installed belong into the layer?"""
    folder, _, file = name.rpartition("/")
    noted = folder.endswith(".dist-info") and file in NOTES
    return not noted and not name.startswith(("bin/", ".")) and "__pycache__" not in name


def _files(target: Path) -> dict[str, bytes]:
    found = ((path.relative_to(target).as_posix(), path) for path in target.rglob("*") if path.is_file())
    return {name: path.read_bytes() for name, path in found if _kept(name)}


def _packages(target: Path) -> Iterator[tuple[str, int]]:
    """The bytes of each package, by the list of files that each brings."""
    for record in target.glob("*.dist-info/RECORD"):
        name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
        names = (row[0] for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"))))
        kept = {each for each in names if not each.startswith("..") and _kept(each)}
        yield f"{name} {version}", sum((target / each).stat().st_size for each in kept)


def _library(left_out: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The library's own files."""
    for path in LIBRARY.rglob("*"):
        name = path.relative_to(LIBRARY)
        if path.is_file() and name.parts[0] not in left_out and "__pycache__" not in name.parts:
            yield name.as_posix(), path.read_bytes()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip file that is the same for the same files, whenever and by whomever it is made."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.create_system = 3  # Unix, also when another system makes it
            entry.external_attr = FILE_MODE << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return data.getvalue()


def table(packages: Mapping[str, int]) -> str:
    """Sizes for people, the largest first."""
    rows = sorted(packages.items(), key=lambda item: -item[1])
    return "\n".join(f"  {size / MB:7.2f} MB  {name}" for name, size in rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m infra.layers", description="Build the Lambda layer.")
    parser.add_argument(
        "--output", type=Path, default=ARCHIVE, help="where the zip file goes (build/layer.zip)"
    )
    arguments = parser.parse_args()
    try:
        layer = build(arguments.output)
    except Unbuildable as error:
        sys.exit(f"error: {error}")
    print(table(layer.packages))
    print(f"  {layer.unzipped / MB:7.2f} MB  of {UNZIPPED_BYTES_MAX / MB:g}")
    print(f"{layer.path}: {layer.path.stat().st_size / MB:.2f} MB, sha256 {layer.digest}")


if __name__ == "__main__":
    main()
