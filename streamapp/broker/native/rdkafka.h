/* The part of librdkafka's public C interface that the extension uses. The functions come from the library that
 * confluent-kafka has loaded, so nothing is linked, and librdkafka's own header is not needed. */
#ifndef STREAMAPP_RDKAFKA_H
#define STREAMAPP_RDKAFKA_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <pthread.h>
#include <time.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_consumer_group_metadata_s rd_kafka_consumer_group_metadata_t;
struct rd_kafka_metadata;

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

typedef struct {
    int vtype;
    union {
        rd_kafka_topic_t *rkt;
        void *ptr;
        int i;
        int32_t i32;
        int64_t i64;
        struct {
            void *ptr;
            size_t size;
        } mem;
        rd_kafka_headers_t *headers;
        char _pad[64];
    } u;
} rd_kafka_vu_t;

enum { PRODUCER = 0, CONSUMER = 1, CONF_OK = 0 };
enum { VTYPE_RKT = 2, VTYPE_PARTITION, VTYPE_VALUE, VTYPE_KEY, VTYPE_OPAQUE, VTYPE_MSGFLAGS, VTYPE_TIMESTAMP, VTYPE_HEADERS = 10 };
enum { MSG_F_COPY = 2, PURGE_QUEUE = 1, PURGE_IN_FLIGHT = 2, PURGE_AT_ONCE = 4 };
enum { DESTROY_NO_CONSUMER_CLOSE = 0x8 };
enum { ERR_ALL_BROKERS_DOWN = -187, ERR_INVALID_ARG = -186, ERR_QUEUE_FULL = -184, ERR_FATAL = -150 };

