"""The layer: built without Docker, the same every time, small, and enough for every handler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra import layers
from osqueue.contract.functions import FUNCTIONS
from tests.support.places import ROOT

IMPORTS_MAX_S = 60.0


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> layers.Built:
    """The layer as it is deployed."""
    return layers.build(tmp_path_factory.mktemp("layer") / "layer.zip")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for this machine, unpacked as Lambda does it."""
    folder = tmp_path_factory.mktemp("here")
    built = layers.build(folder / "layer.zip", layers.HERE)
    with zipfile.ZipFile(built.path) as archive:
        archive.extractall(folder)
    return folder / "python"


def names_of(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_building_twice_makes_the_same_bytes(layer: layers.Built, tmp_path: Path) -> None:
    again = layers.build(tmp_path / "again.zip")
    assert again.digest == layer.digest
    assert again.path.read_bytes() == layer.path.read_bytes()


def test_a_caller_who_wants_colours_gets_the_same_bytes(
    layer: layers.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as the CDK's command line does
    assert layers.build(tmp_path / "layer.zip").digest == layer.digest


def test_the_order_in_which_files_are_found_does_not_matter() -> None:
    files = {"b/c": b"1", "a": b"2", "b-c": b"3"}
    assert layers.zipped(files) == layers.zipped(dict(reversed(files.items())))
    assert layers.zipped(files) != layers.zipped({**files, "a": b"4"})


def test_a_commit_path_s_layer_stays_under_its_limit(layer: layers.Built) -> None:
    with zipfile.ZipFile(layer.path) as archive:
        assert sum(each.file_size for each in archive.infolist()) == layer.unzipped
    assert layer.unzipped < 30 * 1024 * 1024


def test_a_layer_that_is_too_large_is_refused_with_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "layer.zip"
    with pytest.raises(
        layers.Unbuildable, match=r"(?s)(26|27|28)\.\d MB unzipped, 1 MB is its limit.*obstore"
    ):
        layers.build(path, bytes_max=1024 * 1024)
    assert not path.exists()


def test_it_holds_what_the_functions_load_and_no_more(layer: layers.Built) -> None:
    names = {name.partition(" ")[0] for name in layer.packages if name != "byte code"}
    assert names == {
        "osqueue",
        "aws_lambda_powertools",
        "cronsim",
        "jmespath",
        "msgspec",
        "obstore",
        "typing_extensions",
        "tzdata",
    }
    within = names_of(layer.path)
    assert all(name.startswith("python/") for name in within)
    assert [name for name in within if re.search(r"/tests?/|^python/bin/", name)] == []
    left_out = tuple(
        f"python/osqueue/{name}" if "." in name else f"python/osqueue/{name}/" for name in layers.LEFT_OUT
    )
    assert [name for name in within if name.startswith(left_out)] == []


def test_what_is_compiled_is_compiled_for_lambda(layer: layers.Built) -> None:
    with zipfile.ZipFile(layer.path) as archive:
        machines = {name: archive.read(name)[18:20] for name in archive.namelist() if name.endswith(".so")}
    assert len(machines) >= 2
    assert set(machines.values()) == {b"\xb7\x00"}  # ELF's number for AArch64
    assert all("cpython-314" in name or "abi3" in name for name in machines)


def test_files_are_readable_and_have_no_date_of_their_own(layer: layers.Built) -> None:
    with zipfile.ZipFile(layer.path) as archive:
        about = {(each.date_time, each.external_attr >> 16) for each in archive.infolist()}
    assert about == {((1980, 1, 1, 0, 0, 0), 0o100644)}


@pytest.mark.parametrize("function", [each.name for each in FUNCTIONS])
def test_a_handler_needs_nothing_but_its_folder_and_the_layer(
    function: str, unpacked: Path, tmp_path: Path
) -> None:
    """In a Python without site-packages, as Lambda's is but for boto3."""
    code = "import sys, handler; assert callable(handler.handler); assert 'boto3' not in sys.modules"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT / "functions" / function), str(unpacked)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OSQUEUE_STORE": f"file://{tmp_path}/jobs",
        "OSQUEUE_SERVICE": "osqueue-test",
    }
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=IMPORTS_MAX_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("module", layers.LEFT_OUT)
def test_what_is_left_out_is_there_to_be_left_out(module: str) -> None:
    assert (layers.LIBRARY / module).exists()


