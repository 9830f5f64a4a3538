"""Endpoints in a VPC of yours: for what runs there without a way to the internet."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from .settings import DeploymentSettings, Endpoints


class VpcEndpoints(Construct):
    """A gateway endpoint for ``s3://`` addresses, and an interface endpoint for ``lambda://`` ones, as asked for."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        wished = settings.endpoints
        if wished is not None and wished.route_tables:
            self._endpoint("ToBucket", "s3", wished.vpc, route_table_ids=list(wished.route_tables))
            if settings.express_zone is not None:
                tables = list(wished.route_tables)
                self._endpoint("ToDirectoryBucket", "s3express", wished.vpc, route_table_ids=tables)
        if wished is not None and wished.subnets:
            self._to_functions(wished)

    def _to_functions(self, wished: Endpoints) -> None:
        self._endpoint(
            "ToFunctions",
            "lambda",
            wished.vpc,
            vpc_endpoint_type="Interface",
            subnet_ids=list(wished.subnets),
            security_group_ids=list(wished.security_groups),
            private_dns_enabled=True,
        )

    def _endpoint(self, title: str, service: str, vpc: str, **more: object) -> None:
        ec2.CfnVPCEndpoint(
            self,
            title,
            service_name=f"com.amazonaws.{Stack.of(self).region}.{service}",
            vpc_id=vpc,
            **more,  # type: ignore[arg-type]
        )
