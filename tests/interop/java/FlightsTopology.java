import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** The topology that both sides run; tests/interop/flights.py describes the same one in Python. */
final class FlightsTopology {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> NUMBER = Serdes.Long();
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private final StreamsBuilder builder;
    private final String prefix;

    private FlightsTopology(Properties config, String prefix) {
        builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(config)));
        this.prefix = prefix;
    }

    /** Input topics are flights, landings, planes, ratings, fares, owners and carriers, behind the prefix. */
    static Topology build(Properties config, String prefix) {
        FlightsTopology topology = new FlightsTopology(config, prefix);
        topology.describe();
        return topology.builder.build(config);
    }

    private void describe() {
        KStream<String, String> flights = stream("flights");
        KStream<String, String> landings = stream("landings");
        KTable<String, String> planes = builder.table(prefix + "planes", Consumed.with(TEXT, TEXT));
        count(flights);
        windows(flights.groupByKey(Grouped.with(TEXT, TEXT)));
        joins(flights, landings, planes);
        tables(planes);
        processors(flights);
    }

    private void count(KStream<String, String> flights) {
        flights.groupBy((tail, flight) -> field(flight, 0), Grouped.with(TEXT, TEXT))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("departures").withValueSerde(NUMBER))
            .toStream().to(prefix + "departures", Produced.with(TEXT, NUMBER));
        KGroupedStream<String, String> legs = flights
            .selectKey((tail, flight) -> tail + "@" + field(flight, 0))
            .repartition(Repartitioned.<String, String>as("legs").withKeySerde(TEXT).withValueSerde(TEXT).withNumberOfPartitions(5))
            .groupByKey(Grouped.with(TEXT, TEXT));
        legs.aggregate(() -> 0L, (leg, flight, sum) -> sum + Long.parseLong(field(flight, 3)), Materialized.with(TEXT, NUMBER))
            .toStream().to(prefix + "leg-delays", Produced.with(TEXT, NUMBER));
        flights.groupByKey(Grouped.with(TEXT, TEXT))
            .reduce((slowest, flight) -> delay(flight) > delay(slowest) ? flight : slowest,
                Materialized.<String, String>as(Stores.inMemoryKeyValueStore("slowest")).withKeySerde(TEXT).withValueSerde(TEXT))
            .toStream().to(prefix + "slowest", Produced.with(TEXT, TEXT));
        flights.groupByKey(Grouped.with(TEXT, TEXT))
            .count(Materialized.<String, Long>as(Stores.lruMap("recent", 5)).withKeySerde(TEXT).withValueSerde(NUMBER))
            .toStream().to(prefix + "recent", Produced.with(TEXT, NUMBER));
    }

    private void windows(KGroupedStream<String, String> flights) {
        TimeWindows hours = TimeWindows.ofSizeAndGrace(MINUTE.multipliedBy(60), MINUTE.multipliedBy(10));
        KTable<Windowed<String>, Long> hourly = flights.windowedBy(hours)
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("hourly").withValueSerde(NUMBER));
        windowed(hourly, 60, "hourly");
        windowed(hourly.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())), 60, "hourly-final");
        windowed(flights.windowedBy(hours.advanceBy(MINUTE.multipliedBy(20)))
            .aggregate(() -> "", (tail, flight, trail) -> trail + field(flight, 0) + ">",
                Materialized.<String, String, WindowStore<Bytes, byte[]>>with(TEXT, TEXT)), 60, "trails", TEXT);
        windowed(flights.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(MINUTE.multipliedBy(30), MINUTE.multipliedBy(10)))
            .count(Materialized.with(TEXT, NUMBER)), 30, "sliding");
        TimeWindowedKStream<String, String> halves =
            flights.windowedBy(TimeWindows.ofSizeAndGrace(MINUTE.multipliedBy(30), MINUTE.multipliedBy(5)));
        windowed(halves.emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("closed").withValueSerde(NUMBER)
                .withRetention(MINUTE.multipliedBy(240))), 30, "closed");
        flights.windowedBy(SessionWindows.ofInactivityGapAndGrace(MINUTE.multipliedBy(25), MINUTE.multipliedBy(10)))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withValueSerde(NUMBER))
            .toStream().to(prefix + "sessions", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), NUMBER));
    }

    private void joins(KStream<String, String> flights, KStream<String, String> landings, KTable<String, String> planes) {
        text(flights.leftJoin(planes, FlightsTopology::pair, Joined.with(TEXT, TEXT, TEXT)), "with-plane");
        JoinWindows hour = JoinWindows.ofTimeDifferenceAndGrace(MINUTE.multipliedBy(60), MINUTE.multipliedBy(5));
        text(flights.outerJoin(landings, FlightsTopology::pair, hour, StreamJoined.with(TEXT, TEXT, TEXT)), "trips");
        text(flights.join(landings, FlightsTopology::pair, hour,
            StreamJoined.with(TEXT, TEXT, TEXT).withName("arrived").withStoreName("arrived")), "arrived");
        KTable<String, String> fares = builder.table(prefix + "fares", Consumed.with(TEXT, TEXT),
            Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore("fares", MINUTE.multipliedBy(240)))
                .withKeySerde(TEXT).withValueSerde(TEXT));
        text(flights.join(fares, FlightsTopology::pair,
            Joined.with(TEXT, TEXT, TEXT, "priced", MINUTE.multipliedBy(10))), "priced");
        GlobalKTable<String, String> carriers = builder.globalTable(prefix + "carriers", Consumed.with(TEXT, TEXT));
        text(flights.join(carriers, (tail, flight) -> field(flight, 2), FlightsTopology::pair), "by-carrier");
    }

    private void tables(KTable<String, String> planes) {
        KTable<String, String> ratings = builder.table(prefix + "ratings",
            Consumed.with(TEXT, TEXT).withTimestampExtractor(FlightsTopology::timeOfRating));
        text(planes.outerJoin(ratings, FlightsTopology::pair).toStream(), "rated");
        KTable<String, String> owners = builder.table(prefix + "owners", Consumed.with(TEXT, TEXT));
        text(planes.leftJoin(owners, plane -> field(plane, 1), FlightsTopology::pair, Materialized.with(TEXT, TEXT)).toStream(), "owned");
        planes.groupBy((tail, plane) -> KeyValue.pair(field(plane, 0), plane), Grouped.with(TEXT, TEXT))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("models").withValueSerde(NUMBER))
            .toStream().to(prefix + "models", Produced.with(TEXT, NUMBER));
        text(planes.suppress(Suppressed.untilTimeLimit(MINUTE, BufferConfig.unbounded())).toStream(), "settled");
    }

    private void processors(KStream<String, String> flights) {
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("seen", MINUTE.multipliedBy(240), MINUTE.multipliedBy(5), false), TEXT, TEXT));
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("numbers"), TEXT, NUMBER));
        text(flights.process(Numbering::new, "seen", "numbers"), "numbered");
    }

    /** Numbers the flights of each plane, leaving out those that say what another one said within 5 minutes. */
    private static final class Numbering implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private WindowStore<String, String> seen;
        private KeyValueStore<String, Long> numbers;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            seen = context.getStateStore("seen");
            numbers = context.getStateStore("numbers");
        }

        @Override
        public void process(Record<String, String> record) {
            long reach = MINUTE.multipliedBy(5).toMillis();
            String said = record.key() + "/" + field(record.value(), 0);
            try (var found = seen.fetch(said, record.timestamp() - reach, record.timestamp() + reach)) {
                if (found.hasNext()) {
                    return;
                }
            }
            seen.put(said, record.value(), record.timestamp());
            Long number = numbers.get(record.key());
            number = number == null ? 1 : number + 1;
            numbers.put(record.key(), number);
            context.forward(record.withValue(number + ":" + record.value()));
        }
    }

    /** A rating that does not say when it was given counts as given at the partition's time, which the group commits. */
    private static long timeOfRating(ConsumerRecord<Object, Object> rating, long partitionTime) {
        return "undated".equals(rating.value()) ? partitionTime : rating.timestamp();
    }

    private KStream<String, String> stream(String topic) {
        return builder.stream(prefix + topic, Consumed.with(TEXT, TEXT));
    }

    private void text(KStream<String, String> stream, String topic) {
        stream.to(prefix + topic, Produced.with(TEXT, TEXT));
    }

    private void windowed(KTable<Windowed<String>, Long> table, long minutes, String topic) {
        windowed(table, minutes, topic, NUMBER);
    }

    private <V> void windowed(KTable<Windowed<String>, V> table, long minutes, String topic, Serde<V> values) {
        Serde<Windowed<String>> keys = WindowedSerdes.timeWindowedSerdeFrom(String.class, minutes * 60_000);
        table.toStream().to(prefix + topic, Produced.with(keys, values));
    }

    private static String field(String value, int number) {
        return value.split(",")[number];
    }

    private static long delay(String flight) {
        return Long.parseLong(field(flight, 3));
    }

    private static String pair(String left, String right) {
        return left + "|" + right;
    }
}
