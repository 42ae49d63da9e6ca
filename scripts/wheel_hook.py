"""What hatchling adds to a wheel: a platform's wheel has compiled kernels, the pure wheel needs what compiles them.

`KRAFT_AUDIT_WHEEL=platform` builds the platform's wheel, for Linux on x86-64: its kernels are shared libraries, and it
depends on no compiler. Without it the pure wheel is built, which runs wherever numba does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "KRAFT_AUDIT_WHEEL"
COMPILER_EXTRA = "compile"
# The libraries need no version of the C library; this is the oldest that the dependencies' wheels are for.
PLATFORM_TAG = "py3-none-manylinux_2_28_x86_64"


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling for each wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What building needs beside hatchling, where pip builds in an environment of its own."""
        return [*self.metadata.core.dependencies, *self._compiler()] if self._is_for_platform("standard") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._is_for_platform(version):
            build_data["dependencies"].extend(self._compiler())
            return
        self._built = tempfile.TemporaryDirectory()
        script = Path(self.root, "scripts", "kernel_libraries.py")
        command = [sys.executable, str(script), self._built.name]
        built = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if built.returncode:
            raise RuntimeError(f"{SWITCH}=platform: {built.stderr.strip()}")
        for file in sorted(Path(self._built.name).iterdir()):
            build_data["force_include"][str(file)] = f"kraft_codec/kernels/built/{file.name}"
        build_data["pure_python"] = False
        build_data["tag"] = PLATFORM_TAG

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._is_for_platform(version):
            self._built.cleanup()

    def _is_for_platform(self, version: str) -> bool:
        """An editable installation compiles: its sources change."""
        return version != "editable" and os.environ.get(SWITCH) == "platform"

    def _compiler(self) -> list[str]:
        return list(self.metadata.core.optional_dependencies[COMPILER_EXTRA])
