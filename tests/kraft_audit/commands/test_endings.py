"""However a command ends: an exit code of the contract, one line on stderr that names what is wrong, no traceback."""

from __future__ import annotations

import enum
import fcntl
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import termios
import time
import typing
from itertools import pairwise
from pathlib import Path

import pytest

from kraft_audit.commands.cli import IMPORT_PANDAS, LAKE_COMMANDS, SUMMARIES
from tests.builders.captures import SMALL_CORPUS
from tests.builders.path_commands import typed_commands

COMMAND = [sys.executable, "-c", "from kraft_audit.commands.cli import main; main()"]
READERS = ["dump", "quorum"]


def link_loop(folder: Path) -> Path:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    return folder / "a"


def hostile_archive(folder: Path) -> Path:
    path = folder / "hostile.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("../../__cluster_metadata-0/00000000000000000000.log")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
    return path


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def empty_file(folder: Path) -> Path:
    (folder / "empty.tgz").touch()
    return folder / "empty.tgz"


def empty_folder(folder: Path) -> Path:
    return folder


def newline(folder: Path) -> Path:
    (folder / "two\nlines").mkdir()
    return folder / "two\nlines"


def unreadable(folder: Path) -> Path:
    path = folder / "unreadable.tgz"
    path.write_bytes(b"x")
    path.chmod(0)
    return path


def missing(folder: Path) -> Path:
    return folder / "missing"


def escapes(folder: Path) -> Path:
    return folder / "\x1b[2J\u202e"


def text_file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("no archive\n")
    return folder / "notes.txt"


HOSTILE = [
    link_loop, hostile_archive, fifo, empty_file, empty_folder, newline, unreadable, missing, escapes, text_file,
]  # fmt: skip


@pytest.mark.parametrize("make", HOSTILE)
@pytest.mark.parametrize("command", READERS)
def test_a_hostile_path_is_one_line_that_names_it(tmp_path: Path, kraft_audit, command: str, make) -> None:
    path = make(tmp_path)
    if make is unreadable and os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    ended = kraft_audit(command, path)
    assert ended.code == 3
    assert ended.out == ""
    assert len(ended.error_lines) == 1, ended.err
    assert ended.error_lines[0].startswith("kraft-audit: ")
    shown = str(path).replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert shown in ended.error_lines[0]
    assert "Traceback" not in ended.err


def test_an_address_of_an_unknown_kind(kraft_audit) -> None:
    ended = kraft_audit("dump", "ftp://host/path")
    assert (ended.code, len(ended.error_lines)) == (3, 1)
    assert "ftp://host/path" in ended.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["dump"], "PATH"),
        (["nonsense"], "nonsense"),
        (["dump", f"{SMALL_CORPUS}/elr", "--outptu", "json"], "--outptu"),
        (["dump", f"{SMALL_CORPUS}/elr", "--output", "xml"], "xml"),
        (["dump", f"{SMALL_CORPUS}/elr", "--from", "x"], "--from"),
        (["dump", f"{SMALL_CORPUS}/elr", "--type", "PARTITION_CHANGED"], "PARTITION_CHANGE_RECORD"),
        (["dump", f"{SMALL_CORPUS}/elr", "--dialect", "kip1"], "kip1"),
        (["quorum", f"{SMALL_CORPUS}/divergence", "--status", "--output", "json"], "--status"),
        (["run", "conf/fleet.yaml", "--cluster", "nope"], "nope"),
        (["dump", f"{SMALL_CORPUS}/divergence", "--node", "99"], "node 99"),
        (["check", f"{SMALL_CORPUS}/divergence", "--capture", "nope"], "nope"),
        (["state", f"{SMALL_CORPUS}/divergence", "--capture", "nope"], "nope"),
        (["check", f"{SMALL_CORPUS}/divergence", "--rule", "KX999"], "KX999"),
        (["report", f"{SMALL_CORPUS}/divergence", "--out", "conf"], "conf: expected a new or empty folder"),
        (["report", f"{SMALL_CORPUS}/divergence", "--output", "csv", "--out", "conf"], "conf: is a folder"),
        (["simulate", "last-replica-standing", "--out", "conf"], "conf: expected a new or empty folder"),
        (["lake", "export", "no-lake", "--out", "conf"], "conf: expected a new or empty folder"),
        (["evidence", f"{SMALL_CORPUS}/divergence", "--out", "README.md"], "README.md"),
        (["lake", "tables"], "LAKE"),
    ],
)
def test_wrong_usage_is_one_line(kraft_audit, arguments: list[str], text: str) -> None:
    ended = kraft_audit(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert len(ended.error_lines) == 1, ended.err
    assert text in ended.err


@pytest.mark.parametrize("command", READERS)
def test_an_unknown_capture_names_the_known_ones(kraft_audit, command: str) -> None:
    ended = kraft_audit(command, f"{SMALL_CORPUS}/divergence", "--capture", "nope")
    assert (ended.code, len(ended.error_lines)) == (2, 1)
    assert "10-uncommitted-suffix-live" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", f"{SMALL_CORPUS}/divergence", "--settings", "none.here"],
        ["check", f"{SMALL_CORPUS}/divergence", "--waivers", "none.here"],
        ["run", "none.here"],
        ["run", "conf/fleet.yaml", "--spark-conf", "none.here", "--lake", "{tmp}/lake"],
        ["lake", "maintain", "{tmp}/lake", "--conf", "none.here"],
        ["evidence", "--verify", "none.here"],
    ],
)
def test_a_file_that_is_not_there_is_unreadable_whatever_it_is_for(kraft_audit, tmp_path: Path, arguments) -> None:
    ended = kraft_audit(*[text.replace("{tmp}", str(tmp_path)) for text in arguments])
    assert (ended.code, ended.out, len(ended.error_lines)) == (3, "", 1)
    assert "none.here: " in ended.err


