"""How a partition loses acknowledged records, or does not: each story ends while those that hold them are still down.

`kill -9` keeps the page cache, so nothing is lost by it alone: another replica leads, or a disk loses something.
"""

from __future__ import annotations

from tests.drills.losing_cluster import LosingCluster

A, B, C = 101, 102, 103
RECORDS = 100


def killed_then_unclean(pay: LosingCluster) -> None:
    """B is away while A acknowledges alone; A is killed, and an operator has B elected."""
    _leader_went_on(pay, "kill")


def stopped_then_unclean(pay: LosingCluster) -> None:
    """B is away while A acknowledges alone; A is stopped in order, and an operator has B elected."""
    _leader_went_on(pay, "stop")


def _leader_went_on(pay: LosingCluster, how: str) -> None:
    pay.create(A, B, min_isr=1)
    pay.send(RECORDS)
    pay.kill(B)
    pay.wait(isr={A})
    pay.send(RECORDS)
    pay.kill(A) if how == "kill" else pay.stop(A)
    pay.wait(leader=-1)
    pay.start(B)
    pay.elect_uncleanly(B)


def paused_then_unclean(pay: LosingCluster) -> None:
    """B is away while A acknowledges alone; A hangs, an operator has B elected, and A goes on."""
    pay.create(A, B, min_isr=1)
    pay.send(RECORDS)
    pay.stop(B)
    pay.wait(isr={A})
    pay.send(RECORDS)
    pay.pause(A)
    pay.wait(leader=-1)
    pay.start(B)
    pay.elect_uncleanly(B)


def unclean_twice(pay: LosingCluster) -> None:
    """After an unclean election of B, B acknowledges alone and is stopped, and A, which lacks that, is elected."""
    killed_then_unclean(pay)
    pay.send(RECORDS)
    pay.stop(B)
    pay.wait(leader=-1)
    pay.start(A)
    pay.elect_uncleanly(A)


def unclean_by_config(pay: LosingCluster) -> None:
    """B is away while A acknowledges alone; A is killed, and unclean.leader.election.enable has B elected."""
    pay.create(A, B, min_isr=1, **{"unclean.leader.election.enable": "true"})
    pay.send(RECORDS)
    pay.stop(B)
    pay.wait(isr={A})
    pay.send(RECORDS)
    pay.kill(A)
    pay.wait(leader=-1)
    pay.start(B)
    pay.wait(leader=B)


def lagger_elected(pay: LosingCluster) -> None:
    """C is away while A and B acknowledge; both go down, and an operator has C elected."""
    pay.create(A, B, C, min_isr=2)
    pay.send(RECORDS)
    pay.kill(C)
    pay.wait(isr={A, B})
    pay.send(RECORDS)
    pay.stop(B)
    pay.kill(A)
    pay.wait(leader=-1)
    pay.start(C)
    pay.elect_uncleanly(C)


def min_isr_lowered(pay: LosingCluster) -> None:
    """B is away below min ISR; the minimum is lowered, A acknowledges alone and is killed, and B is elected."""
    pay.create(A, B, min_isr=2)
    pay.send(RECORDS)
    pay.kill(B)
    pay.wait(isr={A})
    pay.configure("min.insync.replicas=1")
    pay.send(RECORDS)
    pay.kill(A)
    pay.wait(leader=-1)
    pay.start(B)
    pay.elect_uncleanly(B)


def killed_in_turn(pay: LosingCluster) -> None:
    """KIP-966: A, B and C are killed in turn, so that C led last, and B holds everything as well."""
    pay.create(A, B, C, min_isr=2)
    pay.send(5 * RECORDS)
    pay.kill(A)
    pay.wait(isr={B, C})
    pay.kill(B)
    pay.wait(isr={C})
    pay.kill(C)
    pay.wait(leader=-1)


def last_leader_back(pay: LosingCluster) -> None:
    """A, B and C are killed in turn; B and C come back, and Kafka elects C, which led last and lacks nothing."""
    killed_in_turn(pay)
    back_to_the_last_leader(pay)


