/* A librdkafka producer that costs little for each record.
 *
 * confluent-kafka's producer parses its arguments by name, looks the topic up for each record, and keeps an object for
 * the delivery report. Here a topic is looked up once. Only failures are reported, and collected until somebody takes
 * them. Python's side is streamapp/runners/worker/sender.py. It also has the fallback for an installation without this
 * extension.
 */
#include "rdkafka.h"

typedef struct {
    PyObject *name;
    rd_kafka_topic_t *topic;
} Topic;

typedef struct {
    PyObject_HEAD
    Client *client;
    Topic *topics;
    int count, room;
    long long records, bytes; /* that were taken since it was opened */
} Producer;

/* Called by librdkafka inside calls that serve delivery reports, such as poll. These calls let go of Python's lock. */
static void keep_failure(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    if (!message->err)
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *failure =
        Py_BuildValue("(NsiNNL)", make_error(message->err, NULL), rd_topic_name(message->rkt), (int)message->partition,
                      bytes_or_none(message->key, message->key_len), bytes_or_none(message->payload, message->len),
                      (long long)(intptr_t)message->_private); /* librdkafka forgets the timestamp */
    if (failure == NULL || PyList_Append(((Client *)opaque)->failures, failure) < 0)
        PyErr_WriteUnraisable(NULL);
    Py_XDECREF(failure);
    PyGILState_Release(state);
}

static int producer_init(Producer *self, PyObject *args, PyObject *kwargs) {
    PyObject *settings;
    return PyArg_ParseTuple(args, "O!", &PyDict_Type, &settings) ? client_open(&self->client, PRODUCER, settings, keep_failure) : -1;
}

static void producer_dealloc(Producer *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->client != NULL) {
        Py_BEGIN_ALLOW_THREADS
        for (int i = 0; i < self->count; i++)
            rd_topic_destroy(self->topics[i].topic);
        rd_destroy(self->client->client);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < self->count; i++)
        Py_DECREF(self->topics[i].name);
    free(self->topics);
    client_free(self->client);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- records ---- */

