import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Reads metadata log dirs (one path a line on standard input) with Kafka's own classes: every batch of every segment and snapshot
 * is validated, every record deserialized and replayed. Prints, a tab between the columns: `dir`, path, batches, records, end
 * offset; then the image: `feature`, name, level; `broker`, id, epoch, incarnation, fenced, in controlled shutdown, directories,
 * rack; `config`, resource type, resource, key, value; `partition`, topic, number, replicas, isr, elr, last known, leader, leader
 * epoch, partition epoch, recovery state, directories. An error is printed as `error`, path, message.
 */
public class ReadLogDirs {
    private final Path dir;
    private long batches = 0;
    private long records = 0;
    private long endOffset = 0;
    private final List<ApiMessageAndVersion> transaction = new ArrayList<>();
    private boolean inTransaction = false;
    private MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();

    private ReadLogDirs(Path dir) {
        this.dir = dir;
    }

    public static void main(String[] arguments) throws Exception {
        for (String line : new String(System.in.readAllBytes()).split("\n")) {
            try {
                System.out.print(new ReadLogDirs(Path.of(line)).read());
            } catch (Exception | Error e) {
                System.out.println("error\t" + line + "\t" + e);
            }
        }
    }

    private static List<File> files(Path dir, String pattern) {
        File[] found = dir.toFile().listFiles((folder, name) -> name.matches(pattern));
        List<File> sorted = new ArrayList<>(Arrays.asList(found));
        sorted.sort(Comparator.comparing(File::getName));
        return sorted;
    }

    private String read() throws Exception {
        long from = 0;
        List<File> snapshots = files(dir, "\\d{20}-\\d{10}\\.checkpoint");
        for (File snapshot : snapshots) scan(snapshot, 0, false);
        File last = null;
        for (File snapshot : snapshots) if (Long.parseLong(snapshot.getName().substring(0, 20)) > 0) last = snapshot;
        if (last != null) {
            from = Long.parseLong(last.getName().substring(0, 20));
            scan(last, 0, true);
            delta.finishSnapshot();
            publish(from - 1);
            endOffset = from;
        }
        for (File segment : files(dir, "\\d{20}\\.log")) scan(segment, from, true);
        MetadataImage image = publish(endOffset - 1);
        StringBuilder text = new StringBuilder("dir\t" + dir + "\t" + batches + "\t" + records + "\t" + endOffset + "\n");
        image.features().metadataVersion().ifPresent(level -> text.append("feature\tmetadata.version\t" + level.featureLevel() + "\n"));
        new TreeMap<>(image.features().finalizedVersions()).forEach((name, level) ->
            text.append("feature\t" + name + "\t" + level + "\n"));
        new TreeMap<>(image.cluster().brokers()).values().forEach(broker -> text.append(line(broker)));
        TreeMap<String, String> configs = new TreeMap<>();
        image.configs().resourceData().forEach((resource, data) -> data.data().forEach((key, value) ->
            configs.put(resource.type().id() + "\t" + resource.name() + "\t" + key, value)));
        configs.forEach((key, value) -> text.append("config\t" + key + "\t" + value + "\n"));
        new TreeMap<>(image.topics().topicsByName()).forEach((name, topic) ->
            new TreeMap<>(topic.partitions()).forEach((number, partition) -> text.append(line(name, number, partition))));
        return text.toString();
    }

    private MetadataImage publish(long offset) {
        MetadataImage image = delta.apply(new MetadataProvenance(offset, 0, 0, true));
        delta = new MetadataDelta.Builder().setImage(image).build();
        return image;
    }

    private void scan(File file, long from, boolean replay) throws Exception {
        try (FileRecords opened = FileRecords.open(file, false)) {
            boolean isLog = file.getName().endsWith(".log");
            for (FileLogInputStream.FileChannelRecordBatch batch : opened.batches()) {
                batch.ensureValid();
                batches++;
                for (Record record : batch) {
                    records++;
                    if (batch.isControlBatch()) {
                        control(record);
                        continue;
                    }
                    ApiMessageAndVersion message =
                        MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value()), record.valueSize());
                    if (replay && (!isLog || record.offset() >= from)) apply(message);
                }
                if (isLog) {
                    endOffset = Math.max(endOffset, batch.lastOffset() + 1);
                    if (replay && !inTransaction) publish(endOffset - 1);
                }
            }
        }
    }

    private static void control(Record record) {
        switch (ControlRecordType.parse(record.key())) {
            case LEADER_CHANGE: ControlRecordUtils.deserializeLeaderChangeMessage(record); break;
            case SNAPSHOT_HEADER: ControlRecordUtils.deserializeSnapshotHeaderRecord(record); break;
            case SNAPSHOT_FOOTER: ControlRecordUtils.deserializeSnapshotFooterRecord(record); break;
            case KRAFT_VERSION: KRaftVersionRecord version = ControlRecordUtils.deserializeKRaftVersionRecord(record);
                if (version.kRaftVersion() != 1) throw new IllegalStateException("kraft.version " + version.kRaftVersion());
                break;
            case KRAFT_VOTERS: ControlRecordUtils.deserializeVotersRecord(record); break;
            default: throw new IllegalStateException("control record " + ControlRecordType.parse(record.key()));
        }
    }

    private void apply(ApiMessageAndVersion message) {
        switch (MetadataRecordType.fromId(message.message().apiKey())) {
            case BEGIN_TRANSACTION_RECORD: inTransaction = true; break;
            case END_TRANSACTION_RECORD:
                inTransaction = false;
                for (ApiMessageAndVersion pending : transaction) delta.replay(pending.message());
                transaction.clear();
                break;
            case ABORT_TRANSACTION_RECORD: inTransaction = false; transaction.clear(); break;
            default:
                if (inTransaction) transaction.add(message); else delta.replay(message.message());
        }
    }

    private static String line(String topic, int number, PartitionRegistration partition) {
        return String.join("\t", "partition", topic, "" + number, Arrays.toString(partition.replicas),
            Arrays.toString(partition.isr), Arrays.toString(partition.elr), Arrays.toString(partition.lastKnownElr),
            "" + partition.leader, "" + partition.leaderEpoch, "" + partition.partitionEpoch,
            "" + partition.leaderRecoveryState.value(), Arrays.toString(partition.directories)) + "\n";
    }

    private static String line(BrokerRegistration broker) {
        return String.join("\t", "broker", "" + broker.id(), "" + broker.epoch(), "" + broker.incarnationId(), "" + broker.fenced(),
            "" + broker.inControlledShutdown(), "" + broker.directories(), broker.rack().orElse("")) + "\n";
    }
}
