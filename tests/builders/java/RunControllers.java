package org.apache.kafka.controller;

import java.io.File;
import java.io.FileOutputStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.NotControllerException;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignablePartition;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData.ReassignableTopic;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData.Listener;
import org.apache.kafka.common.message.BrokerRegistrationRequestData.ListenerCollection;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.EndTransactionRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.raft.ElectionState;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Lets QuorumControllerTestEnv's controllers answer random requests, and writes their records as log dirs.
 *
 * Arguments: a folder, seeds. The node dirs stand in FOLDER/SEED/node-N. Prints, a tab between the columns: `partition`, seed,
 * offset, and the partition as Kafka's MetadataImage has it after that record; `broker`, seed, and the broker as it is at the end.
 */
public class RunControllers {
    private static final long FIRST_MS = 1_760_000_000_000L;
    private static final int BROKERS = 5;
    private static final int CONTROLLERS = 3;
    private static final int OPERATIONS = 160;
    private static final MetadataVersion[] LEVELS = {
        MetadataVersion.IBP_3_9_IV0, MetadataVersion.IBP_4_0_IV3, MetadataVersion.IBP_4_1_IV1, MetadataVersion.LATEST_PRODUCTION};

    private final int seed;
    private final Random random;
    private final Path folder;
    private final StringBuilder rows = new StringBuilder();
    private QuorumController controller;
    private MetadataImage image = MetadataImage.EMPTY;
    private int topicCount = 0;

