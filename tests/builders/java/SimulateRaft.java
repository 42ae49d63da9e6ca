package org.apache.kafka.raft;

import java.io.IOException;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.snapshot.RawSnapshotReader;
import org.apache.kafka.snapshot.RecordsSnapshotWriter;
import org.apache.kafka.snapshot.Snapshots;

/**
 * Plays RaftEventSimulationTest's cluster, with all of its invariants on, and writes what its nodes' disks hold as log dirs.
 *
 * Arguments: a folder, and runs: random-SEED, wiped-SEED or removed-SEED. Captures stand in FOLDER/RUN/NN/node-N. A number that the simulation
 * appends becomes a record of the next producer id; batches, offsets, epochs and times stay as they are. Prints, a tab between the
 * columns: `capture`, its folder, the highest high watermark that a node has had; `lost`, the run's folder, the wiped node, that
 * high watermark when the node was wiped, and what Kafka's own validation of committed data says at the end; `led`, the run's folder,
 * the removed leader, and who leads long after both nodes started again, -1 where none does.
 */
public class SimulateRaft {
    private static final String TEST = "org.apache.kafka.raft.RaftEventSimulationTest";
    private static final int STEPS = 14;

    private final Random random;
    private final Path folder;
    private final Object cluster;
    private final Object router;
    private final Object scheduler;
    private final Map<Integer, Object> directoryIds = new TreeMap<>();
    private long announced = 0;
    private int captureCount = 0;

