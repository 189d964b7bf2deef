/* A librdkafka consumer in assign mode whose records arrive as columns.
 *
 * confluent-kafka makes an object of each message, and each field of the object costs a call. Here a batch becomes
 * lists at once, one group of lists for each partition. Python's side is consumer.py, which also has the fallback for
 * an installation without this extension.
 */
#include "rdkafka.h"

typedef struct {
    PyObject_HEAD
    Client *client;
    rd_kafka_queue_t *queue;
    rd_kafka_queue_t *deferred; /* NULL: no partition is deferred */
    ssize_t most_deferred;      /* records of a poll */
    int woken;                  /* by another thread, for the next wait */
    rd_kafka_message_t **messages;
    int *group_of;
    int capacity;
} Consumer;

static int consumer_init(Consumer *self, PyObject *args, PyObject *kwargs) {
    PyObject *settings;
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &settings) || client_open(&self->client, CONSUMER, settings, NULL) < 0)
        return -1;
    rd_poll_set_consumer(self->client->client);
    self->queue = rd_queue_get_consumer(self->client->client);
    return 0;
}

static void shut(Consumer *self) {
    rd_kafka_t *client = self->client ? self->client->client : NULL;
    if (client == NULL)
        return;
    rd_kafka_queue_t *queue = self->queue, *deferred = self->deferred;
    self->client->client = NULL;
    self->queue = self->deferred = NULL;
    Py_BEGIN_ALLOW_THREADS
    if (deferred != NULL) {
        rd_queue_cb_event_enable(deferred, NULL, NULL);
        rd_queue_destroy(deferred);
    }
    rd_queue_destroy(queue);
    /* The consumer is in no group that it has to leave. A close without a coordinator would try for a whole session. */
    rd_destroy_flags(client, DESTROY_NO_CONSUMER_CLOSE);
    Py_END_ALLOW_THREADS
}

static void consumer_dealloc(Consumer *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    shut(self);
    client_free(self->client);
    free(self->messages);
    free(self->group_of);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *consumer_close(Consumer *self, PyObject *unused) {
    shut(self);
    Py_RETURN_NONE;
}

/* [(topic, partition, offset)], or with the leader epoch of the record before the offset as a fourth field. With a leader
 * epoch, the client compares the offset with the log of the leader before it fetches (KIP-320). */
static rd_kafka_topic_partition_list_t *partition_list(PyObject *given) {
    Py_ssize_t count = PySequence_Size(given);
    if (count < 0)
        return NULL;
    rd_kafka_topic_partition_list_t *list = rd_topic_partition_list_new((int)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *topic;
        int partition, epoch = -1;
        long long offset;
        PyObject *item = PySequence_GetItem(given, i);
        if (item == NULL || !PyArg_ParseTuple(item, "siL|i", &topic, &partition, &offset, &epoch)) {
            Py_XDECREF(item);
            rd_topic_partition_list_destroy(list);
            return NULL;
        }
        rd_kafka_topic_partition_t *added = rd_topic_partition_list_add(list, topic, partition);
        added->offset = offset;
        rd_topic_partition_set_leader_epoch(added, epoch);
        Py_DECREF(item);
    }
    return list;
}

static int code_of(rd_kafka_error_t *error) {
    int code = 0;
    if (error != NULL) {
        code = rd_error_code(error);
        rd_error_destroy(error);
    }
    return code;
}

static int first_error(int code, const rd_kafka_topic_partition_list_t *list) {
    for (int i = 0; code == 0 && i < list->cnt; i++)
        code = list->elems[i].err;
    return code;
}

/* By itself, the client asks only once a second where new topics are. This call makes the client ask now. Nobody waits
 * for the answer, which comes behind that of a fetch. */
static int look_up(rd_kafka_t *client, int code, const rd_kafka_topic_partition_list_t *list) {
    const struct rd_kafka_metadata *known;
    if (code == 0 && list->cnt > 0 && !rd_metadata(client, 0, NULL, &known, 0))
        rd_metadata_destroy(known);
    return code;
}

#define LIST_METHOD(name, call)                                                       \
    static PyObject *consumer_##name(Consumer *self, PyObject *given) {               \
        rd_kafka_topic_partition_list_t *list;                                        \
        int code;                                                                     \
        if (!client_is_open(self->client) || (list = partition_list(given)) == NULL)                 \
            return NULL;                                                              \
        Py_BEGIN_ALLOW_THREADS                                                        \
        code = call;                                                                  \
        Py_END_ALLOW_THREADS                                                          \
        rd_topic_partition_list_destroy(list);                                        \
        if (code)                                                                     \
            return raise_error(code, NULL);                                           \
        Py_RETURN_NONE;                                                               \
    }