    private RunControllers(int seed, Path folder) {
        this.seed = seed;
        this.random = new Random(seed);
        this.folder = folder;
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 1; i < arguments.length; i++) {
            new RunControllers(Integer.parseInt(arguments[i]), Path.of(arguments[0], arguments[i])).play();
        }
        System.exit(0);
    }

    private void play() throws Exception {
        MetadataVersion level = LEVELS[Math.floorMod(seed, LEVELS.length)];
        try (MockRaftClientTestEnv raft = new MockRaftClientTestEnv.Builder(CONTROLLERS).build();
             QuorumControllerTestEnv env = new QuorumControllerTestEnv.Builder(raft)
                 .setSessionTimeoutMillis(OptionalLong.of(3_600_000))
                 .setBootstrapMetadata(BootstrapMetadata.fromVersion(level, "random run")).build()) {
            controller = env.activeController(true);
            for (int broker = 0; broker < BROKERS; broker++) register(broker, false);
            for (int broker = 0; broker < BROKERS; broker++) heartbeat(broker, false, false);
            for (int operation = 0; operation < OPERATIONS; operation++) {
                try {
                    step();
                    if (random.nextInt(40) == 0) resign();
                } catch (NotControllerException e) {
                    // It resigned, or met an error of its own and renounced.
                    controller = env.activeController(true);
                }
            }
            controller = env.activeController(true);
            write(raft);
            check();
        }
    }

    private void step() throws Exception {
        int broker = random.nextInt(BROKERS);
        switch (random.nextInt(14)) {
            case 0: case 1: createTopic(); break;
            case 2: if (random.nextInt(4) == 0) deleteTopic(); break;
            case 3: register(broker, random.nextBoolean()); heartbeat(broker, false, false); break;
            case 4: heartbeat(broker, true, false); break;
            case 5: heartbeat(broker, false, true); break;
            case 6: heartbeat(broker, false, false); break;
            case 7: reassign(); break;
            case 8: elect(); break;
            case 9: configure(); break;
            case 10: moveToDirectory(broker); break;
            case 11: if (random.nextInt(6) == 0) await(controller.unregisterBroker(context(ApiKeys.UNREGISTER_BROKER), broker)); break;
            default: changeIsr(); break;
        }
    }

    private void resign() throws InterruptedException {
        QuorumController leader = controller;
        await(leader.appendReadEvent("resign", OptionalLong.empty(), () -> {
            if (leader.curClaimEpoch() >= 0) leader.renounce();
            return null;
        }));
    }

    private static ControllerRequestContext context(ApiKeys key) {
        return ControllerRequestContextUtil.anonymousContextFor(key);
    }

    /** A refused request is as good as another: what was written is what is compared. */
    private static void await(CompletableFuture<?> answer) throws InterruptedException {
        try {
            answer.get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof NotControllerException) throw (NotControllerException) e.getCause();
            if (e.getCause() instanceof Error) throw (Error) e.getCause();
        }
    }

    private Map<Integer, BrokerRegistration> brokers() {
        return controller.clusterControl().brokerRegistrations();
    }

    private Uuid directory(int broker, int number) {
        return new Uuid(1000L + broker, 1000L + number);
    }

    private void register(int broker, boolean isClean) throws InterruptedException {
        BrokerRegistration known = brokers().get(broker);
        ListenerCollection listeners = new ListenerCollection();
        listeners.add(new Listener().setName("PLAINTEXT").setHost("localhost").setPort(9092 + broker));
        await(controller.registerBroker(context(ApiKeys.BROKER_REGISTRATION), new BrokerRegistrationRequestData()
            .setBrokerId(broker).setClusterId(controller.clusterId()).setRack("r" + broker % 2)
            .setFeatures(QuorumControllerIntegrationTestUtils.brokerFeaturesPlusFeatureVersions(MetadataVersion.MINIMUM_VERSION,
                MetadataVersion.latestTesting(),
                Map.of(EligibleLeaderReplicasVersion.FEATURE_NAME, EligibleLeaderReplicasVersion.ELRV_1.featureLevel())))
            .setIncarnationId(new Uuid(random.nextLong(), 1)).setLogDirs(List.of(directory(broker, 0), directory(broker, 1)))
            .setPreviousBrokerEpoch(known == null || !isClean ? -1 : known.epoch()).setListeners(listeners)));
    }

    private void heartbeat(int broker, boolean wantFence, boolean wantShutDown) throws InterruptedException {
        BrokerRegistration known = brokers().get(broker);
        if (known == null) return;
        BrokerHeartbeatRequestData request = new BrokerHeartbeatRequestData().setBrokerId(broker).setBrokerEpoch(known.epoch())
            .setCurrentMetadataOffset(1_000_000).setWantFence(wantFence).setWantShutDown(wantShutDown);
        if (random.nextInt(8) == 0) request.setOfflineLogDirs(List.of(directory(broker, random.nextInt(2))));
        await(controller.processBrokerHeartbeat(context(ApiKeys.BROKER_HEARTBEAT), request));
    }

    private void createTopic() throws InterruptedException {
        CreatableTopic topic = new CreatableTopic().setName("topic-" + topicCount++).setNumPartitions(1 + random.nextInt(3))
            .setReplicationFactor((short) (1 + random.nextInt(4)));
        if (random.nextBoolean()) config(topic, "min.insync.replicas", "2");
        await(controller.createTopics(context(ApiKeys.CREATE_TOPICS), new CreateTopicsRequestData()
            .setTopics(new CreateTopicsRequestData.CreatableTopicCollection(List.of(topic).iterator())), Set.of(), false));
    }

    private static void config(CreatableTopic topic, String name, String value) {
        topic.configs().add(new CreateTopicsRequestData.CreatableTopicConfig().setName(name).setValue(value));
    }

    private Optional<PartitionRef> anyPartition() {
        List<PartitionRef> found = new ArrayList<>();
        for (int number = 0; number < topicCount; number++) {
            Uuid id = controller.replicationControl().getTopicId("topic-" + number);
            if (id == null) continue;
            for (int partition = 0; partition < 6; partition++) {
                PartitionRegistration state = controller.replicationControl().getPartition(id, partition);
                if (state != null) found.add(new PartitionRef("topic-" + number, id, partition, state));
            }
        }
        return found.isEmpty() ? Optional.empty() : Optional.of(found.get(random.nextInt(found.size())));
    }

    private record PartitionRef(String topic, Uuid id, int number, PartitionRegistration state) { }

    private void deleteTopic() throws InterruptedException {
        Optional<PartitionRef> found = anyPartition();
        if (found.isEmpty()) return;
        await(controller.deleteTopics(context(ApiKeys.DELETE_TOPICS), List.of(found.get().id)));
    }

    /** What a leader asks for: its ISR without a member, or with a replica that caught up. */
    private void changeIsr() throws InterruptedException {
        Optional<PartitionRef> found = anyPartition();
        if (found.isEmpty() || found.get().state.leader < 0) return;
        PartitionRegistration state = found.get().state;
        TreeSet<Integer> isr = new TreeSet<>();
        for (int member : state.isr) isr.add(member);
        int replica = state.replicas[random.nextInt(state.replicas.length)];
        if (replica != state.leader && !isr.remove(replica)) isr.add(replica);
        if (random.nextBoolean()) for (int each : state.replicas) if (brokers().containsKey(each) && !brokers().get(each).fenced()) isr.add(each);
        List<AlterPartitionRequestData.BrokerState> members = new ArrayList<>();
        for (int member : isr) {
            if (brokers().containsKey(member))
                members.add(new AlterPartitionRequestData.BrokerState().setBrokerId(member).setBrokerEpoch(brokers().get(member).epoch()));
        }
        await(controller.alterPartition(context(ApiKeys.ALTER_PARTITION), new AlterPartitionRequestData().setBrokerId(state.leader)
            .setBrokerEpoch(brokers().get(state.leader).epoch()).setTopics(List.of(new AlterPartitionRequestData.TopicData()
                .setTopicId(found.get().id).setPartitions(List.of(new AlterPartitionRequestData.PartitionData()
                    .setPartitionIndex(found.get().number).setPartitionEpoch(state.partitionEpoch).setLeaderEpoch(state.leaderEpoch)
                    .setNewIsrWithEpochs(members)))))));
    }

    private void reassign() throws InterruptedException {
        Optional<PartitionRef> found = anyPartition();
        if (found.isEmpty()) return;
        List<Integer> target = new ArrayList<>(IntStream.range(0, BROKERS).boxed().toList());
        java.util.Collections.shuffle(target, random);
        ReassignablePartition wanted = new ReassignablePartition().setPartitionIndex(found.get().number)
            .setReplicas(random.nextInt(4) == 0 ? null : target.subList(0, 1 + random.nextInt(4)));
        await(controller.alterPartitionReassignments(context(ApiKeys.ALTER_PARTITION_REASSIGNMENTS),
            new AlterPartitionReassignmentsRequestData().setTopics(List.of(
                new ReassignableTopic().setName(found.get().topic).setPartitions(List.of(wanted))))));
    }

    private void elect() throws InterruptedException {
        ElectLeadersRequestData request = new ElectLeadersRequestData().setElectionType((byte) random.nextInt(2));
        request.setTopicPartitions(null);
        await(controller.electLeaders(context(ApiKeys.ELECT_LEADERS), request));
    }

    private void configure() throws InterruptedException {
        Optional<PartitionRef> found = anyPartition();
        if (found.isEmpty()) return;
        ConfigResource resource = random.nextInt(3) == 0 ? new ConfigResource(ConfigResource.Type.BROKER, "")
            : new ConfigResource(ConfigResource.Type.TOPIC, found.get().topic);
        await(controller.incrementalAlterConfigs(context(ApiKeys.INCREMENTAL_ALTER_CONFIGS), Map.of(resource,
            Map.of("min.insync.replicas", Map.entry(AlterConfigOp.OpType.SET, "" + (1 + random.nextInt(3))))), false, false));
        if (random.nextInt(3) == 0) {
            await(controller.createPartitions(context(ApiKeys.CREATE_PARTITIONS), List.of(new CreatePartitionsTopic()
                .setName(found.get().topic).setAssignments(null).setCount(2 + random.nextInt(4))), false));
        }
    }

    private void moveToDirectory(int broker) throws InterruptedException {
        Optional<PartitionRef> found = anyPartition();
        if (found.isEmpty() || !brokers().containsKey(broker)) return;
        await(controller.assignReplicasToDirs(context(ApiKeys.ASSIGN_REPLICAS_TO_DIRS), new AssignReplicasToDirsRequestData()
            .setBrokerId(broker).setBrokerEpoch(brokers().get(broker).epoch()).setDirectories(List.of(
                new AssignReplicasToDirsRequestData.DirectoryData().setId(directory(broker, random.nextInt(2))).setTopics(List.of(
                    new AssignReplicasToDirsRequestData.TopicData().setTopicId(found.get().id).setPartitions(List.of(
                        new AssignReplicasToDirsRequestData.PartitionData().setPartitionIndex(found.get().number)))))))));
    }

    private void write(MockRaftClientTestEnv raft) throws Exception {
        NavigableMap<Long, Object> batches = new TreeMap<>(RunControllers.<Map<Long, Object>>get(get(raft, "shared"), "batches"));
        Set<Integer> voters = new TreeSet<>(IntStream.range(0, CONTROLLERS).boxed().toList());
        LeaderAndEpoch leader = null;
        for (int node : voters) {
            Path dir = Files.createDirectories(folder.resolve("node-" + node).resolve("__cluster_metadata-0"));
            Files.writeString(dir.resolveSibling("meta.properties"), String.join("\n", "version=1", "node.id=" + node,
                "cluster.id=" + raft.clusterId(), "directory.id=" + new Uuid(7, 7 + node), ""));
            try (FileOutputStream log = new FileOutputStream(dir.resolve("00000000000000000000.log").toFile())) {
                for (Map.Entry<Long, Object> entry : batches.entrySet()) {
                    if (entry.getValue() instanceof MockRaftClient.LeaderChangeBatch) {
                        leader = leaderFrom(batches, entry.getKey());
                        log.write(octets(leaderChange(entry.getKey(), leader, voters)));
                    } else {
                        log.write(octets(data(entry.getKey(), entry.getValue(), node == 0)));
                    }
                }
            }
            new FileQuorumStateStore(new File(dir.toFile(), "quorum-state")).writeElectionState(ElectionState.withElectedLeader(
                leader.epoch(), leader.leaderId().getAsInt(), Optional.empty(), voters), KRaftVersion.KRAFT_VERSION_0);
        }
        System.out.print(rows);
    }

    /** An epoch without a leader, which the mock writes down and Kafka does not, gets the leader of the next one. */
    private static LeaderAndEpoch leaderFrom(NavigableMap<Long, Object> batches, long offset) throws Exception {
        int epoch = ((MockRaftClient.LocalBatch) batches.get(offset)).epoch();
        for (Object batch : batches.tailMap(offset, true).values()) {
            if (batch instanceof MockRaftClient.LeaderChangeBatch) {
                OptionalInt id = RunControllers.<LeaderAndEpoch>get(batch, "newLeader").leaderId();
                if (id.isPresent()) return new LeaderAndEpoch(id, epoch);
            }
        }
        throw new IllegalStateException("the run ends without a leader");
    }

    private static MemoryRecords leaderChange(long offset, LeaderAndEpoch leader, Set<Integer> voters) {
        List<LeaderChangeMessage.Voter> all = voters.stream().map(id -> new LeaderChangeMessage.Voter().setVoterId(id)).toList();
        LeaderChangeMessage message = new LeaderChangeMessage().setVersion((short) 0).setLeaderId(leader.leaderId().getAsInt())
            .setVoters(all).setGrantingVoters(all);
        return MemoryRecords.withLeaderChangeMessage(offset, FIRST_MS + offset * 10, leader.epoch(), ByteBuffer.allocate(512), message);
    }

    private MemoryRecords data(long lastOffset, Object batch, boolean isNoted) throws Exception {
        List<ApiMessageAndVersion> records = get(batch, "records");
        long offset = lastOffset - records.size() + 1;
        long appendMs = FIRST_MS + RunControllers.<Long>get(batch, "appendTimestamp");
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), RecordBatch.CURRENT_MAGIC_VALUE,
            Compression.NONE, TimestampType.CREATE_TIME, offset, appendMs, RecordBatch.NO_PRODUCER_ID,
            RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, ((MockRaftClient.LocalBatch) batch).epoch());
        for (ApiMessageAndVersion record : records) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer value = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(value));
            value.flip();
            builder.appendWithOffset(offset, new SimpleRecord(appendMs, null, value));
            if (isNoted) note(offset, record.message());
            offset++;
        }
        return builder.build();
    }

    /** Applies a record to Kafka's image, and prints the partitions that it changes. */
    private void note(long offset, ApiMessage record) {
        // Only the bootstrap records stand in a transaction, and it always ends.
        if (record instanceof BeginTransactionRecord || record instanceof EndTransactionRecord) return;
        MetadataImage before = image;
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        delta.replay(record);
        image = delta.apply(new MetadataProvenance(offset, 0, 0, true));
        boolean isPartition = record instanceof PartitionRecord || record instanceof PartitionChangeRecord;
        if (!isPartition && !(record instanceof ClearElrRecord)) return;
        for (TopicImage topic : image.topics().topicsByName().values()) {
            topic.partitions().forEach((number, state) -> {
                TopicImage old = before.topics().getTopic(topic.id());
                if (old == null || !state.equals(old.partitions().get(number))) row(offset, topic.name(), number, state);
            });
        }
    }

    private void row(long offset, String topic, int number, PartitionRegistration state) {
        rows.append(String.join("\t", "partition", "" + seed, "" + offset, topic, "" + number, Arrays.toString(state.replicas),
            Arrays.toString(state.isr), Arrays.toString(state.elr), Arrays.toString(state.lastKnownElr),
            Arrays.toString(state.addingReplicas), Arrays.toString(state.removingReplicas), "" + state.leader,
            "" + state.leaderEpoch, "" + state.partitionEpoch, state.leaderRecoveryState.name(),
            Arrays.toString(state.directories))).append("\n");
    }

    /** The image of the records is what the controller itself holds in memory. */
    private void check() {
        image.topics().topicsByName().forEach((name, topic) -> topic.partitions().forEach((number, state) -> {
            if (!state.equals(controller.replicationControl().getPartition(topic.id(), number)))
                throw new AssertionError(name + "-" + number + ": the controller holds another state");
        }));
        StringBuilder text = new StringBuilder();
        new TreeMap<>(image.cluster().brokers()).forEach((id, broker) -> text.append(String.join("\t", "broker", "" + seed, "" + id,
            "" + broker.epoch(), "" + broker.incarnationId(), "" + broker.fenced(), "" + broker.inControlledShutdown())).append("\n"));
        System.out.print(text);
    }

    private static byte[] octets(MemoryRecords records) {
        byte[] octets = new byte[records.sizeInBytes()];
        records.buffer().get(octets);
        return octets;
    }

    @SuppressWarnings("unchecked")
    private static <T> T get(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return (T) field.get(object);
    }
}
