import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Serves the drills from one JVM: runs Kafka's command-line tools by their main methods, and asks a cluster by its Admin client.
 *
 * A line of standard input is a request: words in base64 with tabs between them, the first one says what. The answer is a line too:
 * an exit code, a tab, what was printed in base64.
 */
public class ServeDrills {
    private static final Map<String, Sending> SENDING = new HashMap<>();
    private static final ThreadLocal<Integer> FIRST_EXIT = new ThreadLocal<>();

    private static class Exited extends RuntimeException { }

    /** Kafka 4.4 moved its class Exit. */
    private static void catchExits() throws Exception {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException moved) {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object end = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, given) -> {
            if (FIRST_EXIT.get() == null) FIRST_EXIT.set((Integer) given[0]);
            throw new Exited();
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, end);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, end);
    }

    public static void main(String[] args) throws Exception {
        PrintStream results = System.out;
        catchExits();
        PrintStream errors = System.err;
        // One stream for all requests: Scala's Console keeps the one that it met first (DumpLogSegments before 4.2).
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            List<String> words = new ArrayList<>();
            for (String word : line.split("\t", -1)) words.add(new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8));
            printed.reset();
            System.setOut(out);
            System.setErr(out);
            FIRST_EXIT.remove();
            int code = 0;
            try {
                answer(words.get(0), words.subList(1, words.size()));
            } catch (Throwable failure) {
                Throwable cause = failure;
                while (cause instanceof InvocationTargetException) cause = cause.getCause();
                if (!(cause instanceof Exited)) {
                    cause.printStackTrace(out);
                    code = 99;
                }
            }
            System.setOut(errors);
            System.setErr(errors);
            out.flush();
            if (FIRST_EXIT.get() != null) code = FIRST_EXIT.get();
            results.println(code + "\t" + Base64.getEncoder().encodeToString(printed.toByteArray()));
            results.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(String what, List<String> words) throws Exception {
        switch (what) {
            case "tool": tool(words.get(0), words.subList(1, words.size())); break;
            case "state": state(words.get(0)); break;
            case "topics": try (Admin admin = admin("bootstrap.servers", words.get(0))) { topics(admin); } break;
            case "quorum": quorum(words); break;
            case "send": send(words.get(0), words.get(1), words.get(2), Integer.parseInt(words.get(3))); break;
            case "begin": SENDING.put(words.get(0), new Sending(words.get(0), words.get(1), words.get(2))); break;
            case "end": SENDING.remove(words.get(0)).end(); break;
            case "read": read(words.get(0), words.get(1)); break;
            case "ends": ends(words.get(0)); break;
            case "commit": commit(words.get(0), words.get(1), words.get(2), Long.parseLong(words.get(3))); break;
            case "committed": committed(words.get(0), words.get(1)); break;
            case "transact": transact(words.get(0), words.get(1), words.get(2), words.get(3), Integer.parseInt(words.get(4))); break;
            case "reassign": reassign(words.get(0), words.get(1), words.get(2)); break;
            default: throw new IllegalArgumentException(what);
        }
    }

    /** Classes between commas are the places where releases have the tool. */
    private static void tool(String classes, List<String> arguments) throws Exception {
        Class<?> found = null;
        for (String name : classes.split(",")) {
            try {
                if (found == null) found = Class.forName(name);
            } catch (ClassNotFoundException e) { }
        }
        found.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
    }

    private static Admin admin(String key, String servers) {
        Properties settings = client(key, servers);
        settings.put("default.api.timeout.ms", "8000");
        return Admin.create(settings);
    }

    private static Properties client(String key, String servers) {
        Properties settings = new Properties();
        settings.put(key, servers);
        settings.put("request.timeout.ms", "3000");
        settings.put("retry.backoff.ms", "50");
        settings.put("reconnect.backoff.ms", "50");
        settings.put("reconnect.backoff.max.ms", "200");
        return settings;
    }

    private static void line(Object... parts) {
        System.out.println(Arrays.stream(parts).map(String::valueOf).collect(Collectors.joining("\t")));
    }

    private static void topics(Admin admin) throws Exception {
        Collection<String> names = new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values())
            for (TopicPartitionInfo partition : topic.partitions())
                line("partition", topic.name(), topic.topicId(), partition.partition(), ids(partition.replicas()), ids(partition.isr()),
                    partition.leader() == null ? -1 : partition.leader().id());
    }

    private static void state(String servers) throws Exception {
        try (Admin admin = admin("bootstrap.servers", servers)) {
            topics(admin);
            List<ConfigResource> resources = new ArrayList<>();
            for (String name : admin.listTopics().names().get()) resources.add(new ConfigResource(ConfigResource.Type.TOPIC, name));
            for (Node node : admin.describeCluster().nodes().get()) {
                line("broker", node.id());
                resources.add(new ConfigResource(ConfigResource.Type.BROKER, node.idString()));
            }
            resources.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
            for (Map.Entry<ConfigResource, Config> found : admin.describeConfigs(resources).all().get().entrySet())
                for (ConfigEntry entry : found.getValue().entries()) {
                    boolean isDefault = found.getKey().name().isEmpty();
                    boolean isOwn = entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG
                        || entry.source() == ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG
                        || isDefault && entry.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
                    if (isOwn) line("config", found.getKey().type(), found.getKey().name(), entry.name(), entry.value());
                }
            admin.describeAcls(AclBindingFilter.ANY).values().get().forEach(acl -> line("acl", acl));
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((who, what) -> line("quota", who, what));
            admin.describeUserScramCredentials().all().get().forEach((user, found) -> line("credential", user, found.credentialInfos()));
            admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach((name, level) ->
                line("feature", name, level.maxVersionLevel()));
        }
    }

    private static String ids(List<Node> nodes) {
        return nodes.stream().map(Node::idString).collect(Collectors.joining(","));
    }

    /** Words: the controllers, and a file with a login where they want one. */
    private static void quorum(List<String> words) throws Exception {
        Properties settings = client("bootstrap.controllers", words.get(0));
        settings.put("default.api.timeout.ms", "8000");
        if (words.size() > 1) try (FileReader login = new FileReader(words.get(1))) { settings.load(login); }
        try (Admin admin = Admin.create(settings)) {
            QuorumInfo found = admin.describeMetadataQuorum().quorumInfo().get();
            line("leader", found.leaderId(), found.leaderEpoch(), found.highWatermark());
            for (QuorumInfo.ReplicaState voter : found.voters()) line("voter", voter.replicaId(), voter.logEndOffset());
            for (QuorumInfo.ReplicaState observer : found.observers()) line("observer", observer.replicaId(), observer.logEndOffset());
        }
    }

    private static KafkaProducer<String, String> producer(String servers) {
        Properties settings = client("bootstrap.servers", servers);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", "120000");
        settings.put("max.block.ms", "60000");
        settings.put("metadata.max.age.ms", "2000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** Gives partition 0 of a topic other replicas; the tool of Kafka's refuses brokers that are down. */
    private static void reassign(String servers, String topic, String replicas) throws Exception {
        List<Integer> ids = Arrays.stream(replicas.split(",")).map(Integer::valueOf).collect(Collectors.toList());
        try (Admin admin = admin("bootstrap.servers", servers)) {
            admin.alterPartitionReassignments(Map.of(new TopicPartition(topic, 0), Optional.of(new NewPartitionReassignment(ids)))).all().get();
        }
    }

    /** Prints what was acknowledged, with partition, offset, timestamp and key: all of it, or the call fails. */
    private static void send(String servers, String topic, String prefix, int count) throws Exception {
        try (KafkaProducer<String, String> producer = producer(servers)) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) sent.add(producer.send(new ProducerRecord<>(topic, "k" + number, prefix + number)));
            for (int number = 0; number < count; number++) {
                RecordMetadata found = sent.get(number).get();
                line(prefix + number, found.partition(), found.offset(), found.timestamp(), "k" + number);
            }
        }
    }

    /** Where the log of each partition with a leader ends. */
    private static void ends(String servers) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        try (Admin admin = admin("bootstrap.servers", servers)) {
            for (TopicDescription topic : admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get().values())
                for (TopicPartitionInfo partition : topic.partitions())
                    if (partition.leader() != null) asked.put(new TopicPartition(topic.name(), partition.partition()), OffsetSpec.latest());
            admin.listOffsets(asked).all().get().forEach((place, found) -> line(place.topic(), place.partition(), found.offset()));
        }
    }

    /** A group commits an offset of each partition of a topic, in a topic of Kafka's that the first commit brings about. */
    private static void commit(String servers, String group, String topic, long offset) throws Exception {
        Properties settings = client("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("default.api.timeout.ms", "30000");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.commitSync(consumer.partitionsFor(topic).stream().collect(
                Collectors.toMap(found -> new TopicPartition(topic, found.partition()), found -> new OffsetAndMetadata(offset))));
        }
    }

    private static void committed(String servers, String group) throws Exception {
        try (Admin admin = admin("bootstrap.servers", servers)) {
            if (!admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains("__consumer_offsets")) return;
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .forEach((place, found) -> line(place.topic(), place.partition(), found.offset()));
        }
    }

    /** Prints what a committed transaction sent. */
    private static void transact(String servers, String id, String topic, String prefix, int count) throws Exception {
        Properties settings = client("bootstrap.servers", servers);
        settings.put("transactional.id", id);
        settings.put("max.block.ms", "60000");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int number = 0; number < count; number++) producer.send(new ProducerRecord<>(topic, "k" + number, prefix + number));
            producer.commitTransaction();
        }
        for (int number = 0; number < count; number++) line(prefix + number);
    }

    private static void read(String servers, String topic) throws Exception {
        Properties settings = client("bootstrap.servers", servers);
        settings.put("enable.auto.commit", "false");
        settings.put("default.api.timeout.ms", "20000");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(found -> partitions.add(new TopicPartition(topic, found.partition())));
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.currentTimeMillis() + 20_000;
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                if (System.currentTimeMillis() > deadline) throw new IllegalStateException("not all could be read: " + ends);
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) line(record.value());
            }
        }
    }

    /** A producer that goes on sending in the background, whatever happens to the cluster. */
    private static class Sending extends Thread {
        private final ConcurrentLinkedQueue<String> acknowledged = new ConcurrentLinkedQueue<>();
        private final String prefix, servers, topic;
        private volatile boolean goesOn = true;

        Sending(String prefix, String servers, String topic) {
            this.prefix = prefix;
            this.servers = servers;
            this.topic = topic;
            setDaemon(true);
            start();
        }

        public void run() {
            try (KafkaProducer<String, String> producer = producer(servers)) {
                for (int number = 0; goesOn; number++) {
                    String value = prefix + number;
                    producer.send(new ProducerRecord<>(topic, value, value), (found, failure) -> {
                        if (failure == null) acknowledged.add(System.currentTimeMillis() + "\t" + value);
                    });
                    Thread.sleep(100);
                }
            } catch (Exception e) {
                e.printStackTrace();
            }
        }

        void end() throws Exception {
            goesOn = false;
            join(130_000);
            acknowledged.forEach(System.out::println);
        }
    }
}