LIST_METHOD(assign, look_up(self->client->client, rd_assign(self->client->client, list), list))
LIST_METHOD(incremental_assign,
            look_up(self->client->client, code_of(rd_incremental_assign(self->client->client, list)), list))
LIST_METHOD(incremental_unassign, code_of(rd_incremental_unassign(self->client->client, list)))
LIST_METHOD(pause, first_error(rd_pause_partitions(self->client->client, list), list))
LIST_METHOD(resume, first_error(rd_resume_partitions(self->client->client, list), list))

/* Called by librdkafka's threads: `deferred` has records again, so a `poll` that waits for `queue` must end. */
static void on_deferred(rd_kafka_t *client, void *queue) { rd_queue_yield(queue); }

/* Gives the records of these partitions a queue of their own, which `poll` reads after the other one. Once this call was
 * made, the client never forwards the records of such a partition by itself. But when it stops to fetch a partition, it
 * takes the partition out of the queue, and that may come after the call that assigned the partition again. So the call
 * has to be repeated. Records that arrive in between wait for the next call. */
static PyObject *consumer_defer(Consumer *self, PyObject *args) {
    PyObject *given;
    int most;
    rd_kafka_topic_partition_list_t *list;
    if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "Oi", &given, &most) || (list = partition_list(given)) == NULL)
        return NULL;
    rd_kafka_t *client = self->client->client;
    self->most_deferred = most;
    Py_BEGIN_ALLOW_THREADS
    if (self->deferred == NULL) {
        self->deferred = rd_queue_new(client);
        rd_queue_cb_event_enable(self->deferred, on_deferred, self->queue);
    }
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_queue_t *one = rd_queue_get_partition(client, list->elems[i].topic, list->elems[i].partition);
        if (one != NULL) {
            rd_queue_forward(one, self->deferred);
            rd_queue_destroy(one);
        }
    }
    Py_END_ALLOW_THREADS
    rd_topic_partition_list_destroy(list);
    Py_RETURN_NONE;
}

static PyObject *consumer_committed(Consumer *self, PyObject *args) {
    PyObject *given;
    double seconds;
    int code;
    rd_kafka_topic_partition_list_t *list;
    if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "Od", &given, &seconds) || (list = partition_list(given)) == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    code = first_error(rd_committed(self->client->client, list, (int)(seconds * 1000)), list);
    Py_END_ALLOW_THREADS
    PyObject *found = code ? raise_error(code, NULL) : PyList_New(0);
    for (int i = 0; found != NULL && i < list->cnt; i++) {
        rd_kafka_topic_partition_t *each = &list->elems[i];
        PyObject *row = Py_BuildValue("(siLy#)", each->topic, (int)each->partition, (long long)each->offset,
                                      each->metadata ? (char *)each->metadata : "",
                                      (Py_ssize_t)(each->metadata ? each->metadata_size : 0));
        if (row == NULL || PyList_Append(found, row) < 0)
            Py_CLEAR(found);
        Py_XDECREF(row);
    }
    rd_topic_partition_list_destroy(list);
    return found;
}

static PyObject *consumer_high_watermark(Consumer *self, PyObject *args) {
    const char *topic;
    int partition;
    int64_t low = -1, high = -1;
    if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "si", &topic, &partition))
        return NULL;
    if (rd_get_watermark_offsets(self->client->client, topic, partition, &low, &high))
        high = -1;
    return PyLong_FromLongLong(high);
}

