"""Every command line of the documentation could be run: its program, its subcommand and its options exist.

What runs on a folder is run (``test_examples.py``). The rest wants AWS, a network or hours, so it is checked against
what would read it: the command line's own parser, the Makefile, botocore's descriptions of services, pyproject.toml.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.session
import click
import pytest
import yaml
from botocore import xform_name

from infra.config import environments, load
from osqueue.cli.app import app
from tests.docs.test_examples import PAGES, Block, blocks_of, relative
from tests.support.places import ROOT

# Programs of other people that no table here describes.
OTHERS = {
    *(
        "cd",
        "chgrp",
        "setfacl",
        "chmod",
        "mkdir",
        "curl",
        "docker",
        "echo",
        "export",
        "gh",
        "git",
        "gunicorn",
        "uwsgi",
        "jq",
        "journalctl",
        "kubectl",
        "printf",
        "source",
        "unzip",
    ),
    *("cut", "sha256sum", "sudo", "systemctl", "wc", "zcat"),
}
PLACEHOLDERS = {"ENV", "$ENV"}


class Wrong(AssertionError):
    """A command line that would end with an error of usage."""


def command_lines(block: Block) -> Iterator[str]:
    """The lines of a shell block as the shell puts them together."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    text = re.sub(r"(\|\|?|&&)\n\s*", r"\1 ", text)
    whole = ""
    for line in text.splitlines():
        whole = f"{whole}\n{line}" if whole else line
        if not whole.strip() or whole.lstrip().startswith("#"):
            whole = ""
            continue
        try:
            shlex.split(whole, comments=True)
        except ValueError:  # a quotation that goes on
            continue
        yield whole
        whole = ""


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command that a line runs, substituted ones too; without redirections and variables."""
    for inner in re.findall(r"\$\(((?:[^()])*)\)", line):
        yield from simple_commands(inner)
    line = re.sub(r"\$\(((?:[^()])*)\)", "SUBSTITUTED", line)
    line = re.sub(r"^\s*\w+\(\) \{|;?\s*\}\s*$", "", line)  # a function of the shell
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    reader.whitespace_split = True
    words: list[str] = []
    redirected = False
    for word in [*reader, ";"]:
        if re.fullmatch(r"[|&;]+", word):
            if words:
                yield words
            words = []
        elif re.fullmatch(r"[<>&|]+", word):
            redirected = True
        elif redirected:
            redirected = False
        elif words or not re.fullmatch(r"\w+=.*", word, re.DOTALL):
            words.append(word)


# ── One check for each program ───────────────────────────────────────────────
def check_osqueue(words: list[str], whole: bool = True) -> None:
    """``whole``: with all arguments, and each of its kind; else the names of commands and options are right."""
    command: click.Command = app
    parent, name, rest = None, "osqueue", words[1:]
    while isinstance(command, click.Group):
        if not rest:
            return
        try:  # past App.make_context, which prints errors
            context = click.Command.make_context(command, name, [*rest], parent=parent)
            found, child, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        except click.UsageError as error:
            raise Wrong(error.format_message()) from None
        except click.exceptions.Exit:  # --help, --version
            return
        assert child is not None
        command, parent, name = child, context, found or ""
    if whole:
        try:
            command.make_context(name, [*rest], parent=parent)
        except click.UsageError as error:
            raise Wrong(error.format_message()) from None
    elif not command.context_settings.get("ignore_unknown_options"):  # else somebody else reads them
        known = {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
        if unknown := {word for word in rest if word.startswith("--")} - known - {"--help", "--"}:
            raise Wrong(f"{name} has no option {sorted(unknown)}")


def check_make(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for word in words[1:]:
        name, equals, _ = word.partition("=")
        if equals:
            if not re.search(
                rf"^{name} [?:]?=|\$[({{]{name}[)}}]|\$\(if \$\({name}\)", makefile, re.MULTILINE
            ):
                raise Wrong(f"the Makefile reads no variable {name}")
        elif word not in targets:
            raise Wrong(f"the Makefile has no target {word}")


CDK = {"bootstrap", "deploy", "destroy", "diff", "ls", "synth"}
CDK_OPTIONS = {
    "--all": 0,
    "--quiet": 0,
    "-c": 1,
    "--require-approval": 1,
    "--rollback": 0,
    "--exclusively": 0,
}


def check_npx(words: list[str]) -> None:
    if words[1] != "cdk" or words[2] not in CDK:
        raise Wrong(f"it runs {words[1:3]}, which nobody has installed")
    context: dict[str, str] = {}
    rest = iter(words[3:])
    for word in rest:
        if word.startswith("-"):
            if word not in CDK_OPTIONS:
                raise Wrong(f"cdk {words[2]} has no option {word}")
            given = [next(rest, "") for _ in range(CDK_OPTIONS[word])]
            if word == "-c":
                name, _, value = given[0].partition("=")
                context[name] = value
    # The app is run for every command, also where it is only asked where to bootstrap.
    env = context.get("env")
    load("dev" if env in PLACEHOLDERS else env, {**environments(), "prod": {}})


AWS_GLOBAL = {"output", "query", "region", "profile", "no-cli-pager", "cli-input-json"}
# Commands that the AWS command line has beside those of the services' descriptions.
AWS_CUSTOM = {
    ("s3", "ls"): {"recursive", "human-readable", "summarize"},
    ("s3", "cp"): {"recursive"},
    ("s3", "sync"): {"delete"},
    ("s3", "rb"): {"force"},
    ("s3", "rm"): {"recursive"},
    ("logs", "tail"): {"since", "follow", "filter-pattern", "format"},
    ("cloudformation", "wait"): {"stack-name"},
}
SESSION = botocore.session.Session()


def check_aws(words: list[str], whole: bool = True) -> None:
    if len(words) < 3:
        raise Wrong("it names no operation")
    service, operation = words[1], words[2]
    options = {word[2:].partition("=")[0] for word in words[3:] if word.startswith("--")}
    if (service, operation) in AWS_CUSTOM:
        known, required = AWS_CUSTOM[service, operation], set[str]()
    else:
        try:
            model = SESSION.get_service_model({"s3api": "s3"}.get(service, service))
        except botocore.exceptions.UnknownServiceError:
            raise Wrong(f"AWS has no service {service}") from None
        names = {xform_name(each, "-"): each for each in model.operation_names}
        if operation not in names:
            raise Wrong(f"{service} has no operation {operation}")
        shape = model.operation_model(names[operation]).input_shape
        members = dict(shape.members) if shape is not None else {}
        known = {xform_name(each, "-") for each in members}
        known |= {
            f"no-{xform_name(each, '-')}" for each, one in members.items() if one.type_name == "boolean"
        }
        required = {
            xform_name(each, "-")
            for each in (shape.required_members if shape is not None else ())
            if not members[each].metadata.get("idempotencyToken")  # the command line draws one
        }
    if unknown := options - known - AWS_GLOBAL:
        raise Wrong(f"aws {service} {operation} has no option {sorted(unknown)}")
    if (missing := required - options) and whole and "cli-input-json" not in options:
        raise Wrong(f"aws {service} {operation} lacks {sorted(missing)}")


def check_python(words: list[str]) -> None:
    if words[1] != "-m":
        if not (ROOT / words[1]).is_file():
            raise Wrong(f"there is no {words[1]}")
    elif importlib.util.find_spec(words[2]) is None:
        raise Wrong(f"there is no module {words[2]}")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def check_pip(words: list[str]) -> None:
    if words[1] not in ("install", "download"):
        raise Wrong(f"pip {words[1]}")
    for word in words[2:]:
        extras = re.fullmatch(r".*osqueue\[(.*)\]", word)
        unknown = set(extras[1].split(",") if extras else ()) - set(PROJECT["optional-dependencies"])
        if unknown:
            raise Wrong(f"there is no extra {sorted(unknown)}")


def check_npm(words: list[str]) -> None:
    if words[1] != "ci" or not (ROOT / "package-lock.json").is_file():
        raise Wrong("npm installs what package-lock.json says: npm ci")


def check_spark(words: list[str]) -> None:
    (script, *_) = [word for word in words if word.endswith(".py")]
    if not (ROOT / script).is_file():
        raise Wrong(f"there is no {script}")


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "osqueue": check_osqueue,
    "make": check_make,
    "npx": check_npx,
    "npm": check_npm,
    "aws": check_aws,
    "python": check_python,
    "pip": check_pip,
    "spark-submit": check_spark,
}


# Those of which a sentence may leave out arguments.
NAMES: dict[str, Callable[[list[str], bool], None]] = {"osqueue": check_osqueue, "aws": check_aws}


def check(line: str, local: frozenset[str] = frozenset()) -> None:
    """Raise Wrong where a line names what there is not; ``local`` are functions that the page defines."""
    for words in simple_commands(line):
        program = words[0].removeprefix(".venv/bin/")
        if program in CHECKS:
            CHECKS[program](words)
        elif program not in OTHERS | local:
            raise Wrong(f"nobody knows the program {program}")


# ── The pages ────────────────────────────────────────────────────────────────
def shell_of(path: Path) -> Iterator[tuple[int, str]]:
    """The shell that a page shows: its blocks, and the steps of its workflows."""
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language == "sh":
            yield from ((block.line, line) for line in command_lines(block))
        elif block.language == "yaml":
            for found in run_steps(list(yaml.safe_load_all(block.text))):
                step = Block("sh", found, block.line, True)
                yield from ((block.line, line) for line in command_lines(step))


def run_steps(value: Any) -> Iterator[str]:
    """What the steps of a workflow run."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "run" and isinstance(each, str):
                yield each
            else:
                yield from run_steps(each)
    elif isinstance(value, list):
        for each in value:
            yield from run_steps(each)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_command_line_could_be_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list(shell_of(path))
    if any("export OSQUEUE_ADDRESS" in line for _, line in lines):
        monkeypatch.setenv("OSQUEUE_ADDRESS", "memory://")
    local = frozenset(found[1] for _, line in lines if (found := re.match(r"\s*(\w+)\(\) \{", line)))
    wrong = []
    for at, line in lines:
        try:
            check(line, local)
        except Exception as error:
            wrong.append(f"{relative(path)}:{at}: {line.strip()}: {error}")
    assert wrong == []


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_command_in_a_sentence_could_be_run(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    wrong = []
    for line in re.findall(r"`((?:make|npx cdk|aws|osqueue) [a-z-][^`…]*)`", text.replace("\n", " ")):
        program, *_ = words = shlex.split(line)
        try:
            NAMES[program](words, False) if program in NAMES else check(line)
        except Exception as error:
            wrong.append(f"{line}: {error}")
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "npx cdk bootstrap",
        "npx cdk deploy --all -c env=production",
        "npx cdk deploy --al -c env=dev",
        "npx cdkk deploy -c env=dev",
        "npm install",
        "make deploi ENV=dev",
        "make deploy EMV=dev",
        "osqueue enqueu file://jobs emails 1",
        "osqueue enqueue file://jobs emails 1 --delai 5s",
        "osqueue queue stat file://jobs",
        "osqueue dlq redrive",
        "osqueue --versio",
        "echo 1 | osqueue enqueu file://jobs emails",
        "aws sqs purge-queu --queue-url x",
        "aws sqs purge-queue --queue-ur x",
        "aws sqs purge-queue",
        "aws sqss purge-queue --queue-url x",
        "aws s3 rb s3://bucket --forced",
        'X="$(aws sqs get-queue-ur --queue-name x)"',
        "python -m infra.layer",
        ".venv/bin/python tests/support/s3_serve.py",
        "pip install 'osqueue[s4]'",
        "spark-submit pipeline/jobs/none.py",
        "oskueue queue ls",
    ],
)
def test_a_line_that_names_what_there_is_not_is_seen(line: str) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        check(line)
    assert type(caught.value).__name__ in ("Wrong", "Misconfigured")


@pytest.mark.parametrize("line", ["osqueue queue stats --speed", "osqueue dlq redriven", "osqueue --speed"])
def test_a_sentence_that_names_what_there_is_not_is_seen(line: str) -> None:
    with pytest.raises(Wrong):
        check_osqueue(line.split(), whole=False)
