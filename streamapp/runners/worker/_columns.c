/* A librdkafka consumer in assign mode whose records arrive as columns.
 *
 * confluent-kafka makes an object of each message, of which the worker then asks key, value, timestamp and offset one by
 * one. Here a batch becomes lists at once, one group of lists for each partition. What is used of librdkafka is its public
 * C interface, from the library that confluent-kafka has loaded: nothing is linked, no header is needed.
 *
 * Python's side, with the fallback for where this was not compiled, is consumer.py.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* ---- librdkafka's public interface, as far as it is used ---- */

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *_private;
} rd_kafka_topic_partition_t;

typedef struct {
    int cnt;
    int size;
    rd_kafka_topic_partition_t *elems;
} rd_kafka_topic_partition_list_t;

enum { CONSUMER = 1, CONF_OK = 0 };

#define FUNCTIONS(F)                                                                                             \
    F(rd_kafka_conf_t *, conf_new, (void))                                                                       \
    F(void, conf_destroy, (rd_kafka_conf_t *))                                                                   \
    F(int, conf_set, (rd_kafka_conf_t *, const char *, const char *, char *, size_t))                            \
    F(void, conf_set_log_cb, (rd_kafka_conf_t *, void (*)(const rd_kafka_t *, int, const char *, const char *))) \
    F(void, conf_set_opaque, (rd_kafka_conf_t *, void *))                                                        \
    F(void *, opaque, (const rd_kafka_t *))                                                                      \
    F(rd_kafka_t *, new, (int, rd_kafka_conf_t *, char *, size_t))                                               \
    F(void, destroy, (rd_kafka_t *))                                                                             \
    F(int, poll_set_consumer, (rd_kafka_t *))                                                                    \
    F(int, consumer_close, (rd_kafka_t *))                                                                       \
    F(rd_kafka_queue_t *, queue_get_consumer, (rd_kafka_t *))                                                    \
    F(void, queue_destroy, (rd_kafka_queue_t *))                                                                 \
    F(rd_kafka_message_t *, consumer_poll, (rd_kafka_t *, int))                                                  \
    F(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))                    \
    F(void, message_destroy, (rd_kafka_message_t *))                                                             \
    F(int64_t, message_timestamp, (const rd_kafka_message_t *, int *))                                           \
    F(const char *, message_errstr, (const rd_kafka_message_t *))                                                \
    F(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                 \
    F(int, header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))         \
    F(const char *, name, (const rd_kafka_t *))                                                                  \
    F(const char *, topic_name, (const rd_kafka_topic_t *))                                                      \
    F(const char *, err2str, (int))                                                                              \
    F(int, error_code, (const rd_kafka_error_t *))                                                               \
    F(void, error_destroy, (rd_kafka_error_t *))                                                                 \
    F(rd_kafka_topic_partition_list_t *, topic_partition_list_new, (int))                                        \
    F(void, topic_partition_list_destroy, (rd_kafka_topic_partition_list_t *))                                   \
    F(rd_kafka_topic_partition_t *, topic_partition_list_add,                                                    \
      (rd_kafka_topic_partition_list_t *, const char *, int32_t))                                                \
    F(int, assign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))                                      \
    F(rd_kafka_error_t *, incremental_assign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))           \
    F(rd_kafka_error_t *, incremental_unassign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))         \
    F(int, pause_partitions, (rd_kafka_t *, rd_kafka_topic_partition_list_t *))                                  \
    F(int, resume_partitions, (rd_kafka_t *, rd_kafka_topic_partition_list_t *))                                 \
    F(int, committed, (rd_kafka_t *, rd_kafka_topic_partition_list_t *, int))                                    \
    F(int, get_watermark_offsets, (rd_kafka_t *, const char *, int32_t, int64_t *, int64_t *))

#define DECLARE(result, name, arguments) static result(*rd_##name) arguments;
FUNCTIONS(DECLARE)