/* For other threads: ends the wait of the running poll, or else of the next poll. Python's lock is held here, and
 * `shut` takes the queue away with this lock held. The queue's own lock is only held for a moment. */
static PyObject *consumer_wake(Consumer *self, PyObject *unused) {
    __atomic_store_n(&self->woken, 1, __ATOMIC_SEQ_CST);
    if (self->queue != NULL)
        rd_queue_yield(self->queue);
    Py_RETURN_NONE;
}

/* True if all brokers were out of reach at some time since the last call. */
static PyObject *consumer_take_lost(Consumer *self, PyObject *unused) {
    int lost = self->client != NULL && self->client->lost;
    if (lost)
        self->client->lost = 0;
    return PyBool_FromLong(lost);
}

static PyObject *consumer_take_log(Consumer *self, PyObject *unused) { return client_take_log(self->client); }

/* ---- records ---- */

/* The records of one partition. A column is filled from the front; `count` is its final length. */
typedef struct {
    rd_kafka_topic_t *topic;
    int32_t partition;
    Py_ssize_t count, filled;
    int32_t epoch; /* of the last record */
    PyObject *keys, *values, *timestamps, *offsets, *headers;
    PyObject *epochs; /* [(number of a record, its leader epoch)], for each change */
} Group;

typedef struct {
    Group *groups;
    int count, room;
} Groups;

/* The number of a message's group, a new one if need be; -1: no memory. Messages come in runs of one partition. */
static int group_index(Groups *all, const rd_kafka_message_t *message, int last) {
    if (last >= 0 && all->groups[last].topic == message->rkt && all->groups[last].partition == message->partition)
        return last;
    for (int i = 0; i < all->count; i++)
        if (all->groups[i].topic == message->rkt && all->groups[i].partition == message->partition)
            return i;
    if (all->count == all->room) {
        int room = all->room ? 2 * all->room : 16;
        Group *groups = realloc(all->groups, room * sizeof(Group));
        if (groups == NULL)
            return -1;
        all->groups = groups;
        all->room = room;
    }
    Group *group = &all->groups[all->count];
    memset(group, 0, sizeof *group);
    group->topic = message->rkt;
    group->partition = message->partition;
    return all->count++;
}

