"""What a new cluster is formatted with, and the first data batch that its first controller writes."""

from __future__ import annotations

from kraft_engine.brokers.broker_messages import Listener
from kraft_engine.brokers.elr import LATEST, Release
from kraft_engine.brokers.image import BROKER, ELR_FEATURE, METADATA_VERSION, MIN_ISR
from kraft_engine.brokers.image_records import config, feature
from kraft_engine.consensus.log_batches import Record


class Bootstrap:
    """What a new cluster is formatted with: feature levels and the controllers' static min.insync.replicas."""

    __slots__ = (
        "controller_listener",
        "controllers_register_themselves",
        "features",
        "release",
        "static_min_isr",
        "unclean_recovery",
    )

    def __init__(self, metadata_version: int = 30, *, elr: int | None = None, static_min_isr: int = 1) -> None:
        level = (1 if metadata_version >= 26 else 0) if elr is None else elr
        self.features: dict[str, int] = {METADATA_VERSION: metadata_version}
        if metadata_version >= 23 and level:
            self.features[ELR_FEATURE] = level
        for name, first, value in (
            ("group.version", 22, 1),
            ("share.version", 28, 1),
            ("streams.version", 29, 1),
            ("transaction.version", 24, 2),
        ):
            if metadata_version >= first:
                self.features[name] = value
        self.static_min_isr = static_min_isr
        self.release: Release = LATEST
        # What controllers register as their endpoint.
        self.controller_listener = Listener("CONTROLLER", 9093)
        # At each start, over the network, under a new incarnation (see kraft_engine.runs.surroundings).
        self.controllers_register_themselves = False
        # KIP-966's unclean recovery, never shipped (kraft_engine.brokers.unclean_recovery).
        self.unclean_recovery = False

    def feature_records(self) -> list[Record]:
        names = [METADATA_VERSION, *sorted(name for name in self.features if name != METADATA_VERSION)]
        return [feature(name, self.features[name]) for name in names]

    def image_records(self) -> list[Record]:
        """What the first data batch leaves in the image."""
        body = self.feature_records()
        if self.features.get(ELR_FEATURE, 0) > 0:
            body.append(config(BROKER, "", MIN_ISR, str(self.static_min_isr)))
        return body

    def records(self) -> list[Record]:
        """The first data batch of a new log (ActivationRecordsGenerator)."""
        body = self.image_records()
        if self.features[METADATA_VERSION] < 13:
            return body
        begin: Record = ("BeginTransactionRecord", 0, {"name": "Bootstrap records"})
        return [begin, *body, ("EndTransactionRecord", 0, {})]
