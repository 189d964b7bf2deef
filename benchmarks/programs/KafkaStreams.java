// Kafka Streams with one thread, and with default settings, except those in `settings`. The arguments are those of
// benchmarks/programs/meter.py.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

public class KafkaStreams {
  public static class Flight {
    public int year, month, day, sched_dep_time, sched_arr_time, flight, distance;
    public Integer dep_time, dep_delay, arr_time, arr_delay, air_time;
    public String carrier, tailnum, origin, dest, time_hour;
  }

  public static class Plane {
    public String tailnum, type, manufacturer, model, engine;
    public Integer year;
    public int engines, seats;
  }

  public static class LateFlight {
    public String carrier, origin, dest;
    public int flight, dep_delay;

    LateFlight(Flight f) {
      carrier = f.carrier; origin = f.origin; dest = f.dest; flight = f.flight; dep_delay = f.dep_delay == null ? 0 : f.dep_delay;
    }

    static LateFlight landed(Flight departure, Flight landing) {
      LateFlight both = new LateFlight(departure);
      both.dest = landing.dest;
      both.flight = landing.flight;
      return both;
    }
  }

  public static class Delays {
    public long count, delay;
  }

  public static class FlightWithPlane {
    public String carrier, tailnum, origin, dest, manufacturer, model;
    public int flight, seats;
    public Integer dep_delay;

    FlightWithPlane(Flight f, Plane p) {
      carrier = f.carrier; tailnum = f.tailnum; origin = f.origin; dest = f.dest; flight = f.flight; dep_delay = f.dep_delay;
      manufacturer = p.manufacturer; model = p.model; seats = p.seats;
    }
  }

  static final class Json<T> implements Serde<T> {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private final ObjectReader reader;
    private final ObjectWriter writer;

    Json(Class<T> type) {
      reader = MAPPER.readerFor(type);
      writer = MAPPER.writerFor(type);
    }

    public Serializer<T> serializer() {
      return (topic, value) -> {
        try { return value == null ? null : writer.writeValueAsBytes(value); } catch (Exception e) { throw new RuntimeException(e); }
      };
    }

    public Deserializer<T> deserializer() {
      return (topic, data) -> {
        try { return data == null ? null : reader.readValue(data); } catch (Exception e) { throw new RuntimeException(e); }
      };
    }
  }

  /** Counts records in the stream thread, in each stage that the topology sees. The main thread reads the count. */
  static final class Meter {
    private final OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final long stages, records;
    volatile long seen, began, beganCpu, halfCpu, halfSeen;

    Meter(Map<String, String> job) {
      stages = switch (job.get("workload")) { case "w3", "foreign-key", "stream-join", "table-join" -> 2; default -> 1; };
      records = stages * Long.parseLong(job.get("events"));
    }

    boolean done() { return seen >= records; }

    void begin() {
      if (began == 0) { beganCpu = system.getProcessCpuTime(); began = System.nanoTime(); }
    }

    void add() {
      seen++;
      if (halfCpu == 0 && seen * 2 >= records) { halfSeen = seen; halfCpu = system.getProcessCpuTime(); }
    }

    void report() {
      long now = System.nanoTime(), cpu = system.getProcessCpuTime();
      System.out.printf(Locale.ROOT, "{\"events\": %d, \"seconds\": %.3f, \"cpu_seconds\": %.3f, \"second_half_cpu_us\": %.3f, \"memory_mib\": %d}%n",
          seen / stages, (now - began) / 1e9, (cpu - beganCpu) / 1e9, (cpu - halfCpu) / 1e3 * stages / Math.max(1, seen - halfSeen), memory());
    }

    private static long memory() {
      try (Stream<String> lines = Files.lines(Path.of("/proc/self/status"))) {
        return lines.filter(line -> line.startsWith("VmHWM:")).mapToLong(line -> Long.parseLong(line.split("\\s+")[1]) / 1024).findFirst().orElse(0);
      } catch (IOException e) {
        return 0;
      }
    }
  }

  /** Adds up the miles of each plane, and forwards each sum. */
  static final class Miles implements Processor<String, Flight, String, Long> {
    private ProcessorContext<String, Long> context;
    private KeyValueStore<String, Long> store;

    public void init(ProcessorContext<String, Long> context) {
      this.context = context;
      store = context.getStateStore("miles");
    }

    public void process(Record<String, Flight> record) {
      Long before = store.get(record.key());
      long miles = (before == null ? 0 : before) + record.value().distance;
      store.put(record.key(), miles);
      context.forward(record.withValue(miles));
    }
  }

  static final Serde<String> KEY = Serdes.String();
  static final Json<Flight> FLIGHT = new Json<>(Flight.class);
  static final Json<Delays> DELAYS = new Json<>(Delays.class);

