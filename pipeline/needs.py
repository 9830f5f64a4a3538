"""What the pipeline needs of a machine, PySpark and the Java that it runs on, and what is said where one is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec

JAVA_MIN = 17


def missing() -> str | None:
    """What is missing, and how to get it; None: the pipeline can run."""
    if find_spec("pyspark") is None:
        return "PySpark is missing. Remedy: pip install 'osqueue[pipeline]' (in a checkout: make setup)."
    java = _java()
    found = java and _version(java)
    if found and found >= JAVA_MIN:
        return None
    what = (
        f"{java} is Java {found}, and Spark runs on Java {JAVA_MIN} or later" if found else "Java is missing"
    )
    return (
        f"{what}. Remedy: install Java {JAVA_MIN} (Debian: apt install openjdk-{JAVA_MIN}-jre-headless; macOS: brew"
        f" install openjdk@{JAVA_MIN}), or set JAVA_HOME to where it is."
    )


def _java() -> str | None:
    """Where Spark will look for it."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java")


def _version(java: str) -> int | None:
    """Its feature release; of Java 8 and before it is 1. None: it does not run."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):  # macOS has a java that only says that there is none
        return None
    told = re.search(r'version "(\d+)', asked.stderr + asked.stdout)
    return int(told[1]) if told else None