static PyObject *kafka_error, *kafka_exception;

static PyObject *load(PyObject *module, PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        PyErr_SetString(PyExc_ImportError, dlerror());
        return NULL;
    }
#define LOOK_UP(result, name, arguments)                                             \
    if ((*(void **)&rd_##name = dlsym(library, "rd_kafka_" #name)) == NULL) {        \
        PyErr_SetString(PyExc_ImportError, "librdkafka has no rd_kafka_" #name);     \
        return NULL;                                                                 \
    }
    FUNCTIONS(LOOK_UP)
    Py_RETURN_NONE;
}

static PyObject *make_error(int code, const char *text) {
    return PyObject_CallFunction(kafka_error, "is", code, text ? text : rd_err2str(code));
}

static PyObject *raise_error(int code, const char *text) {
    PyObject *error = make_error(code, text);
    if (error != NULL) {
        PyErr_SetObject(kafka_exception, error);
        Py_DECREF(error);
    }
    return NULL;
}

/* ---- the consumer ---- */

#define LOG_LINES 64
#define LOG_LENGTH 400

/* librdkafka's threads log without Python's lock, so lines wait here until somebody asks for them. */
typedef struct {
    pthread_mutex_t lock;
    int count;
    long lost;
    int levels[LOG_LINES];
    char lines[LOG_LINES][LOG_LENGTH];
} Log;

typedef struct {
    PyObject_HEAD
    rd_kafka_t *client;
    rd_kafka_queue_t *queue;
    Log *log;
    rd_kafka_message_t **messages;
    int *group_of;
    int capacity;
} Consumer;

static void keep_log_line(const rd_kafka_t *client, int level, const char *facility, const char *text) {
    Log *log = rd_opaque(client);
    pthread_mutex_lock(&log->lock);
    if (log->count < LOG_LINES) {
        log->levels[log->count] = level;
        PyOS_snprintf(log->lines[log->count], LOG_LENGTH, "%s [%s] %s", facility, rd_name(client), text);
        log->count++;
    } else {
        log->lost++;
    }
    pthread_mutex_unlock(&log->lock);
}

static int is_open(Consumer *self) {
    if (self->client != NULL)
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "the consumer is closed");
    return 0;
}

static int consumer_init(Consumer *self, PyObject *args, PyObject *kwargs) {
    PyObject *settings, *key, *value;
    Py_ssize_t at = 0;
    char reason[512] = "";
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &settings))
        return -1;
    if (rd_new == NULL || self->client != NULL) {
        PyErr_SetString(PyExc_RuntimeError, rd_new == NULL ? "load() first" : "the consumer is open already");
        return -1;
    }
    rd_kafka_conf_t *conf = rd_conf_new();
    while (PyDict_Next(settings, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL), *text = PyUnicode_AsUTF8AndSize(value, NULL);
        if (name == NULL || text == NULL) {
            rd_conf_destroy(conf);
            return -1;
        }
        int result = rd_conf_set(conf, name, text, reason, sizeof reason);
        if (result != CONF_OK) {
            rd_conf_destroy(conf);
            raise_error(-186, reason); /* _INVALID_ARG */
            return -1;
        }
    }
    if (self->log == NULL) {
        self->log = calloc(1, sizeof(Log));
        if (self->log == NULL) {
            rd_conf_destroy(conf);
            PyErr_NoMemory();
            return -1;
        }
        pthread_mutex_init(&self->log->lock, NULL);
    }
    rd_conf_set_opaque(conf, self->log);
    rd_conf_set_log_cb(conf, keep_log_line);
    self->client = rd_new(CONSUMER, conf, reason, sizeof reason);
    if (self->client == NULL) {
        rd_conf_destroy(conf);
        raise_error(-186, reason);
        return -1;
    }
    rd_poll_set_consumer(self->client);
    self->queue = rd_queue_get_consumer(self->client);
    return 0;
}

