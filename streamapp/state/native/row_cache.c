/* The bytes of small rows, by table and key, in memory of a fixed size: a row takes its own bytes and seven more.
 *
 * The hash of a key chooses a bucket, which holds its rows one after the other. A bucket without room drops rows at
 * random: a scan over more keys than there is room for, again and again, still finds many of them, where the order of use
 * would drop each row just before its next use. Python's lock guards everything.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKET_BYTES = 512, MOST_ROWS = 28, MOST_BYTES = 240, WRITES_PER_READ = 16 };

typedef struct {
    uint32_t table;
    uint8_t key_length, value_length;
    char bytes[]; /* the key, then the value */
} __attribute__((packed)) Row;

typedef struct {
    uint16_t used; /* bytes of `rows` */
    uint8_t count;
    uint8_t tags[MOST_ROWS]; /* a byte of each row's hash: other rows are passed over without a look at their keys */
    char rows[BUCKET_BYTES - 3 - MOST_ROWS];
} __attribute__((packed)) Bucket;

typedef struct {
    PyObject_HEAD
    Bucket *buckets;
    size_t count;
    uint32_t tables; /* that were opened so far */
    uint32_t random;
} RowCache;

typedef struct {
    PyObject_HEAD
    RowCache *cache;
    uint32_t number;
    uint32_t reads, writes; /* lately */
    int filled; /* false: the cache has never had a row of it, so that nothing is looked for */
} Table;

static PyTypeObject *table_type;

static size_t size_of(const Row *row) { return sizeof(Row) + row->key_length + row->value_length; }

static Row *after(Row *row) { return (Row *)((char *)row + size_of(row)); }

/* ---- one bucket ---- */

static Row *find(Bucket *bucket, uint8_t tag, uint32_t table, const char *key, size_t length, int *at) {
    Row *row = (Row *)bucket->rows;
    for (int i = 0; i < bucket->count; i++, row = after(row))
        if (bucket->tags[i] == tag && row->key_length == length && row->table == table &&
            memcmp(row->bytes, key, length) == 0) {
            *at = i;
            return row;
        }
    return NULL;
}

static void drop(Bucket *bucket, Row *row, int at) {
    size_t size = size_of(row), behind = (char *)row + size - bucket->rows;
    memmove(row, (char *)row + size, bucket->used - behind);
    memmove(bucket->tags + at, bucket->tags + at + 1, bucket->count - at - 1);
    bucket->used -= size;
    bucket->count--;
}

static void drop_any(RowCache *cache, Bucket *bucket) {
    cache->random = cache->random * 1664525 + 1013904223;
    int at = (int)((cache->random >> 16) % bucket->count);
    Row *row = (Row *)bucket->rows;
    for (int i = 0; i < at; i++)
        row = after(row);
    drop(bucket, row, at);
}

/* ---- a table ---- */

