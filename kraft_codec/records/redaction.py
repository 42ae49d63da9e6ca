"""Secrets become keyed fingerprints before anything leaves the codec: changes show, values do not.

What is secret: the fields marked so in the schemas (SCRAM salts and keys, delegation token ids, config values), except
the values of configs on the allow-list at the end of this module; and unknown tagged fields of data records,
whose meaning is not known. They are overwritten in place, same length, in the private buffer that was read, after
its CRC was checked.

The forms (n bytes, keyed BLAKE2b under the lake's key, so that no one without it can guess a value and compare):

- text of 25 bytes or more: `redacted:` and up to 43 characters of the hash, then `*`; 8 to 24 bytes: `*` and characters
  of the hash;
- bytes of 8 or more: the hash itself, stretched or cut to n;
- fewer than 8 bytes, where a hash could be guessed by trying: `*`, and at the end a number in 0-9A-Za-z (one character
  for 1 or 2 bytes, two for more) that counts the distinct values which this subject has had. The same value of the same
  subject has the same number again; the numbers start over after 62 or 3,844 values.

So the same value has the same form in the log and in a snapshot; for short ones as long as `short_values` is carried.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kraft_codec.records.message import SecretSpan
from kraft_codec.records.record import MetadataRecord, read_metadata_value
from kraft_codec.schemas import Field, Type

KEY_BYTES_MIN: Final = 16
SHORT_BYTES_BELOW: Final = 8
_FINGERPRINT_PREFIX: Final = b"redacted:"
_PREFIXED_BYTES_FROM: Final = 25  # leaves 16 characters, 96 bits, of the hash
_COUNT_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MASK: Final = b"*"
_PURPOSE: Final = b"kraft-audit"

UNKNOWN_FIELD_SUBJECT: Final = "unknown tagged field"


class Redactor:
    """Turns the secrets of one cluster into fingerprints.

    `key` is the lake's (16 bytes at least); `short_values` is what an earlier Redactor of this cluster gave by
    `short_values()`: per subject the keyed hashes of its short values, in the order in which they were first seen.
    `before_short_values` is called once, before the first short value: a reader that begins in the middle of a log
    shows this redactor the values before it, so that they are numbered first.
    """

    def __init__(self, key: bytes, short_values: Mapping[str, Sequence[str]] | None = None) -> None:
        if len(key) < KEY_BYTES_MIN:
            raise ValueError(f"a redaction key of {len(key)} bytes: expected {KEY_BYTES_MIN} at least")
        self._key = hashlib.blake2b(key, digest_size=32, person=_PURPOSE).digest()
        self._short_values: dict[str, dict[str, int]] = {
            subject: {hashed: number for number, hashed in enumerate(hashes)}
            for subject, hashes in (short_values or {}).items()
        }
        self.before_short_values: Callable[[], None] | None = None

    def short_values(self) -> dict[str, list[str]]:
        """The state that a later Redactor of the same cluster needs; it holds keyed hashes, no values."""
        return {subject: list(numbers) for subject, numbers in sorted(self._short_values.items())}

    def keyed_hash(self, value: bytes | bytearray | memoryview) -> str:
        """What may be said of bytes that cannot be decoded, besides their length: 32 hex digits."""
        return self._digest(value)[:16].hex()

    def fingerprint(self, value: bytes | bytearray | memoryview, *, is_text: bool, subject: str) -> bytes:
        """As many bytes as `value` has; ASCII where it is text. `subject` says whose short values are counted."""
        length = len(value)
        if length < SHORT_BYTES_BELOW:
            return self._short_fingerprint(value, subject)
        digest = self._digest(value)
        if not is_text:
            return _stretched(digest, length)
        characters = base64.urlsafe_b64encode(digest).rstrip(b"=")
        prefix = _FINGERPRINT_PREFIX if length >= _PREFIXED_BYTES_FROM else _MASK
        return (prefix + characters)[:length].ljust(length, _MASK)

    def overwrite(
        self, buffer: bytearray | memoryview, position: int, length_bytes: int, *, is_text: bool, subject: str
    ) -> None:
        """Puts the fingerprint in the place of buffer[position : position + length_bytes]."""
        end = position + length_bytes
        secret = bytes(buffer[position:end])
        buffer[position:end] = self.fingerprint(secret, is_text=is_text, subject=subject)

    def _digest(self, value: bytes | bytearray | memoryview) -> bytes:
        return hashlib.blake2b(value, digest_size=32, key=self._key, person=_PURPOSE).digest()

    def _short_fingerprint(self, value: bytes | bytearray | memoryview, subject: str) -> bytes:
        length = len(value)
        if length == 0:
            return b""
        if self.before_short_values is not None:
            show_earlier, self.before_short_values = self.before_short_values, None
            show_earlier()
        numbers = self._short_values.setdefault(subject, {})
        number = numbers.setdefault(self.keyed_hash(value), len(numbers))
        high, low = divmod(number, len(_COUNT_DIGITS))
        digits = _COUNT_DIGITS[low : low + 1]
        if length > 2:
            high %= len(_COUNT_DIGITS)
            digits = _COUNT_DIGITS[high : high + 1] + digits
        return digits.rjust(length, _MASK)


def secret_subject(message_name: str, field: Field | None, fields: Mapping[str, Any]) -> str:
    """Whose secret it is, without saying it: the key under which short values are counted.

    A delegation token is known by its secret id alone, so all of them are one subject, and the record that removes a
    token shows the same form as the one that made it.
    """
    if field is None:
        return UNKNOWN_FIELD_SUBJECT
    if message_name == "ConfigRecord":
        return f"config {fields['resourceType']} {fields['resourceName']} {fields['name']}"
    if message_name == "UserScramCredentialRecord":
        return f"scram {fields['mechanism']} {field.json_name} {fields['name']}"
    return field.json_name


def is_secret(message_name: str, field: Field | None, fields: Mapping[str, Any]) -> bool:
    """Whether the value of a field so marked must go: all but allow-listed configs."""
    is_config = message_name == "ConfigRecord" and field is not None
    return not (is_config and is_public_config(fields["resourceType"], fields["name"]))


def secrets_of(record: MetadataRecord, spans: Sequence[SecretSpan]) -> list[tuple[SecretSpan, str]]:
    """Those of a record's spans that must go, each with its subject."""
    name, fields = record.message.name, record.fields
    return [(span, secret_subject(name, span.field, fields)) for span in spans if is_secret(name, span.field, fields)]


