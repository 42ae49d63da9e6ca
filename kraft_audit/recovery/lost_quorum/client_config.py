"""How Kafka's tools log in at the rescued controller: as the controller itself does at the others of its quorum.

A controller's own file holds that under other names than tools read (ChannelBuilders, JaasContext, Kafka 4.3): what it
sets for the listener goes before what it sets for all, and the login of a mechanism has the mechanism in its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kraft_codec.files.properties import parse_properties, with_entries

PLAINTEXT: Final = "PLAINTEXT"
MECHANISM: Final = "sasl.mechanism.controller.protocol"
DEFAULT_MECHANISM: Final = "GSSAPI"
JAAS: Final = "sasl.jaas.config"
_CLIENT_KEYS: Final = re.compile(
    r"ssl\..+|sasl\.(?:kerberos|login|oauthbearer)\..+|sasl\.(?:jaas\.config|client\.callback\.handler\.class)"
)
"""What clients read under the same names."""


BY_HAND: Final = "client.properties"
"""Stands for the config of the tools where it has to be written by hand."""


def protocol_of(listener: str, protocols: Sequence[str]) -> str | None:
    """The protocol of a listener among LISTENER:PROTOCOL; None where it is not known."""
    return next((each.partition(":")[2] for each in protocols if each.partition(":")[0] == listener), None)


def client_values(listener: str, protocol: str, file: bytes) -> dict[str, str]:
    """The config of the tools, from a controller's whole file. Raises CodecError."""
    own = dict(parse_properties(file))
    values = {"security.protocol": protocol, **dict(_of_client(own, ""))}
    prefix = f"listener.name.{listener.lower()}."
    values |= dict(_of_client(own, prefix))
    if protocol.startswith("SASL"):
        mechanism = own.get(MECHANISM, DEFAULT_MECHANISM)
        values |= {"sasl.mechanism": mechanism, **dict(_of_client(own, f"{prefix}{mechanism.lower()}."))}
    return values


def lacks_login(values: Mapping[str, str]) -> bool:
    """Whether the login stands elsewhere: in the file that java.security.auth.login.config names."""
    return values["security.protocol"].startswith("SASL") and JAAS not in values


def client_data(values: Mapping[str, str]) -> bytes:
    """What is written of it. Raises CodecError."""
    return with_entries(b"", values, removed=(), comment="kraft-audit rescue: how tools log in at the controller")


def _of_client(own: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in own.items():
        name = key.removeprefix(prefix)
        if key.startswith(prefix) and _CLIENT_KEYS.fullmatch(name):
            yield name, value
