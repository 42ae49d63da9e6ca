package org.apache.kafka.controller;

import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.metadata.RegisterControllerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.VersionRange;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * What the active controller answers to kafka-features, for a log dir: its records are replayed into Kafka's own managers. Each line
 * names a log dir, the id of the active controller, the static voters (1,2,3; empty for a dynamic quorum), and what is asked, a tab
 * between: `release` and a version, which is `upgrade --release-version` as FeatureCommand makes it; `upgrade` or `downgrade` and
 * levels (a=1,b=2); `unregister` and the id of a controller. Prints NONE, or why it is refused. `levels` prints what this release
 * knows of every metadata.version. The active controller supports what its registration says, and what this release does where it has
 * none.
 */
public class DecideFeatureUpdates {
    private final List<ApiMessage> records = new ArrayList<>();
    private KRaftVersion kraftVersion = KRaftVersion.KRAFT_VERSION_0;

    public static void main(String[] arguments) throws Exception {
        for (String line : new String(System.in.readAllBytes()).split("\n")) {
            String[] f = line.split("\t", -1);
            try {
                System.out.println(f[3].equals("levels") ? levels()
                    : new DecideFeatureUpdates(new File(f[0])).answer(Integer.parseInt(f[1]), f[2], f[3], f[4]));
            } catch (Exception error) {
                Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                System.out.println(cause.toString().replace('\n', ' '));
            }
        }
    }

    private DecideFeatureUpdates(File dir) throws Exception {
        File[] files = dir.listFiles((folder, name) -> name.matches("\\d{20}(\\.log|-\\d{10}\\.checkpoint)"));
        Arrays.sort(files);
        File snapshot = null;
        for (File file : files) if (file.getName().endsWith(".checkpoint")) snapshot = file;
        long from = snapshot == null ? 0 : Long.parseLong(snapshot.getName().substring(0, 20));
        if (snapshot != null) scan(snapshot, 0);
        for (File file : files) if (file.getName().endsWith(".log")) scan(file, from);
    }

    private void scan(File file, long from) throws Exception {
        try (FileRecords opened = FileRecords.open(file, false)) {
            for (FileLogInputStream.FileChannelRecordBatch batch : opened.batches()) {
                for (Record record : batch) {
                    if (record.offset() < from) continue;
                    if (!batch.isControlBatch()) {
                        ByteBufferAccessor value = new ByteBufferAccessor(record.value());
                        records.add(MetadataRecordSerde.INSTANCE.read(value, record.valueSize()).message());
                    } else if (ControlRecordType.parse(record.key()) == ControlRecordType.KRAFT_VERSION) {
                        KRaftVersionRecord version = ControlRecordUtils.deserializeKRaftVersionRecord(record);
                        kraftVersion = KRaftVersion.fromFeatureLevel(version.kRaftVersion());
                    }
                }
            }
        }
    }

    private String answer(int leader, String voters, String asked, String what) throws Exception {
        List<Integer> quorum = new ArrayList<>();
        for (String voter : voters.split(",")) if (!voter.isEmpty()) quorum.add(Integer.parseInt(voter));
        ClusterControlManager[] cluster = new ClusterControlManager[1];
        FeatureControlManager features = new FeatureControlManager.Builder()
            .setQuorumFeatures(new QuorumFeatures(leader, supportedBy(leader), quorum))
            .setKRaftVersionAccessor(new KRaftVersionAccessor() {
                public KRaftVersion kraftVersion() {
                    return kraftVersion;
                }

                public void upgradeKRaftVersion(int epoch, KRaftVersion version, boolean validateOnly) { }
            })
            .setClusterFeatureSupportDescriber(new ClusterFeatureSupportDescriber() {
                public Iterator<Map.Entry<Integer, Map<String, VersionRange>>> brokerSupported() {
                    return cluster[0].brokerSupportedFeatures();
                }

                public Iterator<Map.Entry<Integer, Map<String, VersionRange>>> controllerSupported() {
                    return cluster[0].controllerSupportedFeatures();
                }
            }).build();
        cluster[0] = new ClusterControlManager.Builder().setFeatureControlManager(features)
            .setBrokerShutdownHandler((broker, isClean, changes) -> { }).build();
        for (int offset = 0; offset < records.size(); offset++) {
            replay(features, records.get(offset), offset);
            replay(cluster[0], records.get(offset), offset);
        }
        if (asked.equals("unregister")) {
            Method unregister = ClusterControlManager.class.getDeclaredMethod("unregisterController", int.class);
            unregister.invoke(cluster[0], Integer.parseInt(what));
            return "NONE";
        }
        UpgradeType type = asked.equals("downgrade") ? UpgradeType.SAFE_DOWNGRADE : UpgradeType.UPGRADE;
        Map<String, Short> updates = asked.equals("release") ? ofRelease(what) : new HashMap<>();
        if (!asked.equals("release")) {
            for (String update : what.split(",")) {
                updates.put(update.split("=")[0], Short.parseShort(update.split("=")[1]));
            }
        }
        Map<String, UpgradeType> types = new HashMap<>();
        for (String name : updates.keySet()) types.put(name, type);
        ApiError error = features.updateFeatures(updates, types, true, 1).response();
        return error.isSuccess() ? "NONE" : error.error() + " " + error.message();
    }

    /** As FeatureCommand.handleUpgradeOrDowngrade of `upgrade --release-version`. */
    private static Map<String, Short> ofRelease(String version) {
        MetadataVersion release = MetadataVersion.fromVersionString(version, true);
        Map<String, Short> updates = new HashMap<>(Map.of(MetadataVersion.FEATURE_NAME, release.featureLevel()));
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            short level = feature.defaultLevel(release);
            if (level > 0) updates.put(feature.featureName(), level);
        }
        return updates;
    }

    /** Each level: number, name, whether it changed the metadata, and the level of each feature in a new cluster. */
    private static String levels() {
        List<String> found = new ArrayList<>();
        for (MetadataVersion version : MetadataVersion.values()) {
            StringBuilder text = new StringBuilder(version.featureLevel() + " " + version + " " + version.didMetadataChange());
            for (Feature feature : Feature.PRODUCTION_FEATURES) {
                text.append(" " + feature.featureName() + "=" + feature.defaultLevel(version));
            }
            found.add(text.toString());
        }
        return String.join(";", found);
    }

    private Map<String, VersionRange> supportedBy(int controller) {
        Map<String, VersionRange> found = null;
        for (ApiMessage message : records) {
            if (!(message instanceof RegisterControllerRecord) || ((RegisterControllerRecord) message).controllerId() != controller) continue;
            Map<String, VersionRange> ranges = new HashMap<>();
            ((RegisterControllerRecord) message).features().forEach(feature ->
                ranges.put(feature.name(), VersionRange.of(feature.minSupportedVersion(), feature.maxSupportedVersion())));
            found = ranges;
        }
        return found == null ? QuorumFeatures.defaultSupportedFeatureMap(false) : found;
    }

    /** Calls the manager's replay of such a record, where it has one; some take the record's offset too. */
    private static void replay(Object manager, ApiMessage message, long offset) throws Exception {
        for (Method method : manager.getClass().getDeclaredMethods()) {
            if (!method.getName().equals("replay") || method.getParameterTypes()[0] != message.getClass()) continue;
            if (method.getParameterCount() == 1) method.invoke(manager, message); else method.invoke(manager, message, offset);
        }
    }
}
