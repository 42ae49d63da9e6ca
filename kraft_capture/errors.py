"""What can go wrong, by who has to act: each error is one line for a person, without a secret."""

from __future__ import annotations

EXIT_UNREADABLE = 3
"""The exit code where a log dir or a host could not be read."""


class CaptureError(Exception):
    """Anything that ends a step; its text is one line."""


class UsageError(CaptureError):
    """An option or a setting that cannot work."""


class InputUnreadableError(CaptureError):
    """A log dir that cannot be read, or that is none."""


class LogChangedError(CaptureError):
    """The log was truncated, removed or replaced while it was read: read it again."""


class StoreUnavailableError(CaptureError):
    """The store did not answer, or asked for patience: what was sent may or may not have arrived."""


class StoreRefusedError(CaptureError):
    """The store said no: credentials, policy, address."""