static rd_kafka_topic_t *add_topic(Producer *self, PyObject *name) {
    if (self->count == self->room) {
        int room = self->room ? 2 * self->room : 8;
        Topic *topics = realloc(self->topics, room * sizeof(Topic));
        if (topics == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        self->topics = topics;
        self->room = room;
    }
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (text == NULL)
        return NULL;
    rd_kafka_topic_t *topic = rd_topic_new(self->client->client, text, NULL);
    if (topic == NULL) {
        raise_error(rd_last_error(), NULL);
        return NULL;
    }
    Py_INCREF(name);
    self->topics[self->count++] = (Topic){name, topic};
    return topic;
}

/* A topology has few topics, and names each with one object. */
static rd_kafka_topic_t *find_topic(Producer *self, PyObject *name) {
    for (int i = 0; i < self->count; i++)
        if (self->topics[i].name == name)
            return self->topics[i].topic;
    for (int i = 0; i < self->count; i++) {
        int same = PyObject_RichCompareBool(self->topics[i].name, name, Py_EQ);
        if (same)
            return same > 0 ? self->topics[i].topic : NULL;
    }
    return add_topic(self, name);
}

/* From a sequence of (str, bytes or None). */
static rd_kafka_headers_t *make_headers(PyObject *given) {
    Py_ssize_t count = PySequence_Size(given);
    if (count < 0)
        return NULL;
    rd_kafka_headers_t *headers = rd_headers_new((size_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *name, *value;
        Py_ssize_t name_length, length;
        PyObject *item = PySequence_GetItem(given, i), *row = item ? PySequence_Tuple(item) : NULL;
        int fits = row != NULL && PyArg_ParseTuple(row, "s#z#", &name, &name_length, &value, &length);
        int code = fits ? rd_header_add(headers, name, name_length, value, length) : 0;
        Py_XDECREF(item);
        Py_XDECREF(row);
        if (code)
            raise_error(code, NULL);
        if (!fits || code) {
            rd_headers_destroy(headers);
            return NULL;
        }
    }
    return headers;
}

static int set_bytes(rd_kafka_vu_t *into, int vtype, PyObject *given) {
    char *data = NULL;
    Py_ssize_t length = 0;
    if (given != Py_None && PyBytes_AsStringAndSize(given, &data, &length) < 0)
        return -1;
    into->vtype = vtype;
    into->u.mem.ptr = data;
    into->u.mem.size = (size_t)length;
    return 0;
}

/* produce(topic, value, key, partition, timestamp, headers) */
static PyObject *producer_produce(Producer *self, PyObject *const *args, Py_ssize_t count) {
    rd_kafka_vu_t parts[8];
    int used = 7;
    if (!client_is_open(self->client))
        return NULL;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "produce takes topic, value, key, partition, timestamp and headers");
        return NULL;
    }
    rd_kafka_topic_t *topic = find_topic(self, args[0]);
    if (topic == NULL || set_bytes(&parts[1], VTYPE_VALUE, args[1]) < 0 || set_bytes(&parts[2], VTYPE_KEY, args[2]) < 0)
        return NULL;
    parts[0].vtype = VTYPE_RKT;
    parts[0].u.rkt = topic;
    parts[3].vtype = VTYPE_PARTITION;
    parts[3].u.i32 = (int32_t)PyLong_AsLong(args[3]);
    parts[4].vtype = VTYPE_TIMESTAMP;
    parts[4].u.i64 = PyLong_AsLongLong(args[4]);
    parts[5].vtype = VTYPE_MSGFLAGS;
    parts[5].u.i = MSG_F_COPY;
    parts[6].vtype = VTYPE_OPAQUE;
    parts[6].u.ptr = (void *)(intptr_t)parts[4].u.i64; /* for `keep_failure` */
    if (PyErr_Occurred())
        return NULL;
    int filled = PyObject_IsTrue(args[5]);
    if (filled < 0)
        return NULL;
    if (filled) {
        parts[7].vtype = VTYPE_HEADERS;
        parts[7].u.headers = make_headers(args[5]);
        if (parts[7].u.headers == NULL)
            return NULL;
        used = 8;
    }
    rd_kafka_error_t *error = rd_produceva(self->client->client, parts, (size_t)used);
    if (error == NULL) {
        self->records++;
        self->bytes += (long long)(parts[1].u.mem.size + parts[2].u.mem.size);
        Py_RETURN_NONE;
    }
    if (filled)
        rd_headers_destroy(parts[7].u.headers); /* librdkafka owns them only if it took the record */
    if (rd_error_code(error) != ERR_QUEUE_FULL)
        return raise_if(error);
    PyErr_SetString(PyExc_BufferError, rd_error_string(error));
    rd_error_destroy(error);
    return NULL;
}

