"""`pytest -p tests.prebuilt_kernels`: the kernels as shared libraries, as a platform's wheel has them, and no compiler.

KRAFT_AUDIT_TEST_KERNELS names a folder that holds them already; otherwise they are built first, which takes a quarter
of a minute. Leave out the tests of the compiler: `--ignore tests/kraft_codec/kernels/test_kernel_cache.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kraft_codec.kernels import prebuilt

FOLDER_VARIABLE = "KRAFT_AUDIT_TEST_KERNELS"
COMPILER = frozenset({"numba", "llvmlite"})


class NoCompiler:
    """Refuses to import what compiles."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in COMPILER:
            raise ModuleNotFoundError(f"{name}: not in a platform's wheel", name=name)


def _built() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kernels-"))
    script = Path(__file__).resolve().parents[1] / "scripts" / "kernel_libraries.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    os.environ[FOLDER_VARIABLE] = str(folder)  # for the processes of pytest-xdist
    return folder


prebuilt.FOLDER = Path(os.environ[FOLDER_VARIABLE]) if FOLDER_VARIABLE in os.environ else _built()
sys.meta_path.insert(0, NoCompiler())  # type: ignore[arg-type]
