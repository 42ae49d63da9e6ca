import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools in one JVM, each by its main method with the arguments that a shell gave it.
 *
 * Lines of standard input: a class and its arguments, base64 with tabs between them; calls between two empty lines run at the same
 * time. Prints, in order, a line for each: its exit code. What the tools print goes to standard error.
 */
public class RunTools {
    private static final ThreadLocal<Integer> FIRST_EXIT = new ThreadLocal<>();

    private static class Exited extends RuntimeException { }

    public static void main(String[] args) throws Exception {
        PrintStream results = System.out;
        System.setOut(System.err);
        Exit.setExitProcedure((code, message) -> {
            if (FIRST_EXIT.get() == null) FIRST_EXIT.set(code);
            throw new Exited();
        });
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Integer>> running = new ArrayList<>();
        String input = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        for (String line : input.split("\n", -1)) {
            if (!line.isEmpty()) {
                running.add(pool.submit(() -> run(line)));
                continue;
            }
            for (Future<Integer> call : running) results.println(call.get());
            running.clear();
        }
        results.flush();
        Runtime.getRuntime().halt(0);
    }

    private static int run(String line) throws Exception {
        List<String> words = new ArrayList<>();
        for (String word : line.split("\t", -1)) words.add(new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8));
        String[] arguments = words.subList(1, words.size()).toArray(new String[0]);
        FIRST_EXIT.remove();
        try {
            Class.forName(words.get(0)).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) {
                e.getCause().printStackTrace();
                return 99;
            }
        }
        return FIRST_EXIT.get() == null ? 0 : FIRST_EXIT.get();
    }
}