    private SimulateRaft(int seed, Path folder, int voterCount, int observerCount, boolean withInvariants, boolean isDynamic)
        throws Exception {
        this.random = new Random(seed);
        this.folder = folder;
        this.cluster = make("Cluster", voterCount, observerCount, random);
        this.router = make("MessageRouter", cluster);
        Object test = Class.forName(TEST).getDeclaredConstructor().newInstance();
        this.scheduler = withInvariants ? call(test, "schedulerWithDefaultInvariants", cluster)
            : make("EventScheduler", random, get(cluster, "time"));
        if (isDynamic) formatInitialControllers();
        call(cluster, "startAll");
        call(test, "schedulePolling", scheduler, cluster, 3, 5);
        schedule(() -> call(router, "deliverAll"), 2);
        schedule((Runnable) make("SequentialAppendAction", cluster), 90);
        schedule(this::noteHighWatermarks, 1);
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 1; i < arguments.length; i++) {
            String[] run = arguments[i].split("-");
            int seed = Integer.parseInt(run[1]);
            Path folder = Path.of(arguments[0], arguments[i]);
            if (run[0].equals("random")) {
                new SimulateRaft(seed, folder, 3 + 2 * (seed % 2), seed % 3 / 2, true, false).playRandom();
            } else if (run[0].equals("removed")) {
                new SimulateRaft(seed, folder, 2, 0, false, true).playRemoved(seed % 2 == 0);
            } else {
                new SimulateRaft(seed, folder, 3, 0, false, false).playWiped(seed % 2 == 0, seed % 4 < 2);
            }
        }
    }

    /** Kills, restarts, cuts off and heals nodes, cleans logs, and captures all disks between; ends healed. */
    private void playRandom() throws Exception {
        run(1_500 + random.nextInt(3_000));
        for (int step = 0; step < STEPS; step++) {
            int node = random.nextInt(nodes().size());
            boolean isRunning = running().containsKey(node);
            switch (random.nextInt(7)) {
                case 0: call(cluster, "kill", node); break;
                case 1: if (isRunning) call(cluster, "shutdown", node); break;
                case 2: call(router, "filter", node, make("DropAllTraffic")); break;
                case 3: call(router, "filter", node, make("PermitAllTraffic")); break;
                case 4: if (isRunning) clean(log(node)); break;
                default: if (!isRunning) call(cluster, "start", node); break;
            }
            run(random.nextInt(5_000));
            if (random.nextInt(3) == 0) capture();
        }
        heal();
        long target = announced + 10;
        until(() -> (boolean) call(cluster, "allReachedHighWatermark", target));
        capture();
    }

    /**
     * A voter loses its disk and goes on as if it were new, which Kafka cannot notice with a static voter set. With a voter that
     * was cut off (`lagging`) or that lost its disk too, it elects a leader while the only disk that still holds what was
     * acknowledged is away; when that comes back, it is cut to what the others have. The log alone is gone where `keepsDirectories`,
     * else meta.properties too.
     */
    private void playWiped(boolean lagging, boolean keepsDirectories) throws Exception {
        Object validation = make("ConsistentCommittedData", cluster);
        until(() -> (boolean) call(cluster, "allReachedHighWatermark", 6L));
        int leader = ((OptionalInt) call(cluster, "latestLeader")).getAsInt();
        int other = (leader + 1 + random.nextInt(2)) % 3;
        int wiped = 3 - leader - other;
        if (lagging) call(router, "filter", other, make("DropAllTraffic"));
        until(() -> announced >= 14 + leader);
        call(validation, "validate");
        long acknowledged = announced;
        capture();
        if (!keepsDirectories) directoryIds.clear();
        call(cluster, "kill", leader);
        call(cluster, "killAndDeletePersistentState", wiped);
        if (!lagging) call(cluster, "killAndDeletePersistentState", other);
        call(router, "filter", other, make("PermitAllTraffic"));
        if (!lagging) call(cluster, "start", other);
        call(cluster, "start", wiped);
        until(() -> (boolean) call(cluster, "allReachedHighWatermark", 8L));
        if (!lagging) restart(((OptionalInt) call(cluster, "latestLeader")).getAsInt());
        until(() -> (boolean) call(cluster, "allReachedHighWatermark", 30L));
        capture();
        call(cluster, "start", leader);
        until(() -> (boolean) call(cluster, "hasConsistentLeader") && (boolean) call(cluster, "allReachedHighWatermark", 40L));
        capture();
        try {
            call(validation, "validate");
        } catch (AssertionError e) {
            System.out.println("lost\t" + folder + "\t" + wiped + "\t" + acknowledged + "\t" + e.getMessage());
        }
    }

    /**
     * Of two voters the leader is told to remove itself and stops once it has appended that, uncommitted. The other voter has the
     * record where it was not cut off (`isCutOff`). Then both start again, and have a hundred seconds to elect a leader.
     */
    private void playRemoved(boolean isCutOff) throws Exception {
        until(() -> (boolean) call(cluster, "allReachedHighWatermark", 10L));
        int leader = ((OptionalInt) call(cluster, "latestLeader")).getAsInt();
        int other = 1 - leader;
        if (isCutOff) call(router, "filter", other, make("DropAllTraffic"));
        KafkaRaftClient<?> client = (KafkaRaftClient<?>) get(running().get(leader), "client");
        ReplicaKey key = ReplicaKey.of(leader, (Uuid) get(nodes().get(leader), "nodeDirectoryId"));
        client.handle(new RaftRequest.Inbound(MockNetworkChannel.LISTENER_NAME, 1 << 30, (short) 0,
            RaftUtil.removeVoterRequest((String) get(cluster, "clusterId"), key), ((Time) get(cluster, "time")).milliseconds()));
        int holder = isCutOff ? leader : other;
        until(() -> isRemovedIn(log(holder)));
        call(cluster, "killAll");
        capture();
        call(router, "filter", other, make("PermitAllTraffic"));
        call(cluster, "startAll");
        run(100_000);
        int elected = -1;
        for (Object node : running().values()) {
            QuorumState quorum = ((KafkaRaftClient<?>) get(node, "client")).quorum();
            if (quorum.isLeader()) elected = quorum.localIdOrThrow();
        }
        System.out.println("led\t" + folder + "\t" + leader + "\t" + elected);
    }

    /** Whether the newest voter set of a log has one voter. */
    private static boolean isRemovedIn(MockLog log) {
        VoterSet latest = null;
        for (MockLog.LogBatch batch : log.readBatches(log.startOffset(), OptionalLong.empty())) {
            for (MockLog.LogEntry entry : batch.entries()) {
                if (batch.isControlBatch() && ControlRecordType.parse(entry.record().key()) == ControlRecordType.KRAFT_VOTERS) {
                    latest = VoterSet.fromVotersRecord(ControlRecordUtils.deserializeVotersRecord(entry.record().value()));
                }
            }
        }
        return latest != null && latest.size() == 1;
    }

    /** kafka-storage format --initial-controllers: each node's 0-0 snapshot names all. */
    private void formatInitialControllers() {
        Map<Integer, VoterSet.VoterNode> voters = new HashMap<>();
        for (int node : nodes().keySet()) {
            ReplicaKey key = ReplicaKey.of(node, (Uuid) get(nodes().get(node), "nodeDirectoryId"));
            Endpoints endpoints = Endpoints.fromInetSocketAddresses(Map.of(MockNetworkChannel.LISTENER_NAME,
                InetSocketAddress.createUnresolved("host-node-" + node, 1234)));
            voters.put(node, VoterSet.VoterNode.of(key, endpoints, Feature.KRAFT_VERSION.supportedVersionRange()));
        }
        for (int node : nodes().keySet()) {
            RecordsSnapshotWriter.Builder builder = new RecordsSnapshotWriter.Builder()
                .setRawSnapshotWriter(log(node).createNewSnapshotUnchecked(Snapshots.BOOTSTRAP_SNAPSHOT_ID).get())
                .setKraftVersion(KRaftVersion.KRAFT_VERSION_1)
                .setVoterSet(Optional.of(VoterSet.fromMap(voters)));
            try (RecordsSnapshotWriter<Integer> writer = builder.build(null)) {
                writer.freeze();
            }
        }
    }

    private void restart(int node) {
        call(cluster, "kill", node);
        run(4_000);
        call(cluster, "start", node);
        run(8_000);
    }

    private void heal() throws Exception {
        for (int node : nodes().keySet()) {
            call(router, "filter", node, make("PermitAllTraffic"));
            if (!running().containsKey(node)) call(cluster, "start", node);
        }
    }

    private void run(int durationMs) {
        Time time = (Time) get(cluster, "time");
        long end = time.milliseconds() + durationMs;
        until(() -> time.milliseconds() >= end);
    }

    private void until(Supplier<Boolean> condition) {
        call(scheduler, "runUntil", condition);
    }

    private void schedule(Runnable action, int periodMs) {
        call(scheduler, "schedule", action, 0, periodMs, 3);
    }

    private void noteHighWatermarks() {
        for (Object node : running().values()) announced = Math.max(announced, (long) call(node, "highWatermark"));
    }

    /** What KafkaMetadataLog's cleaner does and MockLog's does not: the log begins at its newest snapshot. */
    private static void clean(MockLog log) {
        log.latestSnapshotId().filter(id -> id.offset() <= log.highWatermark().offset()).ifPresent(log::deleteBeforeSnapshot);
    }

    private void capture() throws Exception {
        noteHighWatermarks();
        Path target = folder.resolve(String.format("%02d", captureCount++));
        for (int node : nodes().keySet()) write(node, target.resolve("node-" + node));
        System.out.println("capture\t" + target + "\t" + announced);
    }

    private void write(int node, Path target) throws Exception {
        Path dir = Files.createDirectories(target.resolve("__cluster_metadata-0"));
        Object directoryId = directoryIds.computeIfAbsent(node, each -> get(nodes().get(node), "nodeDirectoryId"));
        Files.writeString(target.resolve("meta.properties"), String.join("\n", "version=1", "node.id=" + node,
            "cluster.id=" + get(cluster, "clusterId"), "directory.id=" + directoryId, ""));
        ((MockQuorumStateStore) get(nodes().get(node), "store")).readElectionState().ifPresent(state ->
            new FileQuorumStateStore(dir.resolve("quorum-state").toFile()).writeElectionState(state, KRaftVersion.KRAFT_VERSION_0));
        MockLog log = log(node);
        List<RecordBatch> batches = new ArrayList<>();
        for (MockLog.LogBatch batch : log.readBatches(log.startOffset(), OptionalLong.empty())) {
            ByteBuffer buffer = batch.writeTo(ByteBuffer.allocate(1024));
            buffer.flip();
            MemoryRecords.readableRecords(buffer).batches().forEach(batches::add);
        }
        write(batches, dir.resolve(String.format("%020d.log", log.startOffset())));
        Optional<RawSnapshotReader> latest = log.latestSnapshot();
        if (latest.isPresent()) {
            RawSnapshotReader snapshot = latest.get();
            List<RecordBatch> content = new ArrayList<>();
            snapshot.records().batches().forEach(content::add);
            write(content, dir.resolve(String.format("%020d-%010d.checkpoint", snapshot.snapshotId().offset(), snapshot.snapshotId().epoch())));
        }
    }

    private static void write(List<RecordBatch> batches, Path file) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            for (RecordBatch batch : batches) {
                MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), RecordBatch.CURRENT_MAGIC_VALUE,
                    Compression.NONE, TimestampType.CREATE_TIME, batch.baseOffset(), batch.maxTimestamp(),
                    RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false,
                    batch.isControlBatch(), batch.partitionLeaderEpoch());
                for (Record record : batch) {
                    ByteBuffer value = batch.isControlBatch() ? record.value() : metadata(record.value().getInt(0));
                    SimpleRecord same = new SimpleRecord(record.timestamp(), record.key(), value);
                    if (batch.isControlBatch()) builder.appendControlRecordWithOffset(record.offset(), same);
                    else builder.appendWithOffset(record.offset(), same);
                }
                ByteBuffer octets = builder.build().buffer();
                while (octets.hasRemaining()) channel.write(octets);
            }
        }
    }

    private static ByteBuffer metadata(int number) {
        ApiMessage message = new ProducerIdsRecord().setBrokerId(1).setBrokerEpoch(1).setNextProducerId(number);
        ApiMessageAndVersion record = new ApiMessageAndVersion(message, (short) 0);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        buffer.flip();
        return buffer;
    }

    private MockLog log(int node) {
        return (MockLog) get(nodes().get(node), "log");
    }

    @SuppressWarnings("unchecked")
    private TreeMap<Integer, Object> nodes() {
        return new TreeMap<>((Map<Integer, Object>) get(cluster, "nodes"));
    }

    @SuppressWarnings("unchecked")
    private TreeMap<Integer, Object> running() {
        return new TreeMap<>((Map<Integer, Object>) get(cluster, "running"));
    }

    // The simulation's classes are private to the test: they are reached by reflection.

    private static Object make(String name, Object... arguments) throws Exception {
        for (Constructor<?> found : Class.forName(TEST + "$" + name).getDeclaredConstructors()) {
            if (found.getParameterCount() == arguments.length) return opened(found).newInstance(arguments);
        }
        throw new IllegalStateException("no constructor of " + name);
    }

    private static Object get(Object object, String name) {
        try {
            return opened(object.getClass().getDeclaredField(name)).get(object);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Object call(Object object, String name, Object... arguments) {
        try {
            for (Method found : object.getClass().getDeclaredMethods()) {
                if (found.getName().equals(name) && found.getParameterCount() == arguments.length && !found.isSynthetic()) {
                    return opened(found).invoke(object, arguments);
                }
            }
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Error) throw (Error) e.getCause();
            throw new IllegalStateException(name, e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
        throw new IllegalStateException("no method " + name);
    }

    private static <T extends AccessibleObject> T opened(T member) {
        member.setAccessible(true);
        return member;
    }
}
