import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;

/**
 * Runs the topology until its standard input ends, then stops in order; as a Kafka Streams application does that is
 * stopped for good, it leaves the group. Arguments: the prefix of the topics, then settings as name=value.
 */
public final class Flights {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        for (int i = 1; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            config.put(setting[0], setting[1]);
        }
        Topology topology = FlightsTopology.build(config, arguments[0]);
        System.out.println(topology.describe());
        System.out.println("-- end of the description");
        System.out.flush();
        try (KafkaStreams streams = new KafkaStreams(topology, config)) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
                return null;
            });
            streams.start();
            while (System.in.read() >= 0) {
                // Whoever started this program tells it nothing but when to end.
            }
            CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
            if (!streams.close(leave.withTimeout(Duration.ofSeconds(30)))) {
                System.exit(2);
            }
        }
    }
}
