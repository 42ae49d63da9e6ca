"""What a plan that does not stand says, and what it asks for: disks, the owner of a log, or whether nodes are lost.

That a node is lost with its disk is for people to say. So of a node that was not read --gone stands in a question only:
pasted by mistake, it leaves out a disk that may hold the better copy, and a second quorum begins beside a living one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kraft_audit.capture.plan import ReplicaPlan, cluster_id_of
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.recovery.may_i.doubted_disks import doubt_reason
from kraft_audit.recovery.may_i.electorate import DiskDoubt
from kraft_audit.text.gone_nodes import are_lost, gone_option
from kraft_audit.text.readable import listed, nouns
from kraft_codec.file_names import FileKind
from kraft_codec.storage.random_access import join

CLUSTER, NODE = "CLUSTER", "NODE"
"""Stand for ids that nothing names."""


def named_owners(plans: Iterable[ReplicaPlan]) -> Iterator[tuple[str, int]]:
    """Whose the disks are that have no meta.properties of their own, as somebody named it: in the order of --as."""
    for plan in sorted(plans, key=lambda each: each.path):
        is_nameless = all(file.kind != FileKind.META_PROPERTIES for file in plan.files) and not plan.is_archived
        if is_nameless and plan.node_id is not None and plan.cluster_id is not None:
            yield plan.cluster_id, plan.node_id


def owners_option(plans: Iterable[ReplicaPlan]) -> str:
    """What has to be given again for such disks."""
    return "".join(f" --as {cluster_id}={node_id}" for cluster_id, node_id in named_owners(plans))


@dataclass(frozen=True, slots=True)
class PlanRefusals:
    """`path` and `asked` are what was read, to paste; `gone` the nodes that are said to be lost.

    `disk_ids` are the nodes whose disks are here, `nameless` the disks that do not say whose they are, and `owners` the
    options that say it of others.
    """

    path: str
    asked: str
    is_lake: bool
    gone: Collection[int]
    disk_ids: Collection[int]
    nameless: Sequence[ReplicaPlan] = ()
    cluster_id: str | None = None
    owners: str = ""

    def may_live(self, voters: Collection[int], alive: Sequence[int]) -> tuple[str, list[str]]:
        """Why a quorum of which `alive` are not said to be gone is not rescued, and what to do."""
        needed = majority(len(voters))
        reason = (
            f"A majority may live: {needed} of {len(voters)} voters elect a leader, and {nouns('node', alive)} "
            f"{'is' if len(alive) == 1 else 'are'} not said to be gone. A rescued quorum beside a living one "
            "means two clusters with one id."
        )
        here = [node for node in alive if node in self.disk_ids]
        steps = [f"Start what you have: kraft-audit may-i start {here[0]} {self.path}{self.owners}"] if here else []
        away = [node for node in alive if node not in self.disk_ids]
        if len(here) < needed:
            steps += self._owners() or [are_lost(away, self.gone)]
        return reason, steps

    def missing_disks(self, missing: Sequence[int], doubts: Mapping[int, DiskDoubt]) -> tuple[str, list[str]]:
        """Why a plan is undecided that depends on these voters' disks, and what to do; `doubts` are of disks here."""
        if here := {node: doubts[node] for node in missing if node in doubts}:
            missing = list(here)
            step = f"Copy the whole metadata log of {nouns('node', missing)} again below {self.path}, and ask again."
            return f"{doubt_reason(here)} It may hold a better copy.", [step, are_lost(missing, self.gone)]
        is_one = len(missing) == 1
        disks = f"the disk{'' if is_one else 's'} of {nouns('node', missing)}"
        reason = (
            f"It depends on {disks}, which {'is' if is_one else 'are'} neither here nor said to be gone: "
            f"{'it' if is_one else 'they'} may hold a better copy."
        )
        below = f"into a folder to read with --lake {self.path}" if self.is_lake else f"below {self.path}"
        return reason, self._owners() or [f"Copy {disks} {below}, and ask again.", are_lost(missing, self.gone)]

    def _owners(self) -> list[str]:
        """How to name whose disks these are that do not say so themselves."""
        if not self.nameless:
            return []
        places = listed([join(each.root, each.path) if each.path else each.root for each in self.nameless])
        which = f"{places} has no meta.properties: say whose log it is"
        if len(self.nameless) > 1:
            which = f"{places} have no meta.properties: say whose logs these are, in this order"
        named = f" --as {cluster_id_of(self.cluster_id or '') or CLUSTER}={NODE}" * len(self.nameless)
        return [f"{which}: kraft-audit rescue --plan {self.asked}{named}{gone_option(self.gone)}"]
