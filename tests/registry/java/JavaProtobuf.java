import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import com.squareup.wire.schema.internal.parser.MessageElement;
import com.squareup.wire.schema.internal.parser.TypeElement;
import io.apicurio.registry.resolver.ParsedSchema;
import io.apicurio.registry.resolver.ParsedSchemaImpl;
import io.apicurio.registry.resolver.SchemaParser;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufSchemaParser;
import io.apicurio.registry.utils.protobuf.schema.ProtobufSchema;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/**
 * Serializes and deserializes with Apicurio's Protobuf serdes for Kafka: a line of JSON asks, a line of JSON answers.
 *
 * <p>Apicurio 2 writes a type reference between id and value. This class puts Confluent's message indexes there, as Apicurio 3.1 does with
 * {@code send-indexes}. Apicurio finds the subject, the id and the schema, and writes magic byte and id.
 */
public final class JavaProtobuf {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.url", arguments[0]);
        settings.put("apicurio.registry.as-confluent", true);
        settings.put("apicurio.registry.use-id", "contentId");
        settings.put("apicurio.registry.headers.enabled", false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                if (asked.has("data")) {
                    read(asked, settings, answer);
                } else {
                    answer.put("ok", write(asked, settings));
                }
            } catch (Exception | LinkageError error) {
                answer.put("error", error + " " + error.getCause());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void read(JsonNode asked, Map<String, Object> settings, ObjectNode answer) throws Exception {
        try (Reader reader = new Reader()) {
            reader.configure(settings, asked.get("key").asBoolean());
            byte[] data = HexFormat.of().parseHex(asked.get("data").asText());
            DynamicMessage message = reader.deserialize(asked.get("topic").asText(), data);
            answer.put("name", message.getDescriptorForType().getFullName());
            answer.put("ok", JsonFormat.printer().preservingProtoFieldNames().omittingInsignificantWhitespace().print(message));
        }
    }

    private static String write(JsonNode asked, Map<String, Object> settings) throws Exception {
        Map<String, Object> own = new HashMap<>(settings);
        own.put("apicurio.registry.auto-register", asked.get("register").asBoolean());
        own.put("apicurio.registry.find-latest", !asked.get("register").asBoolean());
        DynamicMessage.Builder message = DynamicMessage.newBuilder(generated(asked));
        JsonFormat.parser().merge(asked.get("value").asText(), message);
        try (Writer writer = new Writer()) {
            writer.configure(own, asked.get("key").asBoolean());
            return HexFormat.of().formatHex(writer.serialize(asked.get("topic").asText(), message.build()));
        }
    }

    /** The message that protoc has described; each file stands after its imports. */
    private static Descriptor generated(JsonNode asked) throws Exception {
        Map<String, FileDescriptor> files = new HashMap<>();
        FileDescriptor file = null;
        for (JsonNode each : asked.get("files")) {
            FileDescriptorProto proto = FileDescriptorProto.parseFrom(HexFormat.of().parseHex(each.asText()));
            FileDescriptor[] imports = proto.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
            file = FileDescriptor.buildFrom(proto, imports);
            files.put(proto.getName(), file);
        }
        return found(file, List.of(asked.get("message").asText().split("\\.")));
    }

    private static Descriptor found(FileDescriptor file, List<String> path) {
        Descriptor found = file.findMessageTypeByName(path.get(0));
        for (String name : path.subList(1, path.size())) {
            found = found.findNestedTypeByName(name);
        }
        return found;
    }

    private static List<MessageElement> messages(List<TypeElement> types) {
        List<MessageElement> messages = new ArrayList<>();
        for (TypeElement type : types) {
            if (type instanceof MessageElement message) {
                messages.add(message);
            }
        }
        return messages;
    }

    /** Apicurio's parser. Where a file imports another, Apicurio's alone finds none of Google's own files. */
    private static final class Parser extends ProtobufSchemaParser<DynamicMessage> {
        private static final String TIMES = "google/protobuf/timestamp.proto";

        @Override
        public ProtobufSchema parseSchema(byte[] text, Map<String, ParsedSchema<ProtobufSchema>> references) {
            Map<String, ParsedSchema<ProtobufSchema>> all = new HashMap<>(references);
            if (!references.isEmpty()) {
                try (InputStream times = JavaProtobuf.class.getClassLoader().getResourceAsStream(TIMES)) {
                    ProtobufSchema parsed = super.parseSchema(times.readAllBytes(), Map.of());
                    all.put(TIMES, new ParsedSchemaImpl<ProtobufSchema>().setReferenceName(TIMES).setParsedSchema(parsed));
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
            return super.parseSchema(text, all);
        }
    }

    /** Apicurio's serializer, with message indexes in front of the value. */
    public static final class Writer extends ProtobufKafkaSerializer<DynamicMessage> {
        @Override
        public SchemaParser<ProtobufSchema, DynamicMessage> schemaParser() {
            return new Parser();
        }

        @Override
        protected void serializeData(ParsedSchema<ProtobufSchema> schema, DynamicMessage value, OutputStream bytes) throws IOException {
            List<String> path = new ArrayList<>();
            for (Descriptor each = value.getDescriptorForType(); each != null; each = each.getContainingType()) {
                path.add(0, each.getName());
            }
            List<Integer> indexes = new ArrayList<>();
            List<TypeElement> types = schema.getParsedSchema().getProtoFileElement().getTypes();
            for (String name : path) {
                List<MessageElement> messages = messages(types);
                int index = 0;
                while (!messages.get(index).getName().equals(name)) {
                    index++;
                }
                indexes.add(index);
                types = messages.get(index).getNestedTypes();
            }
            CodedOutputStream out = CodedOutputStream.newInstance(bytes);
            if (indexes.equals(List.of(0))) {
                out.writeSInt32NoTag(0);
            } else {
                out.writeSInt32NoTag(indexes.size());
                for (int index : indexes) {
                    out.writeSInt32NoTag(index);
                }
            }
            out.flush();
            value.writeTo(bytes);
        }
    }

    /** Apicurio's deserializer, for a value behind message indexes. */
    public static final class Reader extends ProtobufKafkaDeserializer<DynamicMessage> {
        @Override
        public SchemaParser<ProtobufSchema, DynamicMessage> schemaParser() {
            return new Parser();
        }

        @Override
        protected DynamicMessage readData(ParsedSchema<ProtobufSchema> schema, ByteBuffer buffer, int start, int length) {
            try {
                CodedInputStream data = CodedInputStream.newInstance(buffer.array(), start, length);
                List<Integer> indexes = new ArrayList<>();
                for (int left = data.readSInt32(); left > 0; left--) {
                    indexes.add(data.readSInt32());
                }
                if (indexes.isEmpty()) {
                    indexes.add(0);
                }
                List<String> path = new ArrayList<>();
                List<TypeElement> types = schema.getParsedSchema().getProtoFileElement().getTypes();
                for (int index : indexes) {
                    MessageElement message = messages(types).get(index);
                    path.add(message.getName());
                    types = message.getNestedTypes();
                }
                return DynamicMessage.parseFrom(found(schema.getParsedSchema().getFileDescriptor(), path), data);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