/* One record of produce_rows. Returns 1 if librdkafka has taken it, 0 if it has not, and -1 with an exception. */
static int produce_row(Producer *self, rd_kafka_vu_t *parts, PyObject *keys, PyObject *values, PyObject *times, Py_ssize_t at) {
    PyObject *key = PySequence_GetItem(keys, at), *value = PySequence_GetItem(values, at), *time = PySequence_GetItem(times, at);
    int taken = -1;
    if (key != NULL && value != NULL && time != NULL && set_bytes(&parts[1], VTYPE_VALUE, value) == 0 &&
        set_bytes(&parts[2], VTYPE_KEY, key) == 0) {
        int64_t timestamp = PyLong_AsLongLong(time);
        if (timestamp == 0)
            timestamp = 1; /* librdkafka takes 0 for "now" */
        parts[4].u.i64 = timestamp;
        parts[6].u.ptr = (void *)(intptr_t)timestamp; /* for `keep_failure` */
        if (!PyErr_Occurred()) {
            rd_kafka_error_t *error = rd_produceva(self->client->client, parts, 7);
            taken = error == NULL;
            if (error != NULL)
                rd_error_destroy(error); /* the caller's produce of this record gets the error again */
            else {
                self->records++;
                self->bytes += (long long)(parts[1].u.mem.size + parts[2].u.mem.size);
            }
        }
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(time);
    return taken;
}

/* produce_rows(topic, partition, keys, values, timestamps, start, end): the index of the first record not taken */
static PyObject *producer_produce_rows(Producer *self, PyObject *const *args, Py_ssize_t count) {
    rd_kafka_vu_t parts[7];
    if (!client_is_open(self->client))
        return NULL;
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "produce_rows takes topic, partition, keys, values, timestamps, start and end");
        return NULL;
    }
    parts[0].vtype = VTYPE_RKT;
    parts[0].u.rkt = find_topic(self, args[0]);
    if (parts[0].u.rkt == NULL)
        return NULL;
    parts[3].vtype = VTYPE_PARTITION;
    parts[3].u.i32 = (int32_t)PyLong_AsLong(args[1]);
    parts[4].vtype = VTYPE_TIMESTAMP;
    parts[5].vtype = VTYPE_MSGFLAGS;
    parts[5].u.i = MSG_F_COPY;
    parts[6].vtype = VTYPE_OPAQUE;
    Py_ssize_t at = PyLong_AsSsize_t(args[5]), end = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred())
        return NULL;
    for (; at < end; at++) {
        int taken = produce_row(self, parts, args[2], args[3], args[4], at);
        if (taken < 0)
            return NULL;
        if (!taken)
            break;
    }
    return PyLong_FromSsize_t(at);
}

/* After a fatal error, librdkafka sends nothing more. Its poll and flush do not tell. */
static int has_failed(Producer *self) {
    char reason[512] = "";
    if (!rd_fatal_error(self->client->client, reason, sizeof reason))
        return 0;
    raise_error(ERR_FATAL, reason);
    return 1;
}

static PyObject *producer_poll(Producer *self, PyObject *args) {
    double seconds;
    if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "d", &seconds))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rd_poll(self->client->client, (int)(seconds * 1000));
    Py_END_ALLOW_THREADS
    if (has_failed(self))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *producer_flush(Producer *self, PyObject *args) {
    double seconds;
    if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "d", &seconds))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rd_flush(self->client->client, (int)(seconds * 1000));
    Py_END_ALLOW_THREADS
    return has_failed(self) ? NULL : PyLong_FromLong(rd_outq_len(self->client->client));
}

static PyObject *producer_purge(Producer *self, PyObject *unused) {
    if (!client_is_open(self->client))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rd_purge(self->client->client, PURGE_QUEUE | PURGE_IN_FLIGHT | PURGE_AT_ONCE);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static Py_ssize_t producer_length(Producer *self) { return self->client ? rd_outq_len(self->client->client) : 0; }

static PyObject *producer_taken(Producer *self, PyObject *unused) { return Py_BuildValue("(LL)", self->records, self->bytes); }

static PyObject *producer_take_failures(Producer *self, PyObject *unused) {
    if (!client_is_open(self->client))
        return NULL;
    PyObject *taken = self->client->failures, *none = PyList_New(0);
    if (none == NULL)
        return NULL;
    self->client->failures = none;
    return taken;
}

static PyObject *producer_take_log(Producer *self, PyObject *unused) { return client_take_log(self->client); }

/* ---- transactions ---- */

#define TIMED_CALL(name)                                                       \
    static PyObject *producer_##name(Producer *self, PyObject *args) {         \
        double seconds;                                                        \
        rd_kafka_error_t *error;                                               \
        if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "d", &seconds)) \
            return NULL;                                                       \
        Py_BEGIN_ALLOW_THREADS                                                 \
        error = rd_##name(self->client->client, (int)(seconds * 1000));        \
        Py_END_ALLOW_THREADS                                                   \
        return raise_if(error);                                                \
    }

TIMED_CALL(init_transactions)
TIMED_CALL(commit_transaction)
TIMED_CALL(abort_transaction)

static PyObject *producer_begin_transaction(Producer *self, PyObject *unused) {
    return client_is_open(self->client) ? raise_if(rd_begin_transaction(self->client->client)) : NULL;
}

