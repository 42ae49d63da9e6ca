"""What each record looks like, as data: written once, from which every codec follows."""

from kraft_codec.schemas.control import (
    CONTROL_RECORDS,
    CONTROL_TYPE_BY_NAME,
    CONTROL_TYPES,
    ControlType,
    Dialect,
)
from kraft_codec.schemas.metadata import (
    FRAME_VERSION,
    METADATA_BY_API_KEY,
    METADATA_BY_NAME,
    METADATA_RECORDS,
)
from kraft_codec.schemas.model import ZERO_UUID, Field, Message, Type, Versions, snake_case
from kraft_codec.schemas.quorum_state import QUORUM_STATE, QUORUM_STATE_KIP856

__all__ = [
    "CONTROL_RECORDS",
    "CONTROL_TYPES",
    "CONTROL_TYPE_BY_NAME",
    "FRAME_VERSION",
    "METADATA_BY_API_KEY",
    "METADATA_BY_NAME",
    "METADATA_RECORDS",
    "QUORUM_STATE",
    "QUORUM_STATE_KIP856",
    "ZERO_UUID",
    "ControlType",
    "Dialect",
    "Field",
    "Message",
    "Type",
    "Versions",
    "snake_case",
]