static int locate(Table *self, PyObject *key, Bucket **bucket, uint8_t *tag) {
    Py_hash_t hash = PyObject_Hash(key); /* of bytes: a good one, which the object keeps */
    if (hash == -1)
        return -1;
    uint64_t mixed = ((uint64_t)hash ^ (self->number * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u;
    mixed ^= mixed >> 32;
    *bucket = self->cache->buckets + mixed % self->cache->count;
    *tag = (uint8_t)(mixed >> 56);
    return 0;
}

static PyObject *table_get(Table *self, PyObject *key) {
    char *data;
    Py_ssize_t length;
    Bucket *bucket;
    uint8_t tag;
    int at;
    self->reads++;
    if (PyBytes_AsStringAndSize(key, &data, &length) < 0)
        return NULL;
    if (!self->filled)
        Py_RETURN_NONE;
    if (locate(self, key, &bucket, &tag) < 0)
        return NULL;
    Row *row = find(bucket, tag, self->number, data, (size_t)length, &at);
    if (row == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(row->bytes + length, row->value_length);
}

/* A table that is seldom read takes no room from the others: only rows that were read, or that it has already. */
static int is_read(Table *self) {
    if (++self->writes >= 1 << 20 || self->reads >= 1 << 20) {
        self->writes /= 2;
        self->reads /= 2;
    }
    return self->reads >= self->writes / WRITES_PER_READ;
}

static int put(Table *self, PyObject *key, PyObject *value, int wanted) {
    char *data, *bytes = NULL;
    Py_ssize_t length, size = 0;
    Bucket *bucket;
    uint8_t tag;
    int at;
    if (PyBytes_AsStringAndSize(key, &data, &length) < 0 ||
        (value != Py_None && PyBytes_AsStringAndSize(value, &bytes, &size) < 0))
        return -1;
    size_t whole = sizeof(Row) + length + size;
    int fits = bytes != NULL && length <= MOST_BYTES && whole <= MOST_BYTES;
    if (!self->filled && !(fits && wanted))
        return 0;
    if (locate(self, key, &bucket, &tag) < 0)
        return -1;
    Row *row = find(bucket, tag, self->number, data, (size_t)length, &at);
    if (row != NULL) {
        if (bytes != NULL && row->value_length == size) {
            memcpy(row->bytes + length, bytes, size);
            return 0;
        }
        drop(bucket, row, at);
    }
    if (!fits || (row == NULL && !wanted))
        return 0;
    while (bucket->count == MOST_ROWS || bucket->used + whole > sizeof(bucket->rows))
        drop_any(self->cache, bucket);
    row = (Row *)(bucket->rows + bucket->used);
    row->table = self->number;
    row->key_length = (uint8_t)length;
    row->value_length = (uint8_t)size;
    memcpy(row->bytes, data, length);
    memcpy(row->bytes + length, bytes, size);
    bucket->tags[bucket->count++] = tag;
    bucket->used += whole;
    self->filled = 1;
    return 0;
}

static PyObject *table_put(Table *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "put(key, value)");
        return NULL;
    }
    if (put(self, args[0], args[1], 1) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *table_put_all(Table *self, PyObject *rows) {
    if (!PyList_Check(rows)) {
        PyErr_SetString(PyExc_TypeError, "put_all([(key, value), ...])");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(rows); i++) {
        PyObject *row = PyList_GetItem(rows, i);
        if (!PyTuple_Check(row) || PyTuple_Size(row) != 2) {
            PyErr_SetString(PyExc_TypeError, "put_all([(key, value), ...])");
            return NULL;
        }
        if (put(self, PyTuple_GetItem(row, 0), PyTuple_GetItem(row, 1), is_read(self)) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* A new number hides all rows of the table, which other rows replace in the course of time. */
static PyObject *table_clear(Table *self, PyObject *Py_UNUSED(ignored)) {
    self->number = ++self->cache->tables;
    self->filled = 0;
    Py_RETURN_NONE;
}

static void table_dealloc(Table *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF((PyObject *)self->cache);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef table_methods[] = {
    {"get", (PyCFunction)table_get, METH_O, NULL},
    {"put", (PyCFunction)(void (*)(void))table_put, METH_FASTCALL, NULL},
    {"put_all", (PyCFunction)table_put_all, METH_O, NULL},
    {"clear", (PyCFunction)table_clear, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {0},
};

static PyType_Spec table_spec = {
    .name = "streamapp.state._row_cache.Table",
    .basicsize = sizeof(Table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = table_slots,
};

/* ---- the cache ---- */

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(args, "n", &bytes))
        return NULL;
    RowCache *self = PyObject_New(RowCache, type);
    if (self == NULL)
        return NULL;
    self->count = bytes > BUCKET_BYTES ? (size_t)bytes / BUCKET_BYTES : 1;
    self->tables = self->random = 0;
    self->buckets = calloc(self->count, sizeof(Bucket)); /* a page takes memory when its first row comes */
    if (self->buckets == NULL) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static PyObject *cache_table(RowCache *self, PyObject *Py_UNUSED(ignored)) {
    Table *table = PyObject_New(Table, table_type);
    if (table == NULL)
        return NULL;
    Py_INCREF((PyObject *)self);
    table->cache = self;
    table->number = ++self->tables;
    table->reads = table->writes = 0;
    table->filled = 0;
    return (PyObject *)table;
}

static void cache_dealloc(RowCache *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    free(self->buckets);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef cache_methods[] = {
    {"table", (PyCFunction)cache_table, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_new, cache_new},
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_methods, cache_methods},
    {0},
};

static PyType_Spec cache_spec = {
    .name = "streamapp.state._row_cache.RowCache",
    .basicsize = sizeof(RowCache),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = cache_slots,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_row_cache", .m_size = -1};

PyMODINIT_FUNC PyInit__row_cache(void) {
    PyObject *made = PyModule_Create(&module);
    PyObject *cache_type = made == NULL ? NULL : PyType_FromSpec(&cache_spec);
    table_type = cache_type == NULL ? NULL : (PyTypeObject *)PyType_FromSpec(&table_spec);
    if (table_type == NULL || PyModule_AddObjectRef(made, "RowCache", cache_type) < 0 ||
        PyModule_AddObjectRef(made, "Table", (PyObject *)table_type) < 0)
        return NULL;
    Py_DECREF(cache_type);
    return made;
}