/* From [(topic, partition, offset, metadata)]. */
static rd_kafka_topic_partition_list_t *make_offsets(PyObject *given) {
    Py_ssize_t count = PySequence_Size(given);
    if (count < 0)
        return NULL;
    rd_kafka_topic_partition_list_t *list = rd_topic_partition_list_new((int)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *topic, *metadata;
        int partition;
        long long offset;
        Py_ssize_t length;
        PyObject *row = PySequence_GetItem(given, i);
        int fits = row != NULL && PyArg_ParseTuple(row, "siLs#", &topic, &partition, &offset, &metadata, &length);
        char *copy = fits ? malloc((size_t)length + 1) : NULL;
        if (fits && copy == NULL)
            PyErr_NoMemory();
        if (copy == NULL) {
            Py_XDECREF(row);
            rd_topic_partition_list_destroy(list);
            return NULL;
        }
        rd_kafka_topic_partition_t *added = rd_topic_partition_list_add(list, topic, partition);
        added->offset = offset;
        added->metadata = memcpy(copy, metadata, (size_t)length + 1); /* the list frees it */
        added->metadata_size = (size_t)length;
        Py_DECREF(row);
    }
    return list;
}

/* send_offsets_to_transaction(offsets, group, generation, member, seconds) */
static PyObject *producer_send_offsets(Producer *self, PyObject *args) {
    PyObject *given;
    const char *group, *member;
    int generation;
    double seconds;
    rd_kafka_error_t *error;
    if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "Osisd", &given, &group, &generation, &member, &seconds))
        return NULL;
    rd_kafka_topic_partition_list_t *offsets = make_offsets(given);
    if (offsets == NULL)
        return NULL;
    rd_kafka_consumer_group_metadata_t *metadata = rd_consumer_group_metadata_new_with_genid(group, generation, member, NULL);
    Py_BEGIN_ALLOW_THREADS
    error = rd_send_offsets_to_transaction(self->client->client, offsets, metadata, (int)(seconds * 1000));
    Py_END_ALLOW_THREADS
    rd_consumer_group_metadata_destroy(metadata);
    rd_topic_partition_list_destroy(offsets);
    return raise_if(error);
}

/* ---- the type ---- */

static PyMethodDef producer_methods[] = {
    {"produce", (PyCFunction)(void (*)(void))producer_produce, METH_FASTCALL, NULL},
    {"produce_rows", (PyCFunction)(void (*)(void))producer_produce_rows, METH_FASTCALL, NULL},
    {"poll", (PyCFunction)producer_poll, METH_VARARGS, NULL},
    {"flush", (PyCFunction)producer_flush, METH_VARARGS, NULL},
    {"purge", (PyCFunction)producer_purge, METH_NOARGS, NULL},
    {"taken", (PyCFunction)producer_taken, METH_NOARGS, NULL},
    {"take_failures", (PyCFunction)producer_take_failures, METH_NOARGS, NULL},
    {"take_log", (PyCFunction)producer_take_log, METH_NOARGS, NULL},
    {"init_transactions", (PyCFunction)producer_init_transactions, METH_VARARGS, NULL},
    {"begin_transaction", (PyCFunction)producer_begin_transaction, METH_NOARGS, NULL},
    {"send_offsets_to_transaction", (PyCFunction)producer_send_offsets, METH_VARARGS, NULL},
    {"commit_transaction", (PyCFunction)producer_commit_transaction, METH_VARARGS, NULL},
    {"abort_transaction", (PyCFunction)producer_abort_transaction, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot producer_slots[] = {
    {Py_tp_doc, "Producer(settings): a librdkafka producer that reports failures only."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, producer_init},
    {Py_tp_dealloc, producer_dealloc},
    {Py_sq_length, producer_length},
    {Py_tp_methods, producer_methods},
    {0, NULL},
};

static PyType_Spec producer_spec = {"streamapp.broker._native.Producer", sizeof(Producer), 0, Py_TPFLAGS_DEFAULT,
                                    producer_slots};

PyObject *make_producer_type(void) { return PyType_FromSpec(&producer_spec); }
