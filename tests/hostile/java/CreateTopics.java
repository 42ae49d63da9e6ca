import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * Creates topics at the brokers of its argument, one after the other, and deletes each a while later, until standard input ends.
 * Prints the name of each that was acknowledged; what fails, because there is no leader now, is tried under the next name.
 */
public class CreateTopics {
    private static final int KEPT = 15;
    private static final int PARTITIONS = 3;
    private static final int PAUSE_MS = 40;

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "default.api.timeout.ms", 3000, "request.timeout.ms", 2000,
            "reconnect.backoff.max.ms", 200, "retry.backoff.ms", 50);
        try (Admin admin = Admin.create(settings)) {
            for (int number = 0; System.in.available() == 0; number++) {
                String name = "topic-" + number;
                try {
                    NewTopic topic = new NewTopic(name, Optional.of(PARTITIONS), Optional.empty());
                    admin.createTopics(List.of(topic)).all().get();
                    System.out.println(name);
                    if (number >= KEPT) {
                        admin.deleteTopics(List.of("topic-" + (number - KEPT))).all().get();
                    }
                } catch (java.util.concurrent.ExecutionException noLeaderNow) {
                    System.err.println(name + ": " + noLeaderNow.getMessage());
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }
}