def last_leader_without_its_tail(pay: LosingCluster) -> None:
    """A, B and C are killed in turn; B and C come back, and Kafka elects C, which has lost half of its log."""
    killed_in_turn(pay)
    pay.lose_tail(C)
    back_to_the_last_leader(pay)


def back_to_the_last_leader(pay: LosingCluster) -> None:
    pay.start(B)
    pay.start(C)
    pay.wait(leader=C, isr={B, C})


def alone_without_its_tail(pay: LosingCluster) -> None:
    """A alone is in the ISR and loses half of its log; B runs and holds everything, but A leads again (KIP-966)."""
    _killed_while_the_other_hung(pay)
    pay.lose_tail(A)
    pay.start(A)
    pay.wait(leader=A, isr={A, B})


def _killed_while_the_other_hung(pay: LosingCluster) -> None:
    pay.create(A, B, min_isr=2)
    pay.send(RECORDS)
    pay.pause(B)
    pay.wait(isr={A})
    pay.kill(A)
    pay.wait(leader=-1)
    pay.go_on(B)


def sole_disk_replaced(pay: LosingCluster) -> None:
    """The only replica is stopped, its disk is replaced by an empty one, and it leads again."""
    pay.create(A, min_isr=1)
    pay.send(RECORDS)
    pay.stop(A)
    pay.wait(leader=-1)
    pay.replace_disk(A)
    pay.start(A)
    pay.restart_spare()
    pay.wait(leader=A)


def removed_but_eligible(pay: LosingCluster) -> None:
    """B is stopped, taken out of the replicas and added again; the ELR names it all the while, so it is elected."""
    pay.create(A, B, C, min_isr=3)
    pay.send(RECORDS)
    pay.stop(B)
    pay.wait(isr={A, C})
    pay.reassign(A, C)
    pay.send(RECORDS)
    pay.stop(C)
    pay.wait(isr={A})
    pay.stop(A)
    pay.wait(leader=-1)
    pay.reassign(A, C, B)
    pay.start(B)
    pay.wait(leader=B)


# What loses nothing


def complete_but_not_eligible(pay: LosingCluster) -> None:
    """B hangs below min ISR while nothing is acknowledged; A is killed, B goes on, and an operator has B elected."""
    _killed_while_the_other_hung(pay)
    pay.elect_uncleanly(B)


def stopped_and_started(pay: LosingCluster) -> None:
    """The whole cluster is stopped, one node after the other, and started."""
    _all_went_down(pay, "stop")


def killed_at_once(pay: LosingCluster) -> None:
    """The whole cluster is killed at once, as by a power cut that cost nothing, and started."""
    _all_went_down(pay, "kill")


def _all_went_down(pay: LosingCluster, how: str) -> None:
    pay.create(A, B, C, min_isr=2)
    pay.send(RECORDS)
    nodes = [*pay.cluster.brokers.values(), *pay.cluster.controllers.values()]
    for node in nodes:
        node.kill() if how == "kill" else node.stop()
    for node in reversed(nodes):
        node.start()
    pay.cluster.wait_for_brokers(pay.cluster.brokers)
    pay.wait(isr={A, B, C})


def sole_replica_restarted(pay: LosingCluster) -> None:
    """The only replica is stopped and started."""
    pay.create(A, min_isr=1)
    pay.send(RECORDS)
    pay.stop(A)
    pay.wait(leader=-1)
    pay.start(A)
    pay.wait(leader=A)


def moved(pay: LosingCluster) -> None:
    """A completed reassignment takes the leader away."""
    pay.create(A, B, min_isr=2)
    pay.send(RECORDS)
    pay.reassign(B, C)
    pay.wait(isr={B, C})


def eligible_elected(pay: LosingCluster) -> None:
    """B and then A stop in order below min ISR, and B, which has everything, is elected from the ELR."""
    pay.create(A, B, C, min_isr=2)
    pay.send(RECORDS)
    pay.kill(C)
    pay.wait(isr={A, B})
    pay.send(RECORDS)
    pay.stop(B)
    pay.wait(isr={A})
    pay.stop(A)
    pay.wait(leader=-1)
    pay.start(B)
    pay.wait(leader=B, isr={B})
