"""What a function finds around it: its folder, its variables, its Python path, as in Lambda."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ..contract import functions
from ..contract.functions import FunctionSpec, deployed_name
from ..errors import NotInstalled, Rejected
from ..stores.address import anywhere, is_remote, open_store
from .gateway import ACCOUNT

LIBRARY = Path(__file__).resolve().parents[2]  # the folder that holds the package
NEEDED = ("awslambdaric",)

# The runtime that is deployed. The runtime client behaves by it: signals are heard while it waits for events.
EXECUTION = "AWS_Lambda_python3.14"

# What functions may see of the variables of who starts the stack; and those that begin with AWS_.
PASSED = ("PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
SHARED = ("file", "s3")  # stores that many processes may work on
IN_ONE_PROCESS = "memory:// lives inside one process, and functions run in processes of their own"
REGION = "us-east-1"  # where nothing names another


def check_installed() -> None:
    """Raises NotInstalled, which says what to install, when the functions cannot run in this Python."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise NotInstalled(
            f"the local stack needs {' and '.join(missing)}, which this Python does not have."
            " Remedy: pip install 'osqueue[dev]'"
        )


def functions_folder(given: str | Path | None, table: Sequence[FunctionSpec]) -> Path | None:
    """The folder with a folder for each function, or None: the library's own handlers run.

    Raises Rejected where a function has no handler.
    """
    if given is None:
        strange = [each.name for each in table if each.name not in functions.BY_NAME]
        if not strange:
            return None
        raise Rejected(
            f"functions: the library has no handler for {strange[0]}. Name the folder that has"
            f" {strange[0]}/handler.py.",
            field="functions",
        )
    folder = Path(given)
    missing = [each.name for each in table if not (folder / each.name / "handler.py").is_file()]
    if not missing:
        return folder.resolve()
    raise Rejected(
        f"functions: {folder} has no {missing[0]}/handler.py. It takes one folder for each of"
        f" {', '.join(each.name for each in table)}.",
        field="functions",
    )


def handler_of(function: FunctionSpec, folder: Path | None) -> tuple[Path, str]:
    """Where the processes of a function run, and the handler's name there."""
    if folder is None:
        return LIBRARY, f"{functions.HANDLERS}.{function.name}"
    return folder / function.name, functions.HANDLER


def store_address(address: str) -> str:
    """The address as the functions can use it, from any folder. Raises Rejected for one that they cannot share."""
    scheme = str(address).partition("://")[0]
    if scheme.lower() not in SHARED:
        why = "the address names no store that processes can share"
        if scheme.lower() == "memory":
            why = IN_ONE_PROCESS
        elif is_remote(address):
            why = f"{scheme}:// is an API, and the functions need a store"
        raise Rejected(f"store: {why}; use file://folder or s3://bucket/prefix.", field="store")
    if not open_store(address).shared:
        raise Rejected(
            f"store: archive: {IN_ONE_PROCESS}; use file://folder or s3://bucket/prefix.", field="store"
        )
    return anywhere(address)


def environment_of(
    function: FunctionSpec, prefix: str, store: str, folder: Path, handler: str
) -> dict[str, str]:
    """The variables of a function's processes: ours, and those that Lambda sets."""
    name = deployed_name(prefix, function.name)
    passed = {key: value for key, value in os.environ.items() if key in PASSED or key.startswith("AWS_")}
    region = passed.get("AWS_REGION") or passed.get("AWS_DEFAULT_REGION") or REGION
    return {
        **passed,
        functions.STORE: store,
        functions.SERVICE: prefix,
        functions.LOG_FORMAT: "JSON",
        functions.LOG_LEVEL: os.environ.get(functions.LOG_LEVEL, "INFO"),
        functions.WINDOW: os.environ.get(functions.WINDOW, ""),
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_EXECUTION_ENV": EXECUTION,
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "LAMBDA_TASK_ROOT": str(folder),
        "PYTHONPATH": str(LIBRARY),
        "LANG": "C.UTF-8",
        "TZ": ":UTC",
        "_HANDLER": handler,
    }


def arn_of(function: FunctionSpec, prefix: str, region: str) -> str:
    """The function's name among all of AWS."""
    return f"arn:aws:lambda:{region}:{ACCOUNT}:function:{deployed_name(prefix, function.name)}"
