import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import com.squareup.wire.schema.internal.parser.MessageElement;
import com.squareup.wire.schema.internal.parser.ProtoFileElement;
import com.squareup.wire.schema.internal.parser.ProtoParser;
import com.squareup.wire.schema.internal.parser.TypeElement;
import io.apicurio.registry.utils.protobuf.schema.FileDescriptorUtils;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/**
 * Reads and writes Protobuf by the text that a registry has, with the libraries that Confluent's Java serializer is made of: Wire parses
 * the text and counts messages, protobuf-java does the rest. A line of JSON asks, a line of JSON answers.
 */
public final class JavaProtobuf {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                if (asked.has("data")) {
                    read(asked, answer);
                } else {
                    answer.put("ok", write(asked));
                }
            } catch (Exception | LinkageError error) {
                answer.put("error", error + " " + error.getCause());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void read(JsonNode asked, ObjectNode answer) throws Exception {
        CodedInputStream data = CodedInputStream.newInstance(HexFormat.of().parseHex(asked.get("data").asText()));
        data.skipRawBytes(5);
        int count = data.readSInt32();
        List<Integer> indexes = new ArrayList<>();
        for (int each = 0; each < count; each++) {
            indexes.add(data.readSInt32());
        }
        if (count == 0) {
            indexes.add(0);
        }
        List<String> path = new ArrayList<>();
        List<TypeElement> types = types(asked);
        for (int index : indexes) {
            List<MessageElement> messages = new ArrayList<>();
            for (TypeElement type : types) {
                if (type instanceof MessageElement message) {
                    messages.add(message);
                }
            }
            path.add(messages.get(index).getName());
            types = messages.get(index).getNestedTypes();
        }
        DynamicMessage message = DynamicMessage.parseFrom(named(asked, path), data);
        answer.put("name", message.getDescriptorForType().getFullName());
        answer.put("ok", JsonFormat.printer().preservingProtoFieldNames().omittingInsignificantWhitespace().print(message));
    }

    private static String write(JsonNode asked) throws Exception {
        List<String> path = List.of(asked.get("message").asText().split("\\."));
        DynamicMessage.Builder message = DynamicMessage.newBuilder(named(asked, path));
        JsonFormat.parser().merge(asked.get("value").asText(), message);
        List<Integer> indexes = new ArrayList<>();
        List<TypeElement> types = types(asked);
        for (String name : path) {
            int index = 0;
            for (TypeElement type : types) {
                if (type instanceof MessageElement && type.getName().equals(name)) {
                    indexes.add(index);
                    types = type.getNestedTypes();
                    break;
                }
                index += type instanceof MessageElement ? 1 : 0;
            }
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        CodedOutputStream out = CodedOutputStream.newInstance(bytes);
        if (indexes.equals(List.of(0))) {
            out.writeSInt32NoTag(0);
        } else {
            out.writeSInt32NoTag(indexes.size());
            for (int index : indexes) {
                out.writeSInt32NoTag(index);
            }
        }
        message.build().writeTo(out);
        out.flush();
        return HexFormat.of().formatHex(bytes.toByteArray());
    }

    private static ProtoFileElement parsed(String text) {
        return ProtoParser.Companion.parse(FileDescriptorUtils.DEFAULT_LOCATION, text);
    }

    private static List<TypeElement> types(JsonNode asked) {
        return parsed(asked.get("schema").asText()).getTypes();
    }

    private static Descriptor named(JsonNode asked, List<String> path) throws Exception {
        ProtoFileElement own = parsed(asked.get("schema").asText());
        Descriptor found;
        if (asked.get("imports").isEmpty()) {
            found = FileDescriptorUtils.protoFileToFileDescriptor(own).findMessageTypeByName(path.get(0));
        } else {
            Map<String, ProtoFileElement> imports = new HashMap<>();
            asked.get("imports").fields().forEachRemaining(each -> imports.put(each.getKey(), parsed(each.getValue().asText())));
            String times = "google/protobuf/timestamp.proto";
            try (InputStream text = JavaProtobuf.class.getClassLoader().getResourceAsStream(times)) {
                imports.put(times, parsed(new String(text.readAllBytes(), StandardCharsets.UTF_8)));
            }
            found = FileDescriptorUtils.toDescriptor(path.get(0), own, imports);
        }
        for (String name : path.subList(1, path.size())) {
            found = found.findNestedTypeByName(name);
        }
        return found;
    }
}
