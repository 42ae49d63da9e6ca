package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.MetadataVersion;

/** Reads partitions and what the controller wants of them, a line each; prints what PartitionChangeBuilder decides. */
public class DecidePartitionChanges {
    static List<Integer> list(String text) {
        List<Integer> found = new ArrayList<>();
        for (String part : text.split(",")) if (!part.isEmpty()) found.add(Integer.parseInt(part));
        return found;
    }

    static int[] array(String text) {
        return list(text).stream().mapToInt(Integer::intValue).toArray();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split("\t", -1);
            int[] replicas = array(f[5]);
            Uuid[] directories = new Uuid[replicas.length];
            Arrays.fill(directories, DirectoryId.UNASSIGNED);
            PartitionRegistration partition = new PartitionRegistration.Builder()
                .setReplicas(replicas).setDirectories(directories).setIsr(array(f[6])).setElr(array(f[7]))
                .setLastKnownElr(array(f[8])).setLeader(Integer.parseInt(f[9]))
                .setLeaderRecoveryState(LeaderRecoveryState.of((byte) Integer.parseInt(f[10])))
                .setRemovingReplicas(array(f[11])).setAddingReplicas(array(f[12]))
                .setLeaderEpoch(7).setPartitionEpoch(9).build();
            Set<Integer> usable = new HashSet<>(list(f[4]));
            try {
                PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, Uuid.ONE_UUID, 0, usable::contains,
                    MetadataVersion.fromFeatureLevel(Short.parseShort(f[0])), Integer.parseInt(f[1]), f[2].equals("1"));
                builder.setElection(PartitionChangeBuilder.Election.valueOf(f[3]))
                    .setTargetIsr(list(f[13])).setTargetReplicas(list(f[14])).setTargetRemoving(list(f[15]))
                    .setTargetAdding(list(f[16])).setUncleanShutdownReplicas(list(f[18]))
                    .setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) Integer.parseInt(f[17])))
                    .setDefaultDirProvider(broker -> DirectoryId.UNASSIGNED);
                System.out.println(builder.build().map(change -> text((PartitionChangeRecord) change.message())).orElse("none"));
            } catch (RuntimeException error) {
                System.out.println("throws " + error);
            }
        }
    }

    static String text(PartitionChangeRecord change) {
        String leader = change.leader() == -2 ? "same" : String.valueOf(change.leader());
        String recovery = change.leaderRecoveryState() == -1 ? "same" : String.valueOf(change.leaderRecoveryState());
        return String.join("\t", leader, recovery, part(change.isr()), part(change.eligibleLeaderReplicas()),
            part(change.lastKnownElr()), part(change.replicas()), part(change.removingReplicas()), part(change.addingReplicas()));
    }

    static String part(List<Integer> values) {
        return values == null ? "same" : values.toString();
    }
}