static void shut(Consumer *self) {
    rd_kafka_t *client = self->client;
    if (client == NULL)
        return;
    rd_kafka_queue_t *queue = self->queue;
    self->client = NULL;
    self->queue = NULL;
    Py_BEGIN_ALLOW_THREADS
    rd_consumer_close(client);
    rd_queue_destroy(queue);
    rd_destroy(client);
    Py_END_ALLOW_THREADS
}

static void consumer_dealloc(Consumer *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    shut(self);
    if (self->log != NULL) {
        pthread_mutex_destroy(&self->log->lock);
        free(self->log);
    }
    free(self->messages);
    free(self->group_of);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *consumer_close(Consumer *self, PyObject *unused) {
    shut(self);
    Py_RETURN_NONE;
}

/* [(topic, partition, offset)] */
static rd_kafka_topic_partition_list_t *partition_list(PyObject *given) {
    Py_ssize_t count = PySequence_Size(given);
    if (count < 0)
        return NULL;
    rd_kafka_topic_partition_list_t *list = rd_topic_partition_list_new((int)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *topic;
        int partition;
        long long offset;
        PyObject *item = PySequence_GetItem(given, i);
        if (item == NULL || !PyArg_ParseTuple(item, "siL", &topic, &partition, &offset)) {
            Py_XDECREF(item);
            rd_topic_partition_list_destroy(list);
            return NULL;
        }
        rd_topic_partition_list_add(list, topic, partition)->offset = offset;
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

#define LIST_METHOD(name, call)                                                       \
    static PyObject *consumer_##name(Consumer *self, PyObject *given) {               \
        rd_kafka_topic_partition_list_t *list;                                        \
        int code;                                                                     \
        if (!is_open(self) || (list = partition_list(given)) == NULL)                 \
            return NULL;                                                              \
        Py_BEGIN_ALLOW_THREADS                                                        \
        code = call;                                                                  \
        Py_END_ALLOW_THREADS                                                          \
        rd_topic_partition_list_destroy(list);                                        \
        if (code)                                                                     \
            return raise_error(code, NULL);                                           \
        Py_RETURN_NONE;                                                               \
    }

LIST_METHOD(assign, rd_assign(self->client, list))
LIST_METHOD(incremental_assign, code_of(rd_incremental_assign(self->client, list)))
LIST_METHOD(incremental_unassign, code_of(rd_incremental_unassign(self->client, list)))
LIST_METHOD(pause, first_error(rd_pause_partitions(self->client, list), list))
LIST_METHOD(resume, first_error(rd_resume_partitions(self->client, list), list))

static PyObject *consumer_committed(Consumer *self, PyObject *args) {
    PyObject *given;
    double seconds;
    int code;
    rd_kafka_topic_partition_list_t *list;
    if (!is_open(self) || !PyArg_ParseTuple(args, "Od", &given, &seconds) || (list = partition_list(given)) == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    code = first_error(rd_committed(self->client, list, (int)(seconds * 1000)), list);
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
    if (!is_open(self) || !PyArg_ParseTuple(args, "si", &topic, &partition))
        return NULL;
    if (rd_get_watermark_offsets(self->client, topic, partition, &low, &high))
        high = -1;
    return PyLong_FromLongLong(high);
}

static PyObject *consumer_take_log(Consumer *self, PyObject *unused) {
    PyObject *lines = PyList_New(0);
    Log *log = self->log;
    if (lines == NULL || log == NULL)
        return lines;
    pthread_mutex_lock(&log->lock);
    for (int i = 0; lines != NULL && i < log->count; i++) {
        PyObject *line = Py_BuildValue("(iN)", log->levels[i], PyUnicode_DecodeUTF8(log->lines[i], strlen(log->lines[i]), "replace"));
        if (line == NULL || PyList_Append(lines, line) < 0)
            Py_CLEAR(lines);
        Py_XDECREF(line);
    }
    if (lines != NULL && log->lost) {
        PyObject *line = Py_BuildValue("(iN)", 4, PyUnicode_FromFormat("%ld more lines were not kept", log->lost));
        if (line == NULL || PyList_Append(lines, line) < 0)
            Py_CLEAR(lines);
        Py_XDECREF(line);
    }
    log->count = 0;
    log->lost = 0;
    pthread_mutex_unlock(&log->lock);
    return lines;
}

/* ---- records ---- */

/* The records of one partition. A column is filled from the front; `count` is its final length. */
typedef struct {
    rd_kafka_topic_t *topic;
    int32_t partition;
    Py_ssize_t count, filled;
    PyObject *keys, *values, *timestamps, *offsets, *headers;
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

static PyObject *bytes_or_none(const void *data, size_t length) {
    if (data == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)length);
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
        if (group->keys == NULL || group->values == NULL || group->timestamps == NULL || group->offsets == NULL)
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
        PyObject *batch = Py_BuildValue("(siOOOOO)", rd_topic_name(group->topic), (int)group->partition, group->keys,
                                        group->values, group->timestamps, group->offsets,
                                        group->headers ? group->headers : Py_None);
        if (batch == NULL || PyList_Append(batches, batch) < 0)
            Py_CLEAR(batches);
        Py_XDECREF(batch);
    }
    return batches;
}

static PyObject *consumer_poll(Consumer *self, PyObject *args) {
    int most;
    double seconds;
    ssize_t count = 0;
    if (!is_open(self) || !PyArg_ParseTuple(args, "id", &most, &seconds))
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
    rd_kafka_message_t *first = rd_consumer_poll(self->client, (int)(seconds * 1000));
    if (first != NULL) {
        self->messages[0] = first;
        count = most > 1 ? rd_consume_batch_queue(self->queue, 0, self->messages + 1, most - 1) : 0;
        count = count < 0 ? 1 : count + 1;
    }
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
    }
    free(all.groups);
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < count; i++)
        rd_message_destroy(self->messages[i]);
    Py_END_ALLOW_THREADS
    return result;
}

