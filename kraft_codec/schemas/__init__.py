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

__all__ = [
    "CONTROL_RECORDS",
    "CONTROL_TYPES",
    "CONTROL_TYPE_BY_NAME",
    "FRAME_VERSION",
    "METADATA_BY_API_KEY",
    "METADATA_BY_NAME",
    "METADATA_RECORDS",
    "ZERO_UUID",
    "ControlType",
    "Dialect",
    "Field",
    "Message",
    "Type",
    "Versions",
    "snake_case",
]
