import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.common.TopicPartition;

/** Plans PARTITIONS equal partitions on BEFORE members, then on AFTER: a line of seconds, moves and counts for each of ROUNDS. */
public final class StickyAssignor {
    private static final String TOPIC = "partitions";
    private static int generation = 0;

    public static void main(String[] arguments) {
        int partitions = Integer.parseInt(arguments[0]);
        int before = Integer.parseInt(arguments[1]);
        int after = Integer.parseInt(arguments[2]);
        for (int round = 0; round < Integer.parseInt(arguments[3]); round++) {
            Map<String, List<TopicPartition>> none = new HashMap<>();
            long started = System.nanoTime();
            Map<String, List<TopicPartition>> first = plan(partitions, before, none);
            long cold = System.nanoTime() - started;
            started = System.nanoTime();
            Map<String, List<TopicPartition>> second = plan(partitions, after, first);
            long rebalance = System.nanoTime() - started;
            // what is to move is given up in one rebalance and taken in the next
            Map<String, List<TopicPartition>> settled = plan(partitions, after, second);
            long moved = 0;
            for (Map.Entry<String, List<TopicPartition>> entry : first.entrySet()) {
                Set<TopicPartition> kept = new HashSet<>(settled.getOrDefault(entry.getKey(), Collections.emptyList()));
                for (TopicPartition partition : entry.getValue()) {
                    moved += kept.contains(partition) ? 0 : 1;
                }
            }
            int most = settled.values().stream().mapToInt(List::size).max().orElse(0);
            int placed = settled.values().stream().mapToInt(List::size).sum();
            System.out.printf("%d %d %d %d %d%n", cold, rebalance, moved, most, placed);
        }
    }

    private static Map<String, List<TopicPartition>> plan(int partitions, int members, Map<String, List<TopicPartition>> owned) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        generation++;
        for (int member = 0; member < members; member++) {
            String name = String.format("worker-%05d", member);
            List<TopicPartition> has = owned.getOrDefault(name, new ArrayList<>());
            subscriptions.put(name, new Subscription(List.of(TOPIC), null, has, generation, Optional.empty()));
        }
        return new CooperativeStickyAssignor().assign(Map.of(TOPIC, partitions), subscriptions);
    }
}