static PyObject *headers_of(rd_kafka_headers_t *headers) {
    const char *name;
    const void *value;
    size_t length;
    PyObject *rows = PyList_New(0);
    for (size_t i = 0; rows != NULL && !rd_header_get_all(headers, i, &name, &value, &length); i++) {
        PyObject *row = Py_BuildValue("(sN)", name, bytes_or_none(value, length));
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    PyObject *result = rows ? PyList_AsTuple(rows) : NULL;
    Py_XDECREF(rows);
    return result;
}

/* Headers are rare: the column is made with the first record that has any, and holds () for the others. */
static int add_headers(Group *group, PyObject *headers) {
    if (group->headers == NULL) {
        PyObject *none = PyTuple_New(0);
        group->headers = none ? PyList_New(group->count) : NULL;
        for (Py_ssize_t i = 0; group->headers != NULL && i < group->count; i++) {
            Py_INCREF(none);
            PyList_SetItem(group->headers, i, none);
        }
        Py_XDECREF(none);
    }
    if (group->headers == NULL) {
        Py_DECREF(headers);
        return -1;
    }
    return PyList_SetItem(group->headers, group->filled, headers);
}

/* Leader epochs seldom change, so only changes are noted. */
static int note_epoch(Group *group, int32_t epoch) {
    if (group->filled > 0 && epoch == group->epoch)
        return 0;
    group->epoch = epoch;
    PyObject *change = Py_BuildValue("(ni)", group->filled, (int)epoch);
    int result = change ? PyList_Append(group->epochs, change) : -1;
    Py_XDECREF(change);
    return result;
}

static int add_record(Group *group, const rd_kafka_message_t *message) {
    rd_kafka_headers_t *headers = NULL;
    int kind;
    PyObject *key = bytes_or_none(message->key, message->key_len);
    PyObject *value = bytes_or_none(message->payload, message->len);
    PyObject *timestamp = PyLong_FromLongLong(rd_message_timestamp(message, &kind));
    PyObject *offset = PyLong_FromLongLong(message->offset);
    if (key == NULL || value == NULL || timestamp == NULL || offset == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        Py_XDECREF(timestamp);
        Py_XDECREF(offset);
        return -1;
    }
    PyList_SetItem(group->keys, group->filled, key);
    PyList_SetItem(group->values, group->filled, value);
    PyList_SetItem(group->timestamps, group->filled, timestamp);
    PyList_SetItem(group->offsets, group->filled, offset);
    if (!rd_message_headers(message, &headers)) {
        PyObject *row = headers_of(headers);
        if (row == NULL || add_headers(group, row) < 0)
            return -1;
    }
    if (note_epoch(group, rd_message_leader_epoch(message)) < 0)
        return -1;
    group->filled++;
    return 0;
}

static int add_event(PyObject *events, const rd_kafka_message_t *message) {
    const char *topic = message->rkt ? rd_topic_name(message->rkt) : "";
    PyObject *error = make_error(message->err, rd_message_errstr(message));
    PyObject *event =
        error ? Py_BuildValue("(siLN)", topic, (int)message->partition, (long long)message->offset, error) : NULL;
    int result = event ? PyList_Append(events, event) : -1;
    Py_XDECREF(event);
    return result;
}

static int make_columns(Groups *all) {
    for (int i = 0; i < all->count; i++) {
        Group *group = &all->groups[i];
        group->keys = PyList_New(group->count);
        group->values = PyList_New(group->count);
        group->timestamps = PyList_New(group->count);
        group->offsets = PyList_New(group->count);
        group->epochs = PyList_New(0);
        if (group->keys == NULL || group->values == NULL || group->timestamps == NULL || group->offsets == NULL ||
            group->epochs == NULL)
            return -1;
    }
    return 0;
}

static int fill(Consumer *self, int count, Groups *all, PyObject *events) {
    int last = -1;
    for (int i = 0; i < count; i++) {
        rd_kafka_message_t *message = self->messages[i];
        self->group_of[i] = -1;
        if (message->err) {
            if (add_event(events, message) < 0)
                return -1;
            continue;
        }
        last = group_index(all, message, last);
        if (last < 0) {
            PyErr_NoMemory();
            return -1;
        }
        self->group_of[i] = last;
        all->groups[last].count++;
    }
    if (make_columns(all) < 0)
        return -1;
    for (int i = 0; i < count; i++)
        if (self->group_of[i] >= 0 && add_record(&all->groups[self->group_of[i]], self->messages[i]) < 0)
            return -1;
    return 0;
}

static PyObject *batches_of(const Groups *all) {
    PyObject *batches = PyList_New(0);
    for (int i = 0; batches != NULL && i < all->count; i++) {
        const Group *group = &all->groups[i];
        PyObject *batch = Py_BuildValue("(siOOOOOO)", rd_topic_name(group->topic), (int)group->partition, group->keys,
                                        group->values, group->timestamps, group->offsets,
                                        group->headers ? group->headers : Py_None, group->epochs);
        if (batch == NULL || PyList_Append(batches, batch) < 0)
            Py_CLEAR(batches);
        Py_XDECREF(batch);
    }
    return batches;
}

static ssize_t take_from(Consumer *self, rd_kafka_queue_t *queue, ssize_t count, ssize_t most) {
    ssize_t more = most > 0 ? rd_consume_batch_queue(queue, 0, self->messages + count, most) : 0;
    return more < 0 ? count : count + more;
}

/* Takes records that have arrived, those of deferred partitions last; waits for the first record. A tenth of the
 * deferred records has room in each call: others may write records for the first queue faster than this client reads. */
static ssize_t take(Consumer *self, ssize_t most, int milliseconds) {
    ssize_t kept = self->deferred == NULL ? 0 : self->most_deferred / 10;
    int waits[] = {self->deferred == NULL ? milliseconds : 0, milliseconds};
    ssize_t count = 0;
    for (int i = 0; count == 0 && i < (self->deferred != NULL && milliseconds > 0 ? 2 : 1); i++) {
        if (i == 1 && __atomic_exchange_n(&self->woken, 0, __ATOMIC_SEQ_CST))
            break; /* the look that does not wait may have taken the queue's own mark */
        rd_kafka_message_t *first = rd_consumer_poll(self->client->client, waits[i]);
        if (first != NULL) {
            self->messages[0] = first;
            count = take_from(self, self->queue, 1, most - 1 - kept);
        }
        if (self->deferred != NULL)
            count = take_from(self, self->deferred, count,
                              most - count < self->most_deferred ? most - count : self->most_deferred);
    }
    return count;
}

static PyObject *consumer_poll(Consumer *self, PyObject *args) {
    int most;
    double seconds;
    ssize_t count = 0;
    if (!client_is_open(self->client) || !PyArg_ParseTuple(args, "id", &most, &seconds))
        return NULL;
    if (most < 1)
        most = 1;
    if (most > self->capacity) {
        rd_kafka_message_t **messages = realloc(self->messages, most * sizeof *messages);
        if (messages != NULL)
            self->messages = messages;
        int *group_of = realloc(self->group_of, most * sizeof *group_of);
        if (group_of != NULL)
            self->group_of = group_of;
        if (messages == NULL || group_of == NULL)
            return PyErr_NoMemory();
        self->capacity = most;
    }
    Py_BEGIN_ALLOW_THREADS
    count = take(self, most, (int)(seconds * 1000));
    Py_END_ALLOW_THREADS

    Groups all = {NULL, 0, 0};
    PyObject *result = NULL, *batches = NULL, *events = PyList_New(0);
    if (events != NULL && fill(self, (int)count, &all, events) == 0 && (batches = batches_of(&all)) != NULL)
        result = PyTuple_Pack(2, batches, events);
    Py_XDECREF(batches);
    Py_XDECREF(events);
    for (int i = 0; i < all.count; i++) {
        Py_XDECREF(all.groups[i].keys);
        Py_XDECREF(all.groups[i].values);
        Py_XDECREF(all.groups[i].timestamps);
        Py_XDECREF(all.groups[i].offsets);
        Py_XDECREF(all.groups[i].headers);
        Py_XDECREF(all.groups[i].epochs);
    }
    free(all.groups);
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < count; i++)
        rd_message_destroy(self->messages[i]);
    Py_END_ALLOW_THREADS
    return result;
}