def redact_value(redactor: Redactor, value: bytearray) -> MetadataRecord:
    """Overwrites the secrets of one data record's value, and decodes what is left.

    Raises CodecError as `read_metadata_value`; the value has not been touched then, and must not leave.
    """
    spans: list[SecretSpan] = []
    record = read_metadata_value(value, secrets=spans)
    secrets = secrets_of(record, spans)
    for span, subject in secrets:
        is_text = span.field is not None and span.field.type is Type.STRING
        redactor.overwrite(value, span.position, span.length_bytes, is_text=is_text, subject=subject)
    return read_metadata_value(value) if secrets else record


def _stretched(digest: bytes, length: int) -> bytes:
    if length <= len(digest):
        return digest[:length]
    return hashlib.shake_256(digest).digest(length)


# The config keys whose values are not secret: an allow-list, so that an unknown key is redacted. From the definitions
# of release 4.3 (KafkaConfig, LogConfig, GroupConfig, ClientMetricsConfigs, QuotaConfig) and the names that 3.x still
# had, without the type PASSWORD and without the OAuth keys whose text may carry credentials (URLs, ids, files). What
# plugins define (authorizers, reporters, `config.providers.*`, remote storage) is not on it.

TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32

# A broker's config of one listener, or of one SASL mechanism on it.
_LISTENER_PREFIX: Final = re.compile(
    r"listener\.name\.[^.]+\.(?:(?:plain|gssapi|oauthbearer|scram-sha-(?:256|512))\.)?"
)

_TOPIC_CONFIGS: Final = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
    index.interval.bytes internal.segment.bytes leader.replication.throttled.replicas local.retention.bytes
    local.retention.ms max.compaction.lag.ms max.message.bytes message.downconversion.enable message.format.version
    message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.difference.max.ms
    message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
    remote.log.copy.disable remote.log.delete.on.disable remote.log.disable.policy remote.storage.enable
    retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable
"""

_GROUP_CONFIGS: Final = """
    consumer.assignment.interval.ms consumer.assignor.offload.enable consumer.heartbeat.interval.ms
    consumer.session.timeout.ms share.assignment.interval.ms share.assignor.offload.enable share.auto.offset.reset
    share.delivery.count.limit share.heartbeat.interval.ms share.isolation.level share.partition.max.record.locks
    share.record.lock.duration.ms share.renew.acknowledge.enable share.session.timeout.ms
    streams.assignment.interval.ms streams.assignor.offload.enable streams.heartbeat.interval.ms
    streams.initial.rebalance.delay.ms streams.num.standby.replicas streams.session.timeout.ms
"""

_CLIENT_METRICS_CONFIGS: Final = """
    interval.ms match metrics
