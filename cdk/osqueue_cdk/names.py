"""What everything of a deployment is called.

All of it follows from the deployment's name, its account and its region. So whoever knows these finds the rest, and no
stack imports what another one exports: an export cannot change for as long as somebody imports it.
"""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack
from constructs import Construct

from osqueue.contract.functions import deployed_name

STORE = "store"  # the parameter of SSM that holds the store's address
ALIAS = "live"  # of each function, where new code comes by degrees (canary)


def prefix_of(name: str) -> str:
    """Begins the names of everything deployed: ``lambda://osqueue-dev`` finds the functions by it."""
    return f"osqueue-{name}"


class Names:
    """The names and ARNs of one deployment, in the account and region of the stack that a construct stands in."""

    def __init__(self, scope: Construct, name: str, express_zone: str | None = None) -> None:
        self._stack = Stack.of(scope)
        self.name = name
        self.prefix = prefix_of(name)
        # A bucket name of the account's own namespace: nobody else can take it, before or after us.
        self.bucket = f"{self.prefix}-{self._stack.account}-{self._stack.region}-an"
        self.bucket_arn = f"arn:{self._stack.partition}:s3:::{self.bucket}"
        # What changes often, where a zone is named; the bucket then keeps the archive and the backups.
        self.directory_bucket = (
            None if express_zone is None else f"{self.prefix}-{self._stack.account}--{express_zone}--x-s3"
        )
        self.bus = self.prefix

    @property
    def store(self) -> str:
        """The address of the store."""
        if self.directory_bucket is None:
            return f"s3://{self.bucket}"
        return f"s3://{self.directory_bucket}?archive=s3://{self.bucket}"

    @property
    def directory_bucket_arn(self) -> str:
        """The ARN of the directory bucket."""
        return self._stack.format_arn(
            service="s3express", resource="bucket", resource_name=self.directory_bucket
        )

    @property
    def bus_arn(self) -> str:
        """The ARN of the event bus."""
        return self._stack.format_arn(service="events", resource="event-bus", resource_name=self.bus)

    def function(self, function: str) -> str:
        """A function of the table ``osqueue.contract.functions``."""
        return deployed_name(self.prefix, function)

    def function_arn(self, function: str) -> str:
        """Its ARN."""
        return self._stack.format_arn(
            service="lambda",
            resource="function",
            resource_name=self.function(function),
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    @property
    def functions_arn(self) -> str:
        """Functions of this account and region, whatever they are called."""
        return self._stack.format_arn(
            service="lambda",
            resource="function",
            resource_name="*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    def requests_arn(self, api_id: str, request: str) -> str:
        """Requests to the API, as IAM names them: ``*/POST/v1/queues/emails/jobs``."""
        return self._stack.format_arn(
            service="execute-api",
            resource=api_id,
            resource_name=request,
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )

    def parameter(self, what: str) -> str:
        """A parameter of SSM, for what AWS names and we do not: where others find it."""
        return f"/{self.prefix}/{what}"
