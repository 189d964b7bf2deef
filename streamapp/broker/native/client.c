/* Looks librdkafka up, opens its clients, and keeps what they log. */
#include "rdkafka.h"
#include <dlfcn.h>

#define DEFINE(result, name, arguments) result(*rd_##name) arguments;
FUNCTIONS(DEFINE)
#undef DEFINE

/* The least sum of waits, and the shortest time between two lines about them. */
enum { THROTTLE_MS = 3000, THROTTLE_SECONDS = 60 };

static PyObject *kafka_error, *kafka_exception;

PyObject *load(PyObject *module, PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        PyErr_SetString(PyExc_ImportError, dlerror());
        return NULL;
    }
#define LOOK_UP(result, name, arguments)                                         \
    if ((*(void **)&rd_##name = dlsym(library, "rd_kafka_" #name)) == NULL) {    \
        PyErr_SetString(PyExc_ImportError, "librdkafka has no rd_kafka_" #name); \
        return NULL;                                                             \
    }
    FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    Py_RETURN_NONE;
}

PyObject *make_error(int code, const char *text) {
    return PyObject_CallFunction(kafka_error, "is", code, text ? text : rd_err2str(code));
}

static PyObject *raise_made(PyObject *error) {
    if (error != NULL) {
        PyErr_SetObject(kafka_exception, error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *raise_error(int code, const char *text) { return raise_made(make_error(code, text)); }

PyObject *raise_if(rd_kafka_error_t *error) {
    if (error == NULL)
        Py_RETURN_NONE;
    PyObject *made =
        PyObject_CallFunction(kafka_error, "isNNN", rd_error_code(error), rd_error_string(error),
                              PyBool_FromLong(rd_error_is_fatal(error)), PyBool_FromLong(rd_error_is_retriable(error)),
                              PyBool_FromLong(rd_error_txn_requires_abort(error)));
    rd_error_destroy(error);
    return raise_made(made);
}

PyObject *bytes_or_none(const void *data, size_t length) {
    if (data == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)length);
}

/* ---- the log ---- */

static void keep_log_line(const rd_kafka_t *client, int level, const char *facility, const char *text) {
    Log *log = &((Client *)rd_opaque(client))->log;
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

/* Called while a client is polled. */
static void on_error(rd_kafka_t *client, int code, const char *reason, void *opaque) {
    keep_log_line(client, 4, rd_err2str(code), reason);
    if (code == ERR_ALL_BROKERS_DOWN)
        ((Client *)opaque)->lost = 1;
}

/* Called while a client is polled. A quota that costs little time is no news. */
static void on_throttle(rd_kafka_t *client, const char *broker, int32_t number, int milliseconds, void *opaque) {
    Client *kept = opaque;
    char text[LOG_LENGTH];
    time_t now = time(NULL);
    kept->throttled += milliseconds;
    if (kept->throttled < THROTTLE_MS || (now >= kept->throttle_said && now - kept->throttle_said < THROTTLE_SECONDS))
        return;
    const char *told = "a quota of the brokers has held this client back for %.0f s since the last such line";
    PyOS_snprintf(text, sizeof text, told, (double)kept->throttled / 1000);
    keep_log_line(client, 4, "THROTTLE", text);
    kept->throttled = 0;
    kept->throttle_said = now;
}

static int add_line(PyObject *lines, int level, PyObject *text) {
    PyObject *line = Py_BuildValue("(iN)", level, text);
    int result = line ? PyList_Append(lines, line) : -1;
    Py_XDECREF(line);
    return result;
}

PyObject *client_take_log(Client *client) {
    PyObject *lines = PyList_New(0);
    if (lines == NULL || client == NULL)
        return lines;
    Log *log = &client->log;
    int result = 0;
    pthread_mutex_lock(&log->lock);
    for (int i = 0; result == 0 && i < log->count; i++)
        result = add_line(lines, log->levels[i], PyUnicode_DecodeUTF8(log->lines[i], strlen(log->lines[i]), "replace"));
    if (result == 0 && log->lost)
        result = add_line(lines, 4, PyUnicode_FromFormat("%ld more lines were not kept", log->lost));
    log->count = 0;
    log->lost = 0;
    pthread_mutex_unlock(&log->lock);
    if (result < 0)
        Py_CLEAR(lines);
    return lines;
}

/* ---- opening and closing ---- */

static rd_kafka_conf_t *make_conf(PyObject *settings) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    char reason[512] = "";
    rd_kafka_conf_t *conf = rd_conf_new();
    while (PyDict_Next(settings, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL), *text = PyUnicode_AsUTF8AndSize(value, NULL);
        int usable = name != NULL && text != NULL;
        if (usable && rd_conf_set(conf, name, text, reason, sizeof reason) == CONF_OK)
            continue;
        rd_conf_destroy(conf);
        if (usable)
            raise_error(ERR_INVALID_ARG, reason);
        return NULL;
    }
    return conf;
}

int client_open(Client **opened, int kind, PyObject *settings, void (*failed)(rd_kafka_t *, const rd_kafka_message_t *, void *)) {
    char reason[512] = "";
    if (rd_new == NULL || *opened != NULL) {
        PyErr_SetString(PyExc_RuntimeError, rd_new == NULL ? "load() first" : "the client is open already");
        return -1;
    }
    rd_kafka_conf_t *conf = make_conf(settings);
    if (conf == NULL)
        return -1;
    Client *client = calloc(1, sizeof(Client));
    PyObject *failures = client ? PyList_New(0) : PyErr_NoMemory();
    if (failures == NULL) {
        free(client);
        rd_conf_destroy(conf);
        return -1;
    }
    client->failures = failures;
    pthread_mutex_init(&client->log.lock, NULL);
    rd_conf_set_opaque(conf, client);
    rd_conf_set_log_cb(conf, keep_log_line);
    rd_conf_set_error_cb(conf, on_error);
    rd_conf_set_throttle_cb(conf, on_throttle);
    if (failed != NULL)
        rd_conf_set_dr_msg_cb(conf, failed);
    client->client = rd_new(kind, conf, reason, sizeof reason);
    if (client->client == NULL) {
        rd_conf_destroy(conf);
        client_free(client);
        raise_error(ERR_INVALID_ARG, reason);
        return -1;
    }
    *opened = client;
    return 0;
}

int client_is_open(const Client *client) {
    if (client != NULL && client->client != NULL)
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "the client is closed");
    return 0;
}

/* After librdkafka's client was destroyed. */
void client_free(Client *client) {
    if (client == NULL)
        return;
    pthread_mutex_destroy(&client->log.lock);
    Py_XDECREF(client->failures);
    free(client);
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"load", load, METH_VARARGS, "load(path): looks up librdkafka in a library that was loaded with it."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *confluent = PyImport_ImportModule("confluent_kafka");
    if (confluent == NULL)
        return NULL;
    kafka_error = PyObject_GetAttrString(confluent, "KafkaError");
    kafka_exception = PyObject_GetAttrString(confluent, "KafkaException");
    Py_DECREF(confluent);
    PyObject *consumer = make_consumer_type(), *producer = make_producer_type();
    PyObject *module = PyModule_Create(&definition);
    if (kafka_error == NULL || kafka_exception == NULL || consumer == NULL || producer == NULL || module == NULL)
        return NULL;
    if (PyModule_AddObject(module, "Consumer", consumer) < 0 || PyModule_AddObject(module, "Producer", producer) < 0)
        return NULL;
    return module;
}
