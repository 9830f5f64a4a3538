"""What the engines need of a machine: DuckDB, or PySpark and the Java that it runs on; and what is said without it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec

JAVA_MIN = 17


def on_cluster() -> bool:
    """Has spark-submit started this process? Then Spark is there, and knows its machines."""
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def missing_locally() -> str | None:
    """What the engine local misses, and how to get it; None: it can run."""
    for module, name in (("pyarrow", "PyArrow"), ("duckdb", "DuckDB"), ("numpy", "NumPy")):
        if find_spec(module) is None:
            return f"{name} is missing. Remedy: pip install 'osqueue[duckdb]' (in a checkout: make setup)."
    return None


def missing() -> str | None:
    """What Spark misses, and how to get it; None: it can run."""
    if on_cluster():
        return None
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
