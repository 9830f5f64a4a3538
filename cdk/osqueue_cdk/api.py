"""The HTTP API: the routes of the table ``osqueue.contract.operations``, in front of the functions that answer them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from osqueue.contract.functions import GATEWAY_TIMEOUT_S
from osqueue.contract.operations import ROUTES

from .logs import log_group
from .names import Names
from .settings import Cors, DeploymentSettings, Domain

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

# What others find under these names in SSM (names.Names.parameter).
API_ID = "api-id"
ENDPOINT = "endpoint"

# What a browser may send: a body, and a token or the headers of an AWS signature.
BROWSER_HEADERS = (
    *("authorization", "content-type"),
    *("x-amz-content-sha256", "x-amz-date", "x-amz-security-token"),
)


class HttpApi(Construct):
    """An HTTP API whose every route asks for an AWS signature, or for a token where the settings say so."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        settings: DeploymentSettings,
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self._names, self._settings = Names(self, name), settings
        self.api = gateway.CfnApi(
            self,
            "Api",
            name=self._names.prefix,
            description=f"osqueue {name}",
            protocol_type="HTTP",
            cors_configuration=None if settings.cors is None else _cors(settings.cors),
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
        self.domain_name: gateway.CfnDomainName | None = None
        if settings.domain is not None:
            self.domain_name = self._name(settings.domain, stage)
            self.endpoint = f"https://{settings.domain.name}"
        for what, value in ((API_ID, self.api.ref), (ENDPOINT, self.endpoint)):
            ssm.StringParameter(
                self,
                what.title().replace("-", ""),
                parameter_name=self._names.parameter(what),
                string_value=value,
                description=f"osqueue {name}: for stacks that use its API",
            )

    def _integration(self, name: str, function: lambda_.IFunction) -> str:
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
        lambda_.CfnPermission(
            self,
            f"Leave{_title(name)}",
            action="lambda:InvokeFunction",
            function_name=function.function_arn,
            principal="apigateway.amazonaws.com",
            source_arn=self._names.requests_arn(self.api.ref, "*/*"),
        )
        return integration.ref

    def _guard(self) -> tuple[str, str | None]:
        """What every route asks of its callers, and who looks at it (AWS itself at a signature)."""
        jwt = self._settings.jwt
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

    def _name(self, domain: Domain, stage: gateway.CfnStage) -> gateway.CfnDomainName:
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
        return name

    def _stage(self) -> gateway.CfnStage:
        # Groups under this name share one resource policy, whose size is limited otherwise.
        name = f"/aws/vendedlogs/{self._names.prefix}-api"
        group = log_group(self, "AccessLog", name, self._settings)
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
                throttling_rate_limit=self._settings.throttle.rate,
                throttling_burst_limit=self._settings.throttle.burst,
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