def test_what_is_no_evidence_pack_is_unreadable(kraft_audit, tmp_path: Path) -> None:
    for name, content in (("notes.txt", b"no pack"), ("half.zip", b"PK\x03\x04" + bytes(40))):
        (tmp_path / name).write_bytes(content)
        ended = kraft_audit("evidence", "--verify", tmp_path / name)
        assert (ended.code, len(ended.error_lines)) == (3, 1)
        assert ended.err.endswith("cannot be read as an evidence pack: no zip, or a damaged one\n")


def _ended(redirected: str, project_root: Path) -> tuple[int, str]:
    """The exit code and stderr of a command with its output redirected by a shell."""
    done = subprocess.run(
        ["bash", "-c", f'"$0" -c "from kraft_audit.commands.cli import main; main()" {redirected}', sys.executable],
        cwd=project_root,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["rules", "dump samples/divergence.tgz --output jsonl"])
def test_a_full_disk_under_the_output_is_no_unreadable_input(project_root: Path, command: str) -> None:
    reported = "kraft-audit: output: No space left on device\n"
    assert _ended(f"{command} > /dev/full", project_root) == (3, reported)


@pytest.mark.slow
def test_closed_outputs_are_no_fault_of_the_program(project_root: Path) -> None:
    assert _ended("rules >&-", project_root) == (3, "kraft-audit: output: standard output is closed\n")
    assert _ended("rules >&- 2>&-", project_root) == (3, "")
    assert _ended("rules KX999 2>&-", project_root) == (2, "")


