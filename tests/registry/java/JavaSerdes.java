import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/** Serializes and deserializes with Apicurio's serdes for Kafka: a line of JSON asks, a line of JSON answers. */
public final class JavaSerdes {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.url", arguments[0]);
        settings.put("apicurio.registry.as-confluent", true);
        settings.put("apicurio.registry.use-id", "contentId");
        settings.put("apicurio.registry.headers.enabled", false);
        settings.put("apicurio.registry.serde.validation-enabled", true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                boolean avro = asked.get("format").asText().equals("AVRO");
                Map<String, Object> own = new HashMap<>(settings);
                own.put("apicurio.registry.auto-register", avro);
                own.put("apicurio.registry.find-latest", !avro);
                answer.put("ok", asked.get("do").asText().equals("write") ? write(asked, own, avro) : read(asked, own, avro));
            } catch (Exception | LinkageError error) {
                answer.put("error", error + " " + error.getCause());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static String write(JsonNode asked, Map<String, Object> settings, boolean avro) throws Exception {
        Object value;
        if (avro) {
            Schema schema = new Schema.Parser().parse(asked.get("schema").asText());
            value = new GenericDatumReader<>(schema).read(null, DecoderFactory.get().jsonDecoder(schema, asked.get("value").asText()));
        } else {
            value = JSON.readTree(asked.get("value").asText());
        }
        try (Serializer<Object> serializer = avro ? new AvroKafkaSerializer<>() : new JsonSchemaKafkaSerializer<>()) {
            serializer.configure(settings, asked.get("key").asBoolean());
            return HexFormat.of().formatHex(serializer.serialize(asked.get("topic").asText(), value));
        }
    }

    private static String read(JsonNode asked, Map<String, Object> settings, boolean avro) throws Exception {
        try (Deserializer<Object> deserializer = avro ? new AvroKafkaDeserializer<>() : new JsonSchemaKafkaDeserializer<>()) {
            deserializer.configure(settings, asked.get("key").asBoolean());
            byte[] data = HexFormat.of().parseHex(asked.get("data").asText());
            Object value = deserializer.deserialize(asked.get("topic").asText(), data);
            return value instanceof CharSequence ? JSON.writeValueAsString(value.toString()) : value.toString();
        }
    }
}
