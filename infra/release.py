"""Build what goes to PyPI, and try it as a stranger would: ``make release``.

1. The sdist and the wheel, and that of ``osqueue-cdk`` with the Lambda layer in it: in ``dist/``, checked by twine.
2. For the library alone and for each extra: the wheel in an environment of its own, where what the extra is for can be
   imported, and nothing of this checkout can.
3. There the version, and a job's life in a folder.
4. The constructs in an environment of theirs, where the apps of docs/cdk.md are synthesised.

It uploads nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import layers
from .layers import ROOT, Unbuildable, _uv

DIST = ROOT / "dist"
CONSTRUCTS = ROOT / "cdk"
LAYER = ROOT / "build/layer-packaged.zip"  # where cdk/pyproject.toml takes it from
TWINE = "twine==7.0.0"

# What each extra is for, as an import; "" is the library alone.
IMPORTS: dict[str, str] = {
    "": "osqueue, osqueue.testing, osqueue.election",
    "s3": "osqueue, obstore.store",
    "gcs": "osqueue.stores.gcs, obstore.store",
    "azure": "osqueue.stores.azure, obstore.store",
    "boto3": "osqueue.stores.s3_boto, boto3",
    "http": "osqueue.client.transports.http, osqueue.client.transports.aws_lambda, boto3, urllib3",
    "valkey": "osqueue.stores.valkey, valkey",
    "cli": "osqueue.cli.app",
    "functions": "osqueue.aws_lambda.handlers, obstore.store, aws_lambda_powertools",
    "dev": "osqueue.cli.app, osqueue.devstack, osqueue.aws_lambda.handlers, awslambdaric, urllib3",
    "serve": "osqueue.cli.app, osqueue.asgi.server, starlette, uvloop",
    "otel": "osqueue.otel, opentelemetry.trace, opentelemetry.metrics",
    "metrics": "osqueue.cli.app, prometheus_client",
    "duckdb": "osqueue.cli.app, osqueue.pipeline.engines.local, osqueue.pipeline.jobs.run",
    "pipeline": "osqueue.cli.app, osqueue.pipeline.engines.local, osqueue.spark, osqueue.pipeline.engines.spark",
    "emr": "boto3, obstore.store, pyarrow",
    "all": "osqueue.cli.app, osqueue.devstack, osqueue.asgi.server, osqueue.stores.s3_boto,"
    " osqueue.stores.valkey, valkey, osqueue.aws_lambda.handlers, awslambdaric",
}

LIFE = """
from osqueue import Queue
q = Queue.connect("file://jobs", "emails")
job = q.enqueue({"to": "ada@example.com"})
(lease,) = q.claim()
lease.complete({"sent": True})
assert q.result(job.job_id) == {"sent": True}
"""
BUILT = "from importlib.metadata import version; print(version('osqueue'))"


class Unreleasable(Exception):
    """What was built does not work where it is installed."""


def run(*command: str | Path, cwd: Path = ROOT, **more: str) -> str:
    """What a program prints. Raises Unreleasable with its errors. It knows nothing of this checkout's environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    ended = subprocess.run(  # noqa: S603 - uv and what was built, with arguments of our own
        list(map(str, command)), cwd=cwd, env={**kept, **more}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise Unreleasable(f"{' '.join(map(str, command))}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def build(folder: Path = DIST, offline: bool = False) -> Path:
    """Write the sdist and the wheel into an empty folder; answers the wheel, which is made from the sdist."""
    shutil.rmtree(folder, ignore_errors=True)
    run(_uv(), "build", "--quiet", *(["--offline"] if offline else []), "--out-dir", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_constructs(layer: Path, folder: Path = DIST, offline: bool = False) -> Path:
    """Write the wheel of ``osqueue-cdk`` with this layer in it into a folder; answers it."""
    LAYER.parent.mkdir(parents=True, exist_ok=True)
    if layer != LAYER:
        shutil.copyfile(layer, LAYER)
    more = ["--offline"] if offline else []
    run(_uv(), "build", "--quiet", "--wheel", *more, "--out-dir", folder, CONSTRUCTS)
    (wheel,) = folder.glob("osqueue_cdk-*.whl")
    return wheel


def apps() -> dict[str, str]:
    """The files of docs/cdk.md by their names: apps of the CDK, and the code that one of them uploads."""
    page = (ROOT / "docs/cdk.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^```python\n# ([\w/]+\.py)\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


def synthesise_apps(python: Path, folder: Path, **more: str) -> dict[str, Path]:
    """Run the apps of docs/cdk.md, from a folder that has nothing else; answers where each put its templates."""
    for name, text in apps().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    outputs = {name: folder / f"{name}.out" for name in apps() if "/" not in name}
    for name, output in outputs.items():
        run(python, name, cwd=folder, CDK_OUTDIR=str(output), **more)
    return outputs


def install(wheel: Path, extra: str, folder: Path) -> Path:
    """The wheel with an extra, in a new environment; answers its Python."""
    run(_uv(), "venv", "--quiet", "--python", sys.executable, folder)
    wished = f"osqueue[{extra}] @ {wheel.as_uri()}" if extra else f"osqueue @ {wheel.as_uri()}"
    run(_uv(), "pip", "install", "--quiet", "--python", folder / "bin/python", wished)
    return folder / "bin/python"


def try_out(python: Path, extra: str, folder: Path) -> None:
    """Use what is installed, from an empty folder."""
    run(python, "-c", f"import {IMPORTS[extra]}", cwd=folder)
    run(python, "-c", LIFE, cwd=folder)
    if "osqueue.cli.app" in IMPORTS[extra]:
        script = python.with_name("osqueue")
        program = [script] if script.exists() else [python, "-m", "osqueue"]
        version = run(*program, "--version", cwd=folder).split()[-1]
        built = run(python, "-c", BUILT, cwd=folder).strip()
        if version != built:
            raise Unreleasable(f"osqueue --version says {version}, the wheel's metadata {built}")


def main() -> None:
    try:
        wheel = build()
        constructs = build_constructs(layers.build(LAYER).path)
        names = sorted(DIST.glob("osqueue*-*"))
        run(_uv(), "tool", "run", "--quiet", TWINE.replace("==", "@"), "check", "--strict", *names)
        print(
            *(f"{each.name}: {each.stat().st_size:,} bytes, twine has nothing to say" for each in names),
            sep="\n",
        )
        for extra in IMPORTS:
            with tempfile.TemporaryDirectory(prefix="osqueue-release-") as place:
                python = install(wheel, extra, Path(place) / "venv")
                try_out(python, extra, Path(place))
            print(
                f"osqueue[{extra}]: installs, imports, runs a job"
                if extra
                else "osqueue: installs, runs a job"
            )
        with tempfile.TemporaryDirectory(prefix="osqueue-release-") as place:
            python = install(wheel, "", Path(place) / "venv")
            run(_uv(), "pip", "install", "--quiet", "--python", python, constructs)
            (Path(place) / "apps").mkdir()
            synthesise_apps(python, Path(place) / "apps")
        print("osqueue-cdk: installs, synthesises")
    except (Unreleasable, Unbuildable) as error:
        sys.exit(f"error: {error}")
    print("Tag it with its version, and upload both: uv publish")


if __name__ == "__main__":
    main()