def test_no_lake_is_unreadable_input(kraft_audit, tmp_path: Path) -> None:
    ended = kraft_audit("lake", "tables", tmp_path / "no-lake")
    assert (ended.code, len(ended.error_lines)) == (3, 1)
    assert str(tmp_path / "no-lake") in ended.err


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(project_root: Path) -> None:
    for arguments in (["dump", f"{SMALL_CORPUS}/elr", "--format", "kafka"], ["dump", "samples", "-o", "jsonl"]):
        with subprocess.Popen(
            [*COMMAND, *arguments], cwd=project_root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(timeout=60) == 141


def wait_until_full(pipe: int) -> None:
    """Returns when nothing was added to what waits in a pipe for a while."""
    before, waiting = -1, 0
    for _ in range(120):
        time.sleep(0.5)
        before, waiting = waiting, int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        if before == waiting > 0:
            return
    raise AssertionError(f"{waiting} bytes wait, and still more are written")


@pytest.mark.slow
def test_an_interrupt_is_130(project_root: Path) -> None:
    # It waits for its output to be taken, and is interrupted there.
    with subprocess.Popen(
        [*COMMAND, "dump", f"{SMALL_CORPUS}/elr", "--format", "kafka"],
        cwd=project_root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever was started in the background of a shell ignores interrupts, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        wait_until_full(process.stdout.fileno())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b""


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from kraft_audit.commands.cli import run_command\n"
        "code = run_command(['--help']) + run_command(['dump', '--help'])\n"
        "heavy = {'pyarrow', 'numba', 'numpy', 'pyspark', 'yaml', 'deltalake', 'pandas', 'llvmlite'}\n"
        "sys.stderr.write(','.join(sorted(heavy & set(sys.modules))) + str(code))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert ended.stderr == b"0"


@pytest.mark.slow
def test_commands_that_need_no_spark_import_none_of_it(program, project_root: Path) -> None:
    script = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyspark', 'delta', 'deltalake', 'pandas'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from kraft_audit.commands.cli import run_command\n"
        "import os\n"
        "codes = [run_command([*c.split(), 'samples/jbod.tgz']) for c in ('dump', 'quorum', 'dump --format kafka')]\n"
        "sys.exit(max(codes))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, cwd=project_root, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_missing_extra_is_named(project_root: Path, tmp_path: Path) -> None:
    """`run` on Spark needs Spark, other commands for a lake only what reads one; each says so with what to install."""
    script = (
        "import sys, importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name: None if name in ('pyspark', 'delta', 'deltalake') else found(name)\n"
        "from kraft_audit.commands.cli import run_command\n"
        "lake = ['lake tables', 'lake maintain', 'lake export --out x', 'report --out x']\n"
        "run = ['run', 'conf/fleet.yaml']\n"
        "codes = [run_command([*run, '--engine', 'spark']), run_command(run)]\n"
        "codes += [*(run_command([*line.split(), sys.argv[1]]) for line in lake)]\n"
        "codes.append(run_command(['lake', 'maintain', '--committer', 'spark', sys.argv[1]]))\n"
        "sys.exit(int(set(codes) != {2}))\n"
    )
    (tmp_path / "plans" / "_delta_log").mkdir(parents=True)
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, cwd=project_root, check=False
    )
    lines = ended.stderr.decode().splitlines()
    assert ended.returncode == 0, lines
    extras = [re.search(r"pip install 'kraft-audit\[(.*)\]'$", line)[1] for line in lines]
    assert extras == ["spark", "lake", "lake", "lake", "lake", "lake", "spark"]


def test_no_command_is_help(kraft_audit) -> None:
    ended = kraft_audit()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: kraft-audit")
    assert "  check " in ended.err


def test_version(kraft_audit) -> None:
    assert kraft_audit("--version").out.startswith("kraft-audit ")


@pytest.mark.slow
def test_every_help_has_examples_that_end_well(kraft_audit, tmp_path: Path) -> None:
    """Of the commands that need no lake: each example of each help runs, on the samples, but for those of a lake."""
    for name in SUMMARIES.keys() - IMPORT_PANDAS:
        ended = kraft_audit(name, "--help")
        lines = re.sub(r" \\\n +", " ", ended.out)
        examples = re.findall(rf"^    kraft-audit ({name}.*)$", lines, re.MULTILINE)
        examples = [example for example in examples if ".demo/lake" not in example]
        assert ended.code == 0, name
        assert examples, name
        for example in examples:
            arguments = shlex.split(example)
            written = {after for option, after in pairwise(arguments) if option in ("--out", "--svg")} | {
                "divergence.zip"
            }
            arguments = [str(tmp_path / text) if text in written else text for text in arguments]
            found = kraft_audit(*arguments)
            assert (found.code, found.err) in ((0, ""), (1, "")), example
            assert found.out, example


def test_output_is_a_format_and_out_a_target_in_every_command() -> None:
    for name, command in typed_commands():
        options = {text: parameter for parameter in command.params for text in parameter.opts}
        annotations = typing.get_type_hints(command.callback)
        assert "--format" not in options or name == "dump", "whose way of printing a log it is"
        if "-o" in options:
            assert options["-o"] is options["--output"], name
        if "--out" in options:
            assert options["--out"].metavar in ("DIR", "FILE"), name
        if "--output" in options:
            kind = annotations["output"]
            assert typing.get_origin(kind) is typing.Literal or issubclass(kind, enum.Enum), name


def test_the_list_of_commands_is_whole(kraft_audit) -> None:
    text = kraft_audit("--help").out
    for command, summary in SUMMARIES.items():
        assert re.search(rf"^  {command} +{re.escape(summary)}$", text, re.MULTILINE), summary
    text = kraft_audit("lake", "--help").out
    for command, summary in LAKE_COMMANDS.items():
        assert re.search(rf"^  {command.split()[1]} +{re.escape(summary)}$", text, re.MULTILINE), summary


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "check x --output yaml",
            "'yaml' is not one of 'table', 'json', 'jsonl', 'csv', 'sarif', 'ocsf' (see `kraft-audit check",
        ),
        ("dump x --node a", "'--node': 'a': expected a whole number (see `kraft-audit dump --help`)"),
        ("simulate x --seed -3", "'--seed': '-3': expected 0 or more (see `kraft-audit simulate --help`)"),
        (
            "lake quality x --fresh-hours inf",
            "'--fresh-hours': 'inf': expected 1000000 or less (see `kraft-audit lake quality --help`)",
        ),
        (
            "lake quality x --fresh-hours nan",
            "'--fresh-hours': 'nan': expected 1000000 or less (see `kraft-audit lake quality --help`)",
        ),
        (
            "lake quality x --fresh-hours 1e+300",
            "'--fresh-hours': '1e+300': expected 1000000 or less (see `kraft-audit lake quality --help`)",
        ),
        ("lake quality x --fresh-hours six", "'--fresh-hours': 'six': expected a number (see `kraft-audit lake"),
        ("foo", "No such command 'foo' (see `kraft-audit --help`)"),
        ("chek x", "No such command 'chek'. Did you mean 'check'? (see `kraft-audit --help`)"),
        ("check", "Missing argument 'PATH' (see `kraft-audit check --help`)"),
    ],
)
def test_a_refused_argument_is_reported_in_our_words_with_where_to_look(kraft_audit, line: str, text: str) -> None:
    ended = kraft_audit(*line.split())
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1)
    assert text in ended.err
    assert "Input should be" not in ended.err
    assert "Value error" not in ended.err


