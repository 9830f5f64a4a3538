"""The documentation holds: its examples run, its links lead somewhere, its tables say what the code says.

Python blocks of a page run in order and share their names; `print(…)  # text` must print that text, where `…` stands
for anything. A block that begins with `# name.py` becomes that file. Shell blocks whose every line calls `osqueue` on a
local folder run as well. A block after the comment `<!-- not run -->` only has to be valid Python.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import osqueue
from osqueue import errors, limits
from osqueue.contract.error_codes import STATUS
from osqueue.contract.operations import ROUTES
from osqueue.devstack import Stack
from osqueue.election.blocking import Election
from osqueue.model.job_options import FUTURE_OPTIONS
from osqueue.queue.lease import AsyncLease, Lease
from osqueue.stores import address
from osqueue.testing import manual
from tests.support.patience import PATIENCE
from tests.support.places import ROOT

SKIPPED_FOLDERS = {"node_modules", "site-packages", "build", "dist"}


def pages_below(folder: Path) -> Iterator[Path]:
    """Yield the pages of a folder and of the folders in it. It does not enter those of installed packages."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED_FOLDERS:
            continue
        if path.is_dir():
            yield from pages_below(path)
        elif path.suffix == ".md":
            yield path


PAGES = list(pages_below(ROOT))
# Pages whose examples use names of an imagined application; theirs only have to be valid.
SKETCHES = {"docs/cli.md", "docs/coming-from.md", "docs/demo.md", "docs/testing.md", "docs/worker.md"}
NOT_RUN = "<!-- not run -->"


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    run: bool


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = text.splitlines()
    at, before = 0, ""
    while at < len(lines):
        opening = re.fullmatch(r"```(\w*)", lines[at])
        if opening is None:
            before = lines[at].strip() or before
            at += 1
            continue
        end = lines.index("```", at + 1)
        yield Block(opening[1], "\n".join(lines[at + 1 : end]) + "\n", at + 1, before != NOT_RUN)
        at, before = end + 1, ""


def commands_of(block: Block) -> list[str]:
    """The command lines of a shell block, those it continues on the next line joined."""
    joined = re.sub(r"(\\|\|)\n\s*", lambda found: "" if found[1] == "\\" else "| ", block.text)
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def is_runnable(command: str) -> bool:
    return "osqueue " in command and "file://" in command and not re.match(r"pip |make |zcat ", command)


def expected_of(text: str) -> list[str]:
    """What the prints of a block say they print."""
    return [found[1] for found in re.finditer(r"^\s*print\(.*\)  # (.*)$", text, re.MULTILINE)]


def matches(printed: str, expected: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("…"))), printed, re.DOTALL) is not None


def run_python(block: Block, page: str, names: dict[str, Any]) -> None:
    code = compile("\n" * block.line + block.text, page, "exec", dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)  # noqa: S102 - this is what the page tells its reader to do
    found, expected = printed.getvalue().splitlines(), expected_of(block.text)
    assert len(found) == len(expected), f"{page}:{block.line} prints {found}, not {expected}"
    wrong = [pair for pair in zip(found, expected, strict=True) if not matches(*pair)]
    assert wrong == [], f"{page}:{block.line} prints (left) what it does not say (right)"


def run_shell(block: Block, page: str) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path}
    script = "set -euo pipefail\n" + "\n".join(commands_of(block))
    ended = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, f"{page}:{block.line} failed: {ended.stderr}"


RUNNABLE = [path for path in PAGES if relative(path) not in SKETCHES]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults that outlast a machine which stands still for a while. No example tells of them."""
    monkeypatch.setitem(Stack.__init__.__kwdefaults__, "patience_s", 60.0)
    monkeypatch.setitem(Election.connect.__func__.__kwdefaults__, "stale_after", 600.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("path", RUNNABLE, ids=relative)
def test_the_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = relative(path)
    example = ModuleType("example")  # classes of the page look themselves up in their module
    monkeypatch.setitem(sys.modules, example.__name__, example)
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if not block.run:
            continue
        if block.language == "python":
            file = re.match(r"# (\w+\.py)\n", block.text)
            if file is not None:
                (tmp_path / file[1]).write_text(block.text, encoding="utf-8")
            else:
                run_python(block, page, vars(example))
        elif block.language == "sh" and (commands := commands_of(block)) and all(map(is_runnable, commands)):
            run_shell(block, page)


def first_example(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The names of a page's first block, imported as a module is."""
    monkeypatch.chdir(tmp_path)
    block = next(blocks_of((ROOT / page).read_text(encoding="utf-8")))
    example = ModuleType("example")
    run_python(block, page, vars(example))
    return vars(example)