  public static void main(String[] arguments) throws Exception {
    Map<String, String> job = new HashMap<>();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      job.put(pair[0], pair[1]);
    }
    Meter meter = new Meter(job);
    Properties settings = settings(job);
    StreamsBuilder builder = new StreamsBuilder();
    describe(builder, job, meter);
    org.apache.kafka.streams.KafkaStreams streams = new org.apache.kafka.streams.KafkaStreams(builder.build(settings), settings);
    String workload = job.get("workload");
    CountDownLatch restored = new CountDownLatch(workload.equals("restore") ? Integer.parseInt(job.get("partitions")) : 0);
    streams.setGlobalStateRestoreListener(new StateRestoreListener() {
      public void onRestoreStart(TopicPartition partition, String store, long start, long end) { meter.begin(); }
      public void onBatchRestored(TopicPartition partition, String store, long end, long count) { synchronized (meter) { meter.seen += count; } }
      public void onRestoreEnd(TopicPartition partition, String store, long total) { restored.countDown(); }
    });
    streams.start();
    if (workload.equals("latency")) Thread.sleep(Long.MAX_VALUE);
    long deadline = System.nanoTime() + (long) (Double.parseDouble(job.get("limit")) * 1e9);
    if (workload.equals("restore")) {
      restored.await();
      meter.report();
      streams.close();
      return;
    }
    while (!meter.done() && System.nanoTime() < deadline) Thread.sleep(2);
    streams.close();  // flushes and commits
    meter.report();
  }

  static Properties settings(Map<String, String> job) {
    Properties settings = new Properties();
    settings.put("application.id", job.get("app"));
    settings.put("bootstrap.servers", job.get("bootstrap"));
    settings.put("state.dir", job.get("folder"));
    settings.put("auto.offset.reset", "earliest");
    settings.put("topic.segment.ms", Long.toString(Long.MAX_VALUE));
    // The flights are from 2013. Brokers would delete changelogs of windows while the digest is taken.
    settings.put("windowstore.changelog.additional.retention.ms", Long.toString(Duration.ofDays(36_500).toMillis()));
    if (job.get("variant").equals("exactly-once")) settings.put("processing.guarantee", "exactly_once_v2");
    if (job.get("variant").equals("no-linger")) settings.put("linger.ms", "0");
    if (job.get("workload").equals("foreign-key")) settings.put("statestore.cache.max.bytes", "0");
    if (job.get("workload").equals("restore")) settings.put("topology.optimization", "all");
    return settings;
  }

  static void describe(StreamsBuilder builder, Map<String, String> job, Meter meter) {
    String workload = job.get("workload"), output = job.get("output");
    if (workload.equals("restore")) {
      builder.table(job.get("input"), Consumed.with(KEY, Serdes.ByteArray()), Materialized.as("big"));
      return;
    }
    if (workload.equals("foreign-key")) {
      KTable<String, Flight> flights = builder.stream(job.get("input"), Consumed.with(KEY, FLIGHT))
          .peek((key, flight) -> { meter.begin(); meter.add(); }).toTable(Materialized.with(KEY, FLIGHT));
      KTable<String, Plane> planes = builder.table(job.get("planes"), Consumed.with(KEY, new Json<>(Plane.class)));
      flights.join(planes, (Flight flight) -> flight.tailnum, FlightWithPlane::new,
              Materialized.<String, FlightWithPlane, KeyValueStore<Bytes, byte[]>>as("joined").withKeySerde(KEY).withValueSerde(new Json<>(FlightWithPlane.class)))
          .toStream().peek((key, joined) -> meter.add()).to(output, Produced.with(KEY, new Json<>(FlightWithPlane.class)));
      return;
    }
    if (workload.equals("table-join")) {
      KTable<String, Flight> departures = builder.stream(job.get("input"), Consumed.with(KEY, FLIGHT))
          .peek((key, flight) -> { meter.begin(); meter.add(); })
          .toTable(Materialized.<String, Flight, KeyValueStore<Bytes, byte[]>>as("departures").withKeySerde(KEY).withValueSerde(FLIGHT));
      KTable<String, Flight> landings = builder.stream(job.get("planes"), Consumed.with(KEY, FLIGHT))
          .peek((key, flight) -> { meter.begin(); meter.add(); })
          .toTable(Materialized.<String, Flight, KeyValueStore<Bytes, byte[]>>as("landings").withKeySerde(KEY).withValueSerde(FLIGHT));
      departures.join(landings, LateFlight::landed).toStream().to(output, Produced.with(KEY, new Json<>(LateFlight.class)));
      return;
    }
    KStream<String, Flight> flights = builder.stream(job.get("input"), Consumed.with(KEY, FLIGHT)).peek((key, flight) -> meter.begin());
    switch (workload) {
      case "w1", "latency" -> flights.peek((key, flight) -> meter.add())
          .filter((key, flight) -> flight.dep_delay != null && flight.dep_delay > 15)
          .mapValues(LateFlight::new)
          .to(output, Produced.with(KEY, new Json<>(LateFlight.class)));
      case "w2", "keys" -> flights.groupByKey(Grouped.with(KEY, FLIGHT))
          .aggregate(() -> 0L, (key, flight, count) -> { meter.add(); return count + 1; },
              Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withKeySerde(KEY).withValueSerde(Serdes.Long()));
      case "sessions" -> flights.peek((key, flight) -> meter.add()).groupByKey(Grouped.with(KEY, FLIGHT))
          .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofHours(4), Duration.ofDays(1)))
          .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withKeySerde(KEY).withValueSerde(Serdes.Long()));
      case "final-sessions" -> flights.peek((key, flight) -> meter.add()).groupByKey(Grouped.with(KEY, FLIGHT))
          .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofHours(4), Duration.ofDays(1)))
          .emitStrategy(EmitStrategy.onWindowClose())
          .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions").withKeySerde(KEY).withValueSerde(Serdes.Long()))
          .toStream().map((window, count) -> KeyValue.pair(window.key() + "@" + window.window().start(), count))
          .to(output, Produced.with(KEY, Serdes.Long()));
      case "hopping" -> flights.peek((key, flight) -> meter.add()).groupByKey(Grouped.with(KEY, FLIGHT))
          .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(1), Duration.ofHours(1)).advanceBy(Duration.ofMinutes(5)))
          .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows").withKeySerde(KEY).withValueSerde(Serdes.Long()));
      case "sliding" -> flights.peek((key, flight) -> meter.add()).groupByKey(Grouped.with(KEY, FLIGHT))
          .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofDays(1), Duration.ofHours(1)))
          .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows").withKeySerde(KEY).withValueSerde(Serdes.Long()))
          .toStream().map((window, count) -> KeyValue.pair(window.key() + "@" + window.window().start(), count))
          .to(output, Produced.with(KEY, Serdes.Long()));
      case "suppressed" -> flights.peek((key, flight) -> meter.add()).groupByKey(Grouped.with(KEY, FLIGHT))
          .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(1), Duration.ofHours(1)))
          .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows").withKeySerde(KEY).withValueSerde(Serdes.Long()))
          .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
          .toStream().map((window, count) -> KeyValue.pair(window.key() + "@" + window.window().start(), count))
          .to(output, Produced.with(KEY, Serdes.Long()));
      case "processor" -> {
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("miles"), KEY, Serdes.Long()));
        flights.peek((key, flight) -> meter.add()).process(Miles::new, "miles").to(output, Produced.with(KEY, Serdes.Long()));
      }
      case "stream-join" -> {
        KStream<String, Flight> landings = builder.stream(job.get("planes"), Consumed.with(KEY, FLIGHT)).peek((key, flight) -> meter.add());
        flights.peek((key, flight) -> meter.add())
            .join(landings, LateFlight::landed, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofDays(1), Duration.ofHours(1)),
                StreamJoined.with(KEY, FLIGHT, FLIGHT))
            .to(output, Produced.with(KEY, new Json<>(LateFlight.class)));
      }
      case "w3" -> flights.peek((key, flight) -> meter.add()).groupBy((key, flight) -> flight.origin, Grouped.with(KEY, FLIGHT))
          .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofDays(1500)))
          .aggregate(Delays::new, (key, flight, delays) -> {
                meter.add();
                delays.count++;
                if (flight.dep_delay != null) delays.delay += flight.dep_delay;
                return delays;
              }, Materialized.<String, Delays, WindowStore<Bytes, byte[]>>as("delays").withKeySerde(KEY).withValueSerde(DELAYS)
                  .withRetention(Duration.ofDays(1501)))
          .toStream().map((window, delays) -> KeyValue.pair(window.key() + "@" + window.window().start(), delays))
          .to(output, Produced.with(KEY, DELAYS));
      case "w4" -> {
        KTable<String, Plane> planes = builder.table(job.get("planes"), Consumed.with(KEY, new Json<>(Plane.class)), Materialized.as("planes"));
        flights.peek((key, flight) -> meter.add())
            .join(planes, FlightWithPlane::new, Joined.with(KEY, FLIGHT, null))
            .to(output, Produced.with(KEY, new Json<>(FlightWithPlane.class)));
      }
      default -> throw new IllegalArgumentException("unknown workload " + workload);
    }
  }
}
