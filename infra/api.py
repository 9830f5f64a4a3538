"""The HTTP API: the routes of the table ``osqueue.contract.operations``, in front of the functions that answer them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import ArnFormat, CfnOutput, Environment, Stack
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_route53 as route53
from constructs import Construct

from osqueue.contract.functions import GATEWAY_TIMEOUT_S
from osqueue.contract.operations import ROUTES

from .config import Config, Cors, Domain
from .logs import log_group

# Of each request: who asked for what, what was answered, how long it took. Never a body, a query or a header.
ACCESS_LOG = {
    "time": "$context.requestTime",
    "request_id": "$context.requestId",
    "caller": "$context.identity.caller",
    "subject": "$context.authorizer.claims.sub",
    "address": "$context.identity.sourceIp",
    "route": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "error": "$context.error.message",
    "integration_error": "$context.integrationErrorMessage",
    "ms": "$context.responseLatency",
    "function_ms": "$context.integrationLatency",
    "bytes": "$context.responseLength",
}


# What a browser may send: a body, and a token or the headers of an AWS signature.
BROWSER_HEADERS = (
    *("authorization", "content-type"),
    *("x-amz-content-sha256", "x-amz-date", "x-amz-security-token"),
)


class ApiStack(Stack):
    """An HTTP API whose every route asks for an AWS signature, or for a token where the configuration says so."""

    def __init__(
        self, scope: Construct, config: Config, place: Environment, functions: Mapping[str, lambda_.Function]
    ) -> None:
        super().__init__(
            scope,
            f"{config.prefix}-api",
            env=place,
            description=f"osqueue {config.name}: the HTTP API",
            termination_protection=config.protected,
        )
        self._config = config
        self.api = gateway.CfnApi(
            self,
            "Api",
            name=config.prefix,
            description=f"osqueue {config.name}",
            protocol_type="HTTP",
            cors_configuration=None if config.cors is None else _cors(config.cors),
        )
        targets = {name: self._integration(name, each) for name, each in functions.items()}
        authorization, authorizer = self._guard()
        for route in ROUTES:
            gateway.CfnRoute(
                self,
                f"Route{_title(route.name)}",
                api_id=self.api.ref,
                route_key=f"{route.method} {route.path}",
                operation_name=route.name,
                target=f"integrations/{targets[route.function]}",
                authorization_type=authorization,
                authorizer_id=authorizer,
            )
        stage = self._stage()
        self.endpoint = self.api.attr_api_endpoint
        if config.domain is not None:
            self._name(config.domain, stage)
            self.endpoint = f"https://{config.domain.name}"
        CfnOutput(self, "Endpoint", value=self.endpoint, description="Queue.connect(…) takes this address")

    def _integration(self, name: str, function: lambda_.Function) -> str:
        """One for each function, and its leave to be invoked by this API."""
        integration = gateway.CfnIntegration(
            self,
            f"To{_title(name)}",
            api_id=self.api.ref,
            integration_type="AWS_PROXY",
            integration_uri=function.function_arn,
            payload_format_version="2.0",
            timeout_in_millis=GATEWAY_TIMEOUT_S * 1_000,
        )
        requests = self.format_arn(
            service="execute-api",
            resource=self.api.ref,
            resource_name="*/*",
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )
        lambda_.CfnPermission(
            self,
            f"Leave{_title(name)}",
            action="lambda:InvokeFunction",
            function_name=function.function_arn,
            principal="apigateway.amazonaws.com",
            source_arn=requests,
        )
        return integration.ref

    def _guard(self) -> tuple[str, str | None]:
        """What every route asks of its callers, and who looks at it (AWS itself at a signature)."""
        jwt = self._config.jwt
        if jwt is None:
            return "AWS_IAM", None
        authorizer = gateway.CfnAuthorizer(
            self,
            "Tokens",
            api_id=self.api.ref,
            name="tokens",
            authorizer_type="JWT",
            identity_source=["$request.header.Authorization"],
            jwt_configuration=gateway.CfnAuthorizer.JWTConfigurationProperty(
                issuer=jwt.issuer, audience=list(jwt.audience)
            ),
        )
        return "JWT", authorizer.ref

    def _name(self, domain: Domain, stage: gateway.CfnStage) -> None:
        """A name of the caller's own in front of the stage, and its record where a zone is named."""
        name = gateway.CfnDomainName(
            self,
            "Domain",
            domain_name=domain.name,
            domain_name_configurations=[
                gateway.CfnDomainName.DomainNameConfigurationProperty(
                    certificate_arn=domain.certificate, endpoint_type="REGIONAL", security_policy="TLS_1_2"
                )
            ],
        )
        gateway.CfnApiMapping(self, "Mapping", api_id=self.api.ref, domain_name=name.ref, stage=stage.ref)
        CfnOutput(
            self,
            "DomainTarget",
            value=name.attr_regional_domain_name,
            description=f"Where a CNAME record of {domain.name} has to point",
        )
        if domain.zone is not None:
            route53.CfnRecordSet(
                self,
                "Record",
                hosted_zone_id=domain.zone,
                name=domain.name,
                type="A",
                alias_target=route53.CfnRecordSet.AliasTargetProperty(
                    dns_name=name.attr_regional_domain_name, hosted_zone_id=name.attr_regional_hosted_zone_id
                ),
            )

    def _stage(self) -> gateway.CfnStage:
        # Groups under this name share one resource policy, whose size is limited otherwise.
        name = f"/aws/vendedlogs/{self._config.prefix}-api"
        group = log_group(self, "AccessLog", name, self._config.log_days)
        return gateway.CfnStage(
            self,
            "Stage",
            api_id=self.api.ref,
            stage_name="$default",
            auto_deploy=True,
            access_log_settings=gateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=group.log_group_arn, format=json.dumps(ACCESS_LOG)
            ),
            default_route_settings=gateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=self._config.throttle.rate,
                throttling_burst_limit=self._config.throttle.burst,
                detailed_metrics_enabled=False,  # charged by the route, and the functions count for themselves
            ),
        )


def _cors(cors: Cors) -> gateway.CfnApi.CorsProperty:
    """The gateway answers a browser's preflight by itself, without a signature."""
    return gateway.CfnApi.CorsProperty(
        allow_origins=list(cors.origins),
        allow_methods=sorted({route.method for route in ROUTES}),
        allow_headers=list(BROWSER_HEADERS),
        expose_headers=["retry-after"],
        max_age=cors.max_age_s,
    )


def _title(name: str) -> str:
    """``list_jobs`` as part of a logical id."""
    return "".join(word.capitalize() for word in name.split("_"))
