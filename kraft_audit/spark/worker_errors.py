"""Errors about a path or an option as one line, where Spark would print a traceback of its Python worker."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from kraft_audit.lake.settings import SettingsError
from kraft_codec.errors import InputError

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""PySpark's variable: where it is set, a worker reports an exception as `module.Name: text` alone."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def without_traceback(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The method, whose InputError and SettingsError reach the query as the text that a command prints."""

    @functools.wraps(method)
    def called(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return method(*arguments, **options)
        except (InputError, SettingsError):
            if _is_spark_worker():
                os.environ[HIDE_TRACEBACK] = "1"  # a worker ends with the exception: no other one is hidden
            raise

    return called


def _is_spark_worker() -> bool:
    """Whether this process was started by Spark to run Python, and is no driver or test that calls a reader itself."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
