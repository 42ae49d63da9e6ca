"""notify.yaml: whom to tell, and which incidents go to whom by the labels of their cluster.

Addresses hold secrets: a target may name a file that holds its own, and no message of ours repeats one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kraft_audit.lake.lake_paths import absolute
from kraft_audit.lake.settings import ClusterLabels, SettingsError, read_yaml
from kraft_audit.tables.gold import SEVERITIES
from kraft_codec.errors import InputError

SeverityName = Literal["critical", "high", "medium", "low"]
PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
SECRET_BYTES_MAX: Final = 4096


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class TargetSettings(_Strict):
    """One place to send to: exactly one of the keys but `pagerduty_url`."""

    webhook: str | None = Field(default=None, description="an https:// address that takes JSON by POST")
    webhook_file: str | None = Field(default=None, description="a file that holds that address")
    pagerduty_file: str | None = Field(default=None, description="a file that holds the routing key of Events API v2")
    pagerduty_url: str = Field(default=PAGERDUTY_URL, description="another region's address of that API")
    apprise: str | None = Field(default=None, description="an address of Apprise, as mailto://… or slack://…")
    apprise_file: str | None = Field(default=None, description="a file that holds that address")


class RouteSettings(_Strict):
    """Which incidents go where. Every route that matches counts."""

    to: Annotated[list[str], Field(min_length=1)] = Field(description="names of targets")
    labels: dict[
        str, Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]
    ] = Field(default_factory=dict, description="labels that the cluster must have in fleet.yaml; none: every cluster")
    severity: SeverityName = Field(default="low", description="from which severity on")


class NotifySettings(_Strict):
    """The file."""

    targets: Annotated[dict[str, TargetSettings], Field(min_length=1)] = Field(description="where to send, by name")
    routes: Annotated[list[RouteSettings], Field(min_length=1)] = Field(description="what goes where")
    severity: SeverityName = Field(default="high", description="from which severity on an incident is sent at all")
    retry_after_minutes: Annotated[int, Field(ge=1, le=1440)] = Field(
        default=15, description="when another run sends what a run meant to send and said nothing more about"
    )
    report_url: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$")] | None = Field(
        default=None, description="where people read the pages of `kraft-audit report`: messages link to them"
    )
    digest_above: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=20, description="more messages than this to one target at once become one"
    )


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A target with its secret: never shown."""

    name: str
    kind: str
    address: str
    routing_key: str = ""

    def __repr__(self) -> str:
        return f"<Target {self.name}: {self.kind}>"


def load_notify(file: Path, *, with_secrets: bool = True) -> tuple[NotifySettings, dict[str, Target]]:
    """The settings, and the targets, with their secrets where something is to be sent.

    Raises SettingsError, InputError.
    """
    values = read_yaml(file)
    try:
        settings = NotifySettings.model_validate(values)
    except ValidationError as problem:
        error = problem.errors(include_url=False, include_input=False)[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
        raise SettingsError(str(file), key or "file", "(not shown)", _expected(error)) from None
    targets = {
        name: _target(file, name, target, with_secrets=with_secrets) for name, target in settings.targets.items()
    }
    for index, route in enumerate(settings.routes):
        for name in route.to:
            if name not in targets:
                raise SettingsError(str(file), f"routes[{index}].to", name, f"one of {', '.join(targets)}")
        for label in route.labels:
            if label not in ClusterLabels.model_fields:
                known = ", ".join(ClusterLabels.model_fields)
                raise SettingsError(str(file), f"routes[{index}].labels", label, f"one of the labels {known}")
    return settings, targets


def routed(settings: NotifySettings, labels: Mapping[str, str | None], severity: str) -> list[str]:
    """The targets of an incident of a cluster with these labels, each once, in the order of the routes."""
    rank = SEVERITIES.index(severity)
    return list(
        dict.fromkeys(
            name
            for route in settings.routes
            if rank <= SEVERITIES.index(route.severity)
            and all(labels.get(label) == value for label, value in route.labels.items())
            for name in route.to
        )
    )


def _expected(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "a key that docs/operations.md lists"
    return "a value, found none" if error["type"] == "missing" else str(error["msg"])


def _target(file: Path, name: str, target: TargetSettings, *, with_secrets: bool) -> Target:
    given = [key for key in target.model_fields_set if key != "pagerduty_url"]
    if len(given) != 1:
        keys = "webhook, webhook_file, pagerduty_file, apprise, apprise_file"
        raise SettingsError(str(file), f"targets.{name}", given, f"one of {keys}")
    (key,) = given
    kind = key.removesuffix("_file")
    value = str(getattr(target, key))
    if not with_secrets:
        return Target(name, kind, "")
    secret = _secret(absolute(value, file.resolve().parent)) if key.endswith("_file") else value
    if kind == "pagerduty":
        return Target(name, kind, target.pagerduty_url, secret)
    if kind == "webhook" and not secret.startswith(("https://", "http://")):
        raise SettingsError(str(file), f"targets.{name}.{key}", "(not shown)", "an https:// address")
    return Target(name, kind, secret)


def _secret(path: str) -> str:
    try:
        content = Path(path).read_bytes()
        text = content[: SECRET_BYTES_MAX + 1].decode("utf-8").strip()
    except OSError as problem:
        raise InputError(path, problem.strerror or "unreadable") from None
    except UnicodeDecodeError:
        raise InputError(path, "no UTF-8 text") from None
    if not text or len(content) > SECRET_BYTES_MAX or len(text.split()) != 1:
        raise InputError(path, "expected one line that holds the address or key alone")
    return text