/* ---- the module ---- */

static PyMethodDef consumer_methods[] = {
    {"assign", (PyCFunction)consumer_assign, METH_O, NULL},
    {"incremental_assign", (PyCFunction)consumer_incremental_assign, METH_O, NULL},
    {"incremental_unassign", (PyCFunction)consumer_incremental_unassign, METH_O, NULL},
    {"pause", (PyCFunction)consumer_pause, METH_O, NULL},
    {"resume", (PyCFunction)consumer_resume, METH_O, NULL},
    {"committed", (PyCFunction)consumer_committed, METH_VARARGS, NULL},
    {"high_watermark", (PyCFunction)consumer_high_watermark, METH_VARARGS, NULL},
    {"poll", (PyCFunction)consumer_poll, METH_VARARGS, NULL},
    {"take_log", (PyCFunction)consumer_take_log, METH_NOARGS, NULL},
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

static PyType_Spec consumer_spec = {"streamapp.runners.worker._columns.Consumer", sizeof(Consumer), 0,
                                    Py_TPFLAGS_DEFAULT, consumer_slots};

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, "load(path): looks up librdkafka in a library that was loaded with it."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_columns", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__columns(void) {
    PyObject *confluent = PyImport_ImportModule("confluent_kafka");
    if (confluent == NULL)
        return NULL;
    kafka_error = PyObject_GetAttrString(confluent, "KafkaError");
    kafka_exception = PyObject_GetAttrString(confluent, "KafkaException");
    Py_DECREF(confluent);
    PyObject *type = PyType_FromSpec(&consumer_spec);
    PyObject *module = PyModule_Create(&definition);
    if (kafka_error == NULL || kafka_exception == NULL || type == NULL || module == NULL)
        return NULL;
    if (PyModule_AddObject(module, "Consumer", type) < 0)
        return NULL;
    return module;
}