def test_a_lock_file_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = layers._uv()
    monkeypatch.setattr(layers, "_uv", lambda: uv)
    monkeypatch.setattr(layers, "ROOT", tmp_path)
    with pytest.raises(layers.Unbuildable, match="uv export"):
        layers.build(tmp_path / "layer.zip")


# ── Byte code ────────────────────────────────────────────────────────────────
RUN = """
import { loadPyodide } from "pyodide";
const python = await loadPyodide();
python.mountNodeFS("/opt/python", process.argv[1]);
console.log(python.runPython("import sys; sys.path.insert(0, '/opt/python'); from one import module as m; m.told()"));
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was compiled before is found."""
    monkeypatch.setattr(layers, "KEPT", tmp_path / "byte-code")


def test_every_module_of_the_layer_has_its_byte_code(layer: layers.Built) -> None:
    with zipfile.ZipFile(layer.path) as archive:
        files = {each.filename: each.file_size for each in archive.infolist()}
    modules = {name for name in files if name.endswith(".py")}
    code = {name for name in files if name.endswith(".pyc")}
    places = (name.rpartition("/") for name in modules)
    assert code == {f"{folder}/__pycache__/{file[:-3]}.cpython-314.pyc" for folder, _, file in places}
    assert sum(files.values()) == layer.unzipped
    assert sum(files[name] for name in code) == layer.packages["byte code"]


def test_the_python_of_the_functions_loads_it_without_a_look_at_the_source(
    own_cache: None, tmp_path: Path
) -> None:
    """Whatever the time of the source says: unpacked by Lambda it is none that was compiled with."""
    source = b"def told():\n    return f'one, {told.__code__.co_filename}'\n"
    made = layers.compiled({"one/module.py": source, "one/data.txt": b""})
    assert [*made] == ["one/__pycache__/module.cpython-314.pyc"]
    folder = tmp_path / "python"
    for name, content in {**made, "one/module.py": source.replace(b"one,", b"two,")}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    command = ["node", "--input-type=module", "--eval", RUN, str(folder)]
    told = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=IMPORTS_MAX_S, check=True
    )
    assert told.stdout.strip() == "one, /opt/python/one/module.py"


def test_byte_code_is_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"m{n}.py": b"def f(a, b=(1, 2)):\n    return a in {'x', 'y', b}\n" for n in range(5)}
    made = []
    for name in ("one", "two"):
        monkeypatch.setattr(layers, "KEPT", tmp_path / name)
        made.append(layers.compiled(files))
    assert made[0] == made[1] == layers.compiled(files)
    assert len([*(tmp_path / "two").iterdir()]) == 1


def test_a_module_that_cannot_be_compiled_is_told(own_cache: None) -> None:
    with pytest.raises(
        layers.Unbuildable, match=r"(?s)the compiler of byte code ended with 1: .*bad\.py.*invalid syntax"
    ):
        layers.compiled({"bad.py": b"def\n"})


def test_of_what_was_compiled_before_a_few_are_kept(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "KEPT_MAX", 2)
    monkeypatch.setattr(layers, "_compiled", lambda modules, python: {"m.pyc": b"code"})
    for number in range(4):
        assert layers.compiled({"m.py": bytes([number])}) == {"m.pyc": b"code"}
    assert len([*layers.KEPT.iterdir()]) == 2


def test_a_compiler_of_another_python_is_refused(own_cache: None) -> None:
    with pytest.raises(
        layers.Unbuildable, match=r"of Python 3.14, and byte code of Python 3.15 is asked for"
    ):
        layers.compiled({"m.py": b""}, "3.15")


def test_what_is_missing_is_told_with_its_remedy(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(layers.Unbuildable, match=r"Remedy: Node\.js, and npm ci"):
        layers.compiled({"m.py": b""})
