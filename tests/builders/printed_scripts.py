"""Runs a printed script in bash with Kafka's tools replaced by functions that write down what they were called with."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

SHIMS = """
for tool in kafka-topics kafka-configs kafka-acls kafka-reassign-partitions; do
  eval "$tool() { record $tool \\"\\$@\\"; }"
done
record() {
  local argument
  for argument in "$@"; do
    if [ "$argument" = /dev/stdin ]; then
      files=$((${files:-0} + 1))
      argument="$RECORD_FOLDER/file-$files"
      cat > "$argument"
    fi
    printf '%s\\0' "$argument"
  done >> "$RECORD_FOLDER/calls"
  printf '\\0' >> "$RECORD_FOLDER/calls"
}
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool and its arguments, as bash passed them on; a file that it reads from its input is a file of its own."""

    tool: str
    arguments: tuple[str, ...]

    def value(self, option: str) -> str:
        (found,) = self.values(option)
        return found

    def values(self, option: str) -> list[str]:
        """The arguments after an option: hostile names may look like options, so only every option's place counts."""
        return [value for name, value in self.pairs if name == option]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Options with their arguments as joptsimple reads them; options without one have an empty one."""
        found, words = [], list(self.arguments)
        while words:
            option = words.pop(0)
            found.append((option, "" if option in FLAGS else words.pop(0)))
        return found


FLAGS = {
    *("--create", "--if-not-exists", "--alter", "--add", "--remove", "--force", "--entity-default", "--cluster"),
    "--execute",
}


def calls_of(script: str, folder: Path, **blanks: str) -> list[Call]:
    """What a script calls, in order. Raises CalledProcessError where it ends with an error."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shims").write_text(SHIMS)
    (folder / "calls").write_bytes(b"")
    environment = {**os.environ, **blanks, "BASH_ENV": str(folder / "shims"), "RECORD_FOLDER": str(folder)}
    environment |= {"LC_ALL": "C"}
    command = ["bash", "-s"]
    (folder / "restore.sh").write_text(script, encoding="utf-8")
    command = ["bash", str(folder / "restore.sh")]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    found = []
    for call in (folder / "calls").read_bytes().split(b"\0\0")[:-1]:
        tool, *arguments = call.decode("utf-8").split("\0")
        found.append(Call(tool, tuple(arguments)))
    return found
