"""Settings with which Spark goes through a handful of rows in a fraction of the time."""

from __future__ import annotations

from pathlib import Path

# To verify the classes of Spark is a tenth of the cost of a short session.
UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
JAVA = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {UNVERIFIED}"
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.sql.files.minPartitionNum": "1",
    "spark.driver.memory": "1g",
    # To compile a plan takes seconds, and to interpret it over a handful of rows nothing.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def variables(folder: Path) -> dict[str, str]:
    """What a process has to find in its environment so that its sessions begin with these settings."""
    lines = [f"{name} {value}" for name, value in QUICK.items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder)}
