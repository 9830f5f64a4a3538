"""The emulator's main program: LocalStack, with processes of this machine where it would start containers.

The Python of ``.venv-emulator`` runs it, and FUNCTION_PYTHON names the one that functions run on. Their code and the
library are what was deployed. The packages beside it in the layer were built for Lambda: FUNCTION_PYTHON has its own.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from localstack import config
from localstack.runtime import main
from localstack.services.lambda_.invocation import runtime_executor
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult

CHILD = Path(__file__).with_name("function_process.py")


class ProcessExecutor(runtime_executor.RuntimeExecutor):
    """One execution environment: a process that is given one invocation after the other."""

    process: subprocess.Popen[str]

    def __init__(self, id: str, function_version: FunctionVersion) -> None:
        super().__init__(id, function_version)
        self.folder = tempfile.TemporaryDirectory(prefix="osqueue-function-")
        self.log = Path(self.folder.name) / "log"

    def start(self, env_vars: dict[str, str]) -> None:
        code = self.function_version.config.code.get_unzipped_code_location()
        for layer in self.function_version.config.layers:
            layer.code.prepare_for_execution()
            library = layer.code.get_unzipped_code_location() / "python" / "osqueue"
            (Path(self.folder.name) / "osqueue").symlink_to(library)
        told = {name: str(value) for name, value in env_vars.items()}
        told |= {"PYTHONPATH": os.pathsep.join((self.folder.name, str(code))), "no_proxy": "*"}
        self.process = subprocess.Popen(
            [os.environ["FUNCTION_PYTHON"], str(CHILD)],
            cwd=code,
            env=told,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
        )
        if self.process.stdout.readline() != "ready\n":
            raise runtime_executor.LambdaRuntimeException(self.get_logs())

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        self.process.stdin.write(json.dumps(payload) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        found = json.loads(line) if line else {"error": True, "answer": {"errorMessage": "the process ended"}}
        return InvocationResult(
            request_id=payload["invoke-id"],
            payload=json.dumps(found["answer"]).encode(),
            is_error=found["error"],
            logs=self.get_logs(),
        )

    def get_logs(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def get_address(self) -> str:
        return "127.0.0.1"

    get_endpoint_from_executor = get_address

    def get_runtime_endpoint(self) -> str:
        return ""  # nothing asks: invocations go through the process's standard input

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        function_version.config.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """Nothing is left behind."""


if __name__ == "__main__":
    runtime_executor.get_runtime_executor = lambda: ProcessExecutor
    config.dirs.mkdirs()
    sys.exit(main.main())
