"""Microsoft's emulator of Azure Blob Storage, in memory, on a port of its own."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

from tests.support.patience import PATIENCE

FOLDER = Path(__file__).parents[1] / "azurite"
SCRIPT = FOLDER / "node_modules/azurite/dist/src/blob/main.js"
NODE = shutil.which("node")
HOW_TO_INSTALL = "needs Node.js and the emulator: npm ci --prefix tests/azurite"
ACCOUNT = "devstoreaccount1"
CONTAINER = "jobs"
# Of every emulator, and known to everybody.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ENVIRONMENT = {
    "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
    "AZURE_STORAGE_ACCOUNT_KEY": KEY,
    "AZURE_MSI_ENDPOINT": "http://127.0.0.1:9",
}
FOREIGN_ENVIRONMENT = (
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_CLIENT_ID",
)


@contextlib.contextmanager
def azure_server() -> Iterator[str]:
    """The endpoint of a fresh emulator that lives as long as the block."""
    assert NODE is not None
    process = subprocess.Popen(
        [
            *(NODE, "--require", str(FOLDER / "never_collect.js"), str(SCRIPT)),
            *("--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence"),
            # obstore asks in the words of releases that the emulator does not know yet.
            *("--skipApiVersionCheck", "--disableTelemetry", "--silent"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if (found := re.search(r"listens on (http://[0-9.:]+)", line)) is not None:
                yield f"{found[1]}/{ACCOUNT}"
                return
        raise RuntimeError(f"the emulator of Azure does not listen: {said[-500:]}")
    finally:
        process.kill()
        process.wait(PATIENCE)


def shared_access_signature() -> str:
    """Of the account, for everything, made as Azure says that an account's is made."""
    kind = {"sp": "rwdlacx", "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01", "sip": "", "spr": ""}
    kind["sv"] = "2018-11-09"
    text = "".join(f"{part}\n" for part in (ACCOUNT, *kind.values()))
    digest = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    given = {name: value for name, value in kind.items() if value}
    return urlencode(given | {"sig": base64.b64encode(digest).decode()})


def create_container(endpoint: str, name: str) -> None:
    """Make an empty container: the one request that obstore does not know."""
    version, date = "2021-08-06", formatdate(usegmt=True)
    signed = "\n".join(
        [
            "PUT",
            *[""] * 11,
            f"x-ms-date:{date}",
            f"x-ms-version:{version}",
            f"/{ACCOUNT}/{ACCOUNT}/{name}",
            "restype:container",
        ]
    )
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE):  # noqa: S310
        pass