READS_ON = """
import atexit, ctypes, sys, time
import deltalake.fs
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from kraft_audit.commands import cli

class Files(pafs.FileSystemHandler):
    def open_input_file(self, path):
        return pa.PythonFile(Reading(path, "rb"), mode="r")

for name in Files.__abstractmethods__ - {"open_input_file"}:
    setattr(Files, name, lambda self, *given, **named: None)
Files.__abstractmethods__ = frozenset()

class Reading:
    closed = False
    def __init__(self, path, mode):
        self.path, self.file = path, open(path, mode)
    def read(self, size=-1, sleep=time.sleep):
        if self.path.endswith("slow"):
            sleep(1)
        return self.file.read(size)
    def seek(self, *given):
        return self.file.seek(*given)
    def tell(self):
        return self.file.tell()
    def close(self):
        pass

class Lingers:
    def __del__(self, sleep=time.sleep):
        sleep(3)

lingers = Lingers()  # Python takes its time to end, and finds threads of Arrow at work

def reads_on(arguments):
    schema, format, system = pa.schema([("number", pa.int64())]), pads.ParquetFileFormat(), pafs.PyFileSystem(Files())
    names = [f"{sys.argv[1]}/{name}" for name in ("quick", "slow")]
    for name in names:
        pq.write_table(pa.table({"number": range(1_000)}), name)
    data = pads.FileSystemDataset([format.make_fragment(name, system) for name in names], schema, format, system)
    batches = data.to_batches()
    next(batches)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(batches))  # nothing waits for its threads
    print("read")
    return 4

atexit.register(lambda: print("handlers ran", flush=True))
cli.run_command = reads_on
cli.main()
"""
"""A program that ends while Arrow's threads read a file through Python, as they do a lake in an object store."""


def test_a_program_ends_with_its_exit_code_while_arrow_reads_through_python(tmp_path: Path) -> None:
    words = [sys.executable, "-c", READS_ON, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (4, "read\nhandlers ran\n", "")