#define FUNCTIONS(F)                                                                                             \
    F(rd_kafka_conf_t *, conf_new, (void))                                                                       \
    F(void, conf_destroy, (rd_kafka_conf_t *))                                                                   \
    F(int, conf_set, (rd_kafka_conf_t *, const char *, const char *, char *, size_t))                            \
    F(void, conf_set_log_cb, (rd_kafka_conf_t *, void (*)(const rd_kafka_t *, int, const char *, const char *))) \
    F(void, conf_set_error_cb, (rd_kafka_conf_t *, void (*)(rd_kafka_t *, int, const char *, void *)))           \
    F(void, conf_set_dr_msg_cb, (rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *))) \
    F(void, conf_set_throttle_cb, (rd_kafka_conf_t *, void (*)(rd_kafka_t *, const char *, int32_t, int, void *))) \
    F(void, conf_set_opaque, (rd_kafka_conf_t *, void *))                                                        \
    F(void *, opaque, (const rd_kafka_t *))                                                                      \
    F(rd_kafka_t *, new, (int, rd_kafka_conf_t *, char *, size_t))                                               \
    F(void, destroy, (rd_kafka_t *))                                                                             \
    F(void, destroy_flags, (rd_kafka_t *, int))                                                                  \
    F(const char *, name, (const rd_kafka_t *))                                                                  \
    F(const char *, err2str, (int))                                                                              \
    F(int, last_error, (void))                                                                                   \
    F(int, fatal_error, (rd_kafka_t *, char *, size_t))                                                          \
    F(int, error_code, (const rd_kafka_error_t *))                                                               \
    F(const char *, error_string, (const rd_kafka_error_t *))                                                    \
    F(int, error_is_fatal, (const rd_kafka_error_t *))                                                           \
    F(int, error_is_retriable, (const rd_kafka_error_t *))                                                       \
    F(int, error_txn_requires_abort, (const rd_kafka_error_t *))                                                 \
    F(void, error_destroy, (rd_kafka_error_t *))                                                                 \
    F(const char *, topic_name, (const rd_kafka_topic_t *))                                                      \
    F(rd_kafka_topic_partition_list_t *, topic_partition_list_new, (int))                                        \
    F(void, topic_partition_list_destroy, (rd_kafka_topic_partition_list_t *))                                   \
    F(rd_kafka_topic_partition_t *, topic_partition_list_add,                                                    \
      (rd_kafka_topic_partition_list_t *, const char *, int32_t))                                                \
    F(int64_t, message_timestamp, (const rd_kafka_message_t *, int *))                                           \
    F(int32_t, message_leader_epoch, (const rd_kafka_message_t *))                                               \
    F(void, topic_partition_set_leader_epoch, (rd_kafka_topic_partition_t *, int32_t))                           \
    /* of consumers */                                                                                           \
    F(int, poll_set_consumer, (rd_kafka_t *))                                                                    \
    F(rd_kafka_queue_t *, queue_get_consumer, (rd_kafka_t *))                                                    \
    F(void, queue_destroy, (rd_kafka_queue_t *))                                                                 \
    F(rd_kafka_queue_t *, queue_new, (rd_kafka_t *))                                                             \
    F(rd_kafka_queue_t *, queue_get_partition, (rd_kafka_t *, const char *, int32_t))                            \
    F(void, queue_forward, (rd_kafka_queue_t *, rd_kafka_queue_t *))                                             \
    F(void, queue_cb_event_enable, (rd_kafka_queue_t *, void (*)(rd_kafka_t *, void *), void *))                 \
    F(void, queue_yield, (rd_kafka_queue_t *))                                                                   \
    F(rd_kafka_message_t *, consumer_poll, (rd_kafka_t *, int))                                                  \
    F(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))                    \
    F(void, message_destroy, (rd_kafka_message_t *))                                                             \
    F(const char *, message_errstr, (const rd_kafka_message_t *))                                                \
    F(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                                 \
    F(int, header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))         \
    F(int, assign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))                                      \
    F(rd_kafka_error_t *, incremental_assign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))           \
    F(rd_kafka_error_t *, incremental_unassign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))         \
    F(int, pause_partitions, (rd_kafka_t *, rd_kafka_topic_partition_list_t *))                                  \
    F(int, resume_partitions, (rd_kafka_t *, rd_kafka_topic_partition_list_t *))                                 \
    F(int, committed, (rd_kafka_t *, rd_kafka_topic_partition_list_t *, int))                                    \
    F(int, metadata, (rd_kafka_t *, int, rd_kafka_topic_t *, const struct rd_kafka_metadata **, int))            \
    F(void, metadata_destroy, (const struct rd_kafka_metadata *))                                                \
    F(int, get_watermark_offsets, (rd_kafka_t *, const char *, int32_t, int64_t *, int64_t *))                   \
    /* of producers */                                                                                           \
    F(rd_kafka_topic_t *, topic_new, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))                      \
    F(void, topic_destroy, (rd_kafka_topic_t *))                                                                 \
    F(rd_kafka_headers_t *, headers_new, (size_t))                                                               \
    F(void, headers_destroy, (rd_kafka_headers_t *))                                                             \
    F(int, header_add, (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))                     \
    F(rd_kafka_error_t *, produceva, (rd_kafka_t *, const rd_kafka_vu_t *, size_t))                              \
    F(int, poll, (rd_kafka_t *, int))                                                                            \
    F(int, flush, (rd_kafka_t *, int))                                                                           \
    F(int, purge, (rd_kafka_t *, int))                                                                           \
    F(int, outq_len, (rd_kafka_t *))                                                                             \
    F(rd_kafka_consumer_group_metadata_t *, consumer_group_metadata_new_with_genid,                              \
      (const char *, int32_t, const char *, const char *))                                                       \
    F(void, consumer_group_metadata_destroy, (rd_kafka_consumer_group_metadata_t *))                             \
    F(rd_kafka_error_t *, init_transactions, (rd_kafka_t *, int))                                                \
    F(rd_kafka_error_t *, begin_transaction, (rd_kafka_t *))                                                     \
    F(rd_kafka_error_t *, send_offsets_to_transaction,                                                           \
      (rd_kafka_t *, const rd_kafka_topic_partition_list_t *, const rd_kafka_consumer_group_metadata_t *, int))  \
    F(rd_kafka_error_t *, commit_transaction, (rd_kafka_t *, int))                                               \
    F(rd_kafka_error_t *, abort_transaction, (rd_kafka_t *, int))

#define DECLARE(result, name, arguments) extern result(*rd_##name) arguments;
FUNCTIONS(DECLARE)
#undef DECLARE

/* ---- shared by consumer and producer (client.c) ---- */

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

/* The object that librdkafka's callbacks get. */
typedef struct {
    rd_kafka_t *client; /* NULL: not open */
    int lost;           /* all connections to brokers were down since somebody asked */
    long throttled;     /* milliseconds for which quotas have held this client back since the last line about it */
    time_t throttle_said;
    Log log;
    PyObject *failures; /* of a producer's records: a list */
} Client;

PyObject *load(PyObject *module, PyObject *args);
PyObject *make_error(int code, const char *text);
PyObject *raise_error(int code, const char *text);
/* None, or NULL with an exception; frees the error. */
PyObject *raise_if(rd_kafka_error_t *error);
/* Returns 0, or -1 with an exception. librdkafka calls `failed` with delivery reports; NULL: no reports. */
int client_open(Client **client, int kind, PyObject *settings, void (*failed)(rd_kafka_t *, const rd_kafka_message_t *, void *));
int client_is_open(const Client *client);
void client_free(Client *client);
PyObject *client_take_log(Client *client);
PyObject *bytes_or_none(const void *data, size_t length);

PyObject *make_consumer_type(void);
PyObject *make_producer_type(void);

#endif