def test_the_first_test_of_jobs_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first_example("docs/testing.md", monkeypatch, tmp_path)["test_signing_up_sends_a_mail"]()


def test_the_first_worker_completes_its_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with manual(first_example("docs/worker.md", monkeypatch, tmp_path)["q"]) as test:
        test.queue.enqueue({"to": "ada@example.com"})
        (ran,) = test.drain()
    assert (ran.outcome, ran.result) == ("completed", {"sent": True})
    assert capsys.readouterr().out.startswith("to ada@example.com under emails/")


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_python_block_is_valid(path: Path) -> None:
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language == "python":
            compile("\n" * block.line + block.text, relative(path), "exec", dont_inherit=True)


def test_the_tour_is_long_enough_to_show_something() -> None:
    blocks = list(blocks_of((ROOT / "README.md").read_text(encoding="utf-8")))
    assert sum(block.language == "python" for block in blocks) >= 7
    assert any(block.language == "sh" and all(map(is_runnable, commands_of(block))) for block in blocks)


# ── Links ────────────────────────────────────────────────────────────────────
def anchors_of(text: str) -> set[str]:
    """The anchors that a page's headings make, as GitHub names them."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text(encoding="utf-8"))):
            dead.append(link)
    assert dead == []


def test_every_page_is_on_the_map() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs") for path in PAGES if path.is_relative_to(ROOT / "docs")]
    assert [str(page) for page in pages if f"({page})" not in index and page.name != "index.md"] == []


# ── Tables and lists against the code ────────────────────────────────────────
UNITS = {
    "KB": 1024,
    "MB": 1024**2,
    "GB": 1024**3,
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "days": 86_400_000,
    "years": 365 * 86_400_000,
}
BASES = {"KB", "SECOND_MS", "MINUTE_MS", "HOUR_MS", "DAY_MS"}  # units, not limits


def limit_of(name: str, text: str) -> float:
    """A limit as the table writes it, in the unit that its name says."""
    if text == "the end of the year 9999":
        return 253_402_300_799_000
    number, _, unit = text.replace(",", "").partition(" ")
    found = float(number) * UNITS.get(unit, 1)
    return found / 1_000 if name.endswith("_S") else found


def test_the_table_of_limits_says_what_the_code_says() -> None:
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    table = {
        name: limit_of(name, value)
        for name, value in re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", text, re.M)
    }
    code = {
        name: float(value) for name, value in vars(limits).items() if name.isupper() and name not in BASES
    }
    assert table == code


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


API = (ROOT / "docs/api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [osqueue.Queue, osqueue.AsyncQueue, Lease, AsyncLease])
def test_the_reference_names_every_method(kind: type) -> None:
    assert [name for name in public(kind) if not re.search(rf"`\.?{name}\b", API)] == []


def test_the_reference_names_every_public_name() -> None:
    assert [name for name in osqueue.__all__ if f"`{name}" not in API] == []


def test_the_reference_names_every_error_with_its_code() -> None:
    found = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.OsqueueError)
        and kind is not errors.OsqueueError
    ]
    assert [kind.__name__ for kind in found if f"| `{kind.__name__}` | `{kind.code}` |" not in API] == []


@pytest.mark.parametrize("kind", [osqueue.Enqueued, osqueue.Done, osqueue.Job, osqueue.Attempt])
def test_the_reference_names_every_field(kind: Any) -> None:
    assert [name for name in kind.__struct_fields__ if f"`{name}`" not in API] == []


def test_what_is_refused_by_name_is_listed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in FUTURE_OPTIONS if f"`{name}`" not in readme] == []


def test_no_figure_waits_to_be_filled_in() -> None:
    assert re.findall(r"FIGURE:\S+", (ROOT / "README.md").read_text(encoding="utf-8")) == []


def test_the_page_on_stores_names_every_option() -> None:
    text = (ROOT / "docs/stores.md").read_text(encoding="utf-8")
    options = {option for known in address._OPTIONS.values() for option in known} | {*address.FAULT_OPTIONS}
    assert [option for option in sorted(options) if f"`{option}" not in text] == []


def test_the_page_on_http_names_every_code_beside_its_status() -> None:
    page = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if re.match(r"\| \d{3}", line)}
    special = {"damaged", "newer_format", "not_installed"}  # told in the text below the table
    assert [
        code
        for code, status in STATUS.items()
        if code not in special and f"`{code}`" not in rows[str(status)]
    ] == []


def test_the_page_on_http_names_every_route() -> None:
    page = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    ends = {route.path.removeprefix("/v1/queues/{queue}") or route.path for route in ROUTES}
    assert [end for end in ends if end.rpartition("/")[2].strip("{}") not in page] == []
