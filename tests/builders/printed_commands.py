"""Commands of Kafka that recovery prints, by kind, and which test runs each on a real Kafka as it was printed.

A kind is a program, its subcommands and its options without their values: what decides whether a command works.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

CONTROLLER, SERVER = "--bootstrap-controller", "--bootstrap-server"
PROGRAMS: Final = re.compile(r"(?<![\w/.-])(?:kafka-[a-z]+(?:-[a-z]+)*|kraft-audit)(?:\.sh)? ")
FLAGS: Final = frozenset(
    {
        *("--add", "--all-topic-partitions", "--alter", "--cluster", "--create", "--delete", "--describe"),
        *("--entity-default", "--execute", "--force", "--if-not-exists", "--ignore-formatted"),
        *("--no-initial-controllers", "--remove", "--replication", "--standalone", "--status", "--verify"),
        *("--unavailable-partitions", "--under-replicated-partitions"),
    }
)
"""Options without a value; --cluster of kafka-acls, which alone among these tools has it."""

_QUORUM_TEST: Final = "tests/drills/test_quorum_commands.py::test_every_command_about_a_live_quorum_works_as_printed"
_BROKER_TEST: Final = "tests/drills/test_quorum_commands.py::test_commands_through_a_broker_work_as_printed"
_UNCLEAN_TEST: Final = (
    "tests/drills/test_quorum_commands.py::test_unclean_election_goes_off_through_a_controller_as_printed"
)
_UPGRADE_TEST: Final = (
    "tests/drills/test_upgraded_features.py::test_an_upgrade_that_is_blocked_gets_through_by_what_is_printed"
)
_WIPE_TEST: Final = "tests/drills/test_replaced_voter.py::test_a_wiped_voter_comes_back_by_what_may_i_prints"
_SCALE_TEST: Final = "tests/drills/test_scale_in.py::test_a_broker_and_a_voter_leave_by_what_scale_in_prints"
_ACL_TEST: Final = "tests/drills/test_removed_acls.py::test_every_form_of_acl_is_removed_as_printed"
_DRILL: Final = "tests/drills/test_drills.py::test_a_drill"
EXECUTED_BY: Final[dict[str, str]] = {
    f"kafka-metadata-quorum describe {CONTROLLER} --status": _DRILL,
    f"kafka-metadata-quorum describe {CONTROLLER} --replication": _QUORUM_TEST,
    f"kafka-metadata-quorum describe {CONTROLLER} --command-config --status": _DRILL,
    f"kafka-metadata-quorum describe {CONTROLLER} --command-config --replication": _DRILL,
    f"kafka-metadata-quorum remove-controller {CONTROLLER} --controller-directory-id --controller-id": _WIPE_TEST,
    f"kafka-metadata-quorum add-controller {CONTROLLER} --command-config": _WIPE_TEST,
    "kafka-storage format --cluster-id --config --no-initial-controllers": _WIPE_TEST,
    "kafka-storage format --cluster-id --config --ignore-formatted --no-initial-controllers": _DRILL,
    "kafka-storage format --cluster-id --config --ignore-formatted": _DRILL,
    "kafka-server-start -daemon": _WIPE_TEST,
    f"kafka-features upgrade {CONTROLLER} --feature kraft.version": _QUORUM_TEST,
    f"kafka-features upgrade {CONTROLLER} --feature": _UPGRADE_TEST,
    f"kafka-features downgrade {CONTROLLER} --feature": _QUORUM_TEST,
    f"kafka-cluster unregister {CONTROLLER} --id": _UPGRADE_TEST,
    f"kafka-cluster unregister {SERVER} --id": _QUORUM_TEST,
    f"kafka-cluster unregister-controller {CONTROLLER} --id": _UPGRADE_TEST,
    f"kafka-reassign-partitions {SERVER} --execute --reassignment-json-file": _SCALE_TEST,
    f"kafka-reassign-partitions {SERVER} --reassignment-json-file --verify": _SCALE_TEST,
    f"kafka-topics {SERVER} --describe --under-replicated-partitions": _QUORUM_TEST,
    f"kafka-topics {SERVER} --describe --unavailable-partitions": _DRILL,
    f"kafka-leader-election --all-topic-partitions {SERVER} --election-type": _DRILL,
    f"kafka-topics {SERVER} --delete --topic": _DRILL,
    f"kafka-acls {SERVER} --remove": _ACL_TEST,
    f"kafka-configs --alter {SERVER} --delete-config --entity-name --entity-type": _DRILL,
    f"kafka-configs --add-config --alter {CONTROLLER} --entity-name --entity-type": _UNCLEAN_TEST,
    # Before metadata.version 3.7-IV0 controllers take no such command: a broker is asked.
    f"kafka-metadata-quorum describe {SERVER} --status": _BROKER_TEST,
    f"kafka-features upgrade {SERVER} --feature kraft.version": _BROKER_TEST,
    f"kafka-features upgrade {SERVER} --feature": _BROKER_TEST,
    f"kafka-features downgrade {SERVER} --feature": _BROKER_TEST,
}
"""By kind, the test that runs it. A restore kit is run whole, as a script, by test_kafka_restore.py and by drills."""


def commands_in(text: str) -> Iterator[str]:
    """The commands in a printed line, each from its program to the end of the line."""
    found = PROGRAMS.search(text)
    if found is not None:
        yield text[found.start() :]


def echoed(text: str) -> str:
    """What the echo in a printed line writes into a file."""
    _, *words = shlex.split(text[text.index("echo ") :])
    return " ".join(words[: words.index(">")])


def kind_of(command: str) -> str:
    """The kind of a command of Kafka's. kraft.version is a kind of its own: Kafka decides it by other rules."""
    program, *words = shlex.split(command)
    options: set[str] = set()
    verbs: list[str] = []
    is_kraft = False
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            verbs.append(word)
            continue
        options.add(word)
        if word == "-daemon":
            words.pop(0)
        elif word not in FLAGS:
            is_kraft |= words.pop(0).startswith("kraft.version=")
    if program == "kafka-acls":  # resource and who in all their forms: test_removed_acls.py
        options &= {CONTROLLER, SERVER, "--add", "--remove"}
    kind = " ".join([program.removesuffix(".sh"), *verbs, *sorted(options)])
    return f"{kind} kraft.version" if is_kraft else kind


def kinds_run_by(test: str) -> set[str]:
    """What `EXECUTED_BY` says that a test runs, given the name of its function."""
    return {kind for kind, runner in EXECUTED_BY.items() if runner.endswith(f"::{test}")}