"""

_BROKER_CONFIGS: Final = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.listeners
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name auto.create.topics.enable
    auto.include.jmx.reporter auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms broker.id
    broker.id.generation.enable broker.rack broker.session.timeout.ms client.quota.callback.class
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
    connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
    control.plane.listener.name controlled.shutdown.enable controller.listener.names
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
    controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
    controller.quota.window.num controller.quota.window.size.seconds controller.socket.timeout.ms cordoned.log.dirs
    create.topic.policy.class.name default.replication.factor delegation.token.expiry.check.interval.ms
    delegation.token.expiry.time.ms delegation.token.max.lifetime.ms
    delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners
    eligible.leader.replicas.enable fetch.max.bytes fetch.purgatory.purge.interval.requests
    follower.fetch.last.tiered.offset.enable follower.replication.throttled.rate
    group.consumer.assignment.interval.ms group.consumer.assignors group.consumer.heartbeat.interval.ms
    group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.migration.policy
    group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
    group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
    group.coordinator.append.linger.ms group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes group.coordinator.new.enable group.coordinator.rebalance.protocols
    group.coordinator.threads group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
    group.min.session.timeout.ms group.share.assignment.interval.ms group.share.assignors
    group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
    group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
    group.share.max.delivery.count.limit group.share.max.groups group.share.max.heartbeat.interval.ms
    group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
    group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
    group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
    group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
    group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
    group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
    group.share.session.timeout.ms group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
    group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms group.streams.num.standby.replicas
    group.streams.session.timeout.ms initial.broker.registration.timeout.ms inter.broker.listener.name
    inter.broker.protocol.version internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes kafka.metrics.polling.interval.secs kafka.metrics.reporters
    leader.imbalance.check.interval.seconds leader.replication.throttled.rate listener.security.protocol.map
    listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
    log.cleaner.enable log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
    log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.dir log.dir.failure.timeout.ms
    log.dirs log.flush.interval.messages log.flush.interval.ms log.flush.offset.checkpoint.interval.ms
    log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms log.index.interval.bytes
    log.index.size.max.bytes log.initial.task.delay.ms log.local.retention.bytes log.local.retention.ms
    log.message.downconversion.enable log.message.format.version log.message.timestamp.after.max.ms
    log.message.timestamp.before.max.ms log.message.timestamp.difference.max.ms log.message.timestamp.type
    log.preallocate log.retention.bytes log.retention.check.interval.ms log.retention.hours log.retention.minutes
    log.retention.ms log.roll.hours log.roll.jitter.hours log.roll.jitter.ms log.roll.ms log.segment.bytes
    log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
    max.connections.per.ip.overrides max.incremental.fetch.session.cache.slots max.request.partition.size.limit
    message.max.bytes metadata.log.dir metadata.log.max.record.bytes.between.snapshots
    metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms min.insync.replicas node.id num.io.threads
    num.network.threads num.partitions num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads
    num.replica.fetchers offset.metadata.max.bytes offsets.commit.required.acks offsets.commit.timeout.ms
    offsets.load.buffer.size offsets.retention.check.interval.ms offsets.retention.minutes
    offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.replication.factor
    offsets.topic.segment.bytes principal.builder.class process.roles producer.id.expiration.check.interval.ms
    producer.id.expiration.ms producer.purgatory.purge.interval.requests queued.max.request.bytes
    queued.max.requests quota.window.num quota.window.size.seconds remote.fetch.max.wait.ms
    remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
    remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
    remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
    remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
    remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
    remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
    remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
    remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
    remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
    remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
    remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    replica.alter.log.dirs.io.max.bytes.per.second replica.fetch.backoff.ms replica.fetch.max.bytes
    replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
    replication.quota.window.size.seconds request.timeout.ms reserved.broker.max.id
    sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
    sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class sasl.server.callback.handler.class sasl.server.max.receive.size
    security.inter.broker.protocol security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
    share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
    socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes ssl.allow.dn.changes
    ssl.allow.san.changes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.keymanager.algorithm ssl.keystore.location
    ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.location ssl.truststore.type telemetry.max.bytes
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.load.buffer.size transaction.state.log.min.isr transaction.state.log.num.partitions
    transaction.state.log.replication.factor transaction.state.log.segment.bytes transaction.two.phase.commit.enable
    transactional.id.expiration.ms unclean.leader.election.enable unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable
"""

ALLOWED_CONFIGS: Final[dict[int, frozenset[str]]] = {
    TOPIC: frozenset(_TOPIC_CONFIGS.split()),
    BROKER: frozenset(_BROKER_CONFIGS.split()),
    CLIENT_METRICS: frozenset(_CLIENT_METRICS_CONFIGS.split()),
    GROUP: frozenset(_GROUP_CONFIGS.split()),
}


def is_public_config(resource_type: int, name: str) -> bool:
    """Whether the value of this config (ConfigRecord.ResourceType and Name) may leave the codec as it is."""
    allowed = ALLOWED_CONFIGS.get(resource_type, frozenset())
    if name in allowed:
        return True
    prefix = _LISTENER_PREFIX.match(name)
    return resource_type == BROKER and prefix is not None and name[prefix.end() :] in allowed