/* ---- the type ---- */

static PyMethodDef consumer_methods[] = {
    {"assign", (PyCFunction)consumer_assign, METH_O, NULL},
    {"incremental_assign", (PyCFunction)consumer_incremental_assign, METH_O, NULL},
    {"incremental_unassign", (PyCFunction)consumer_incremental_unassign, METH_O, NULL},
    {"defer", (PyCFunction)consumer_defer, METH_VARARGS, NULL},
    {"pause", (PyCFunction)consumer_pause, METH_O, NULL},
    {"resume", (PyCFunction)consumer_resume, METH_O, NULL},
    {"committed", (PyCFunction)consumer_committed, METH_VARARGS, NULL},
    {"high_watermark", (PyCFunction)consumer_high_watermark, METH_VARARGS, NULL},
    {"poll", (PyCFunction)consumer_poll, METH_VARARGS, NULL},
    {"wake", (PyCFunction)consumer_wake, METH_NOARGS, NULL},
    {"take_log", (PyCFunction)consumer_take_log, METH_NOARGS, NULL},
    {"take_lost", (PyCFunction)consumer_take_lost, METH_NOARGS, NULL},
    {"close", (PyCFunction)consumer_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot consumer_slots[] = {
    {Py_tp_doc, "Consumer(settings): a librdkafka consumer whose records arrive as columns."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, consumer_init},
    {Py_tp_dealloc, consumer_dealloc},
    {Py_tp_methods, consumer_methods},
    {0, NULL},
};

static PyType_Spec consumer_spec = {"streamapp.broker._native.Consumer", sizeof(Consumer), 0,
                                    Py_TPFLAGS_DEFAULT, consumer_slots};

PyObject *make_consumer_type(void) { return PyType_FromSpec(&consumer_spec); }
