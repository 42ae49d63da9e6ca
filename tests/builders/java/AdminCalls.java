import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/**
 * Makes admin calls as several users in one JVM. Its argument is the broker's address; users log in by SASL/PLAIN, each with
 * the password NAME-secret.
 *
 * Lines of standard input: a user, a verb and its arguments, with tabs between them; calls between two empty lines run at the
 * same time. Prints, in order, a line for each: milliseconds since 1970 before and after it, and ok or the class of its error.
 */
public class AdminCalls {
    private static final Map<String, Admin> CLIENTS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        String input = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        String[] lines = input.split("\n", -1);
        for (String line : lines) {
            String user = line.split("\t", 2)[0];
            if (!user.isEmpty() && !CLIENTS.containsKey(user)) CLIENTS.put(user, client(args[0], user));
        }
        for (Admin each : CLIENTS.values()) each.describeCluster().nodes().get();
        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<String>> running = new ArrayList<>();
        StringBuilder results = new StringBuilder();
        for (String line : lines) {
            if (!line.isEmpty()) {
                running.add(pool.submit(() -> run(line.split("\t", -1))));
                continue;
            }
            for (Future<String> call : running) results.append(call.get()).append('\n');
            running.clear();
        }
        System.out.print(results);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Admin client(String server, String user) {
        String login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"" + user + "\" password=\"" + user
            + "-secret\";";
        return Admin.create(Map.of(
            "bootstrap.servers", server, "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.jaas.config", login,
            "client.id", "tool-of-" + user));
    }

    private static String run(String[] words) throws Exception {
        long before = System.currentTimeMillis();
        String outcome = "ok";
        try {
            call(CLIENTS.get(words[0]), words[1], words).get();
        } catch (ExecutionException e) {
            outcome = e.getCause().getClass().getSimpleName();
        }
        return before + "\t" + System.currentTimeMillis() + "\t" + outcome;
    }

    private static KafkaFuture<?> call(Admin admin, String verb, String[] words) {
        switch (verb) {
            case "create-topic":
                return admin.createTopics(List.of(new NewTopic(words[2], Optional.of(1), Optional.empty()))).all();
            case "delete-topic":
                return admin.deleteTopics(List.of(words[2])).all();
            case "add-partitions":
                return admin.createPartitions(Map.of(words[2], NewPartitions.increaseTo(Integer.parseInt(words[3])))).all();
            case "set-config":
                return configs(admin, words[2], words[3], new AlterConfigOp(new ConfigEntry(words[4], words[5]), AlterConfigOp.OpType.SET));
            case "delete-config":
                return configs(admin, words[2], words[3], new AlterConfigOp(new ConfigEntry(words[4], ""), AlterConfigOp.OpType.DELETE));
            case "create-acl":
                return admin.createAcls(List.of(acl(words))).all();
            case "delete-acl":
                return admin.deleteAcls(List.of(acl(words).toFilter())).all();
            case "set-quota":
                return admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", words[2])),
                    List.of(new ClientQuotaAlteration.Op("producer_byte_rate", Double.valueOf(words[3])))))).all();
            case "set-scram":
                return admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(words[2],
                    new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), words[3]))).all();
            case "reassign":
                return admin.alterPartitionReassignments(Map.of(new TopicPartition(words[2], 0),
                    Optional.of(new NewPartitionReassignment(List.of(Integer.parseInt(words[3])))))).all();
            case "describe":
                return admin.describeTopics(Set.of(words[2])).allTopicNames();
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private static KafkaFuture<Void> configs(Admin admin, String type, String name, AlterConfigOp change) {
        Collection<AlterConfigOp> changes = List.of(change);
        return admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.valueOf(type), name), changes)).all();
    }

    /** principal, resource type, pattern, name, operation. */
    private static AclBinding acl(String[] words) {
        ResourcePattern pattern = new ResourcePattern(ResourceType.valueOf(words[3]), words[5], PatternType.valueOf(words[4]));
        return new AclBinding(pattern, new AccessControlEntry(words[2], "*", AclOperation.valueOf(words[6]), AclPermissionType.ALLOW));
    }
}
