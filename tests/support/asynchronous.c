#include "asynchronous.h"

#include "base/random.h"
#include "testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum task_kind {
    TASK_COPY_REGION,
    TASK_CLEAR,
    TASK_ACCUMULATE,
    TASK_COPY,
    TASK_UPLOAD,
    TASK_UPLOAD_LABELS,
    TASK_RUN,
    TASK_FOLD,
    TASK_UPDATE,
    TASK_RECORD,
    TASK_WAIT
};

struct task {
    enum task_kind kind;
    const void *from;
    void *to;
    int64_t count; /* elements, or bytes of a clear or a copy */
    enum element type;
    const layout *layout;
    struct region_copy region;
    int n_addends;
    const void *addends[GROUP_MAX_ADDENDS];
    enum activation activation;
    group *group;
    enum pass pass;
    const struct group_args *args;
    struct step_state step;
    struct update_rule rule;
    struct update_args update;
    struct event *event;
    int64_t number; /* TASK_RECORD, TASK_WAIT: which record of the event */
};

enum { ROOM = 1024 };

struct stream {
    stream *inner;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quits;
    int64_t n_begun, n_ended; /* tasks handed over, and done */
    struct task tasks[ROOM];  /* of task i: number i % ROOM */
    struct status_error error;
    enum status status; /* of the first failure since the last synchronize */
};

struct event {
    pthread_mutex_t lock;
    pthread_cond_t reached;
    int64_t n_recorded, n_reached;
};

static const struct backend *inner;
static struct backend outer;
static double delay_probability;
static uint64_t delay_seed;

void asynchronous_delay(double probability, uint64_t seed)
{
    delay_probability = probability;
    delay_seed = seed;
}

static void be_late(int64_t task)
{
    const struct random_key key = {delay_seed, RANDOM_TEST, 0};
    struct timespec while_s = {0, 1};
    double draw = random_uniform(key, 0, (uint64_t)task);
    if (draw >= delay_probability)
        return;
    while_s.tv_nsec = (long)(1e6 * draw / delay_probability);
    (void)nanosleep(&while_s, NULL);
}

/* ---- the thread of a stream ---- */

static void reach(struct event *e, int64_t number)
{
    pthread_mutex_lock(&e->lock);
    e->n_reached = number > e->n_reached ? number : e->n_reached;
    pthread_cond_broadcast(&e->reached);
    pthread_mutex_unlock(&e->lock);
}

static void wait_for(struct event *e, int64_t number)
{
    pthread_mutex_lock(&e->lock);
    while (e->n_reached < number)
        pthread_cond_wait(&e->reached, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

static enum status run_task(stream *s, const struct task *t)
{
    switch (t->kind) {
    case TASK_COPY_REGION:
        return inner->copy_region(s, &t->region, t->from, t->to);
    case TASK_CLEAR:
        return inner->clear(s, t->to, t->count);
    case TASK_ACCUMULATE:
        return inner->accumulate(s, t->type, t->count, t->from, t->to);
    case TASK_COPY:
        return inner->copy(s, t->from, t->to, t->count);
    case TASK_UPLOAD:
        return inner->upload(s, t->from, t->to, t->layout);
    case TASK_UPLOAD_LABELS:
        return inner->upload_labels(s, t->from, t->count, t->to);
    case TASK_RUN:
        return inner->group_run(t->group, t->pass, s, t->args, &t->step);
    case TASK_FOLD:
        return inner->fold(s, t->layout, t->n_addends, t->addends, t->activation, t->from, t->to);
    case TASK_UPDATE:
        return inner->update(s, &t->rule, &t->update);
    case TASK_RECORD:
        reach(t->event, t->number);
        return STATUS_OK;
    default:
        wait_for(t->event, t->number);
        return STATUS_OK;
    }
}

static void *work(void *user)
{
    stream *s = user;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->n_begun == s->n_ended && !s->quits)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->n_begun == s->n_ended)
            break;
        const struct task *t = &s->tasks[s->n_ended % ROOM];
        pthread_mutex_unlock(&s->lock);
        be_late(s->n_ended);
        enum status st = run_task(s->inner, t);
        pthread_mutex_lock(&s->lock);
        if (st != STATUS_OK && s->status == STATUS_OK)
            status_take(s->status = st, &s->error);
        s->n_ended++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the side of the caller ---- */

static enum status hand_over(stream *s, const struct task *t)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_begun - s->n_ended == ROOM)
        pthread_cond_wait(&s->changed, &s->lock);
    s->tasks[s->n_begun++ % ROOM] = *t;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return STATUS_OK;
}

static enum status async_stream_create(device *d, stream **out)
{
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return status_no_memory(sizeof *s);
    enum status st = inner->stream_create(d, &s->inner);
    if (st != STATUS_OK) {
        free(s);
        return st;
    }
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    assert_int_equal(pthread_create(&s->thread, NULL, work, s), 0);
    *out = s;
    return STATUS_OK;
}

static void async_stream_destroy(stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->quits = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    inner->stream_destroy(s->inner);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->changed);
    free(s);
}

static enum status async_stream_synchronize(stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_ended < s->n_begun)
        pthread_cond_wait(&s->changed, &s->lock);
    bool failed = s->status != STATUS_OK;
    struct status_error error = s->error;
    s->status = STATUS_OK;
    pthread_mutex_unlock(&s->lock);
    TRY(failed ? status_give(&error) : STATUS_OK);
    return inner->stream_synchronize(s->inner);
}

static enum status async_event_create(device *d, event **out)
{
    (void)d;
    event *e = calloc(1, sizeof *e);
    if (!e)
        return status_no_memory(sizeof *e);
    (void)pthread_mutex_init(&e->lock, NULL);
    (void)pthread_cond_init(&e->reached, NULL);
    *out = e;
    return STATUS_OK;
}

static void async_event_destroy(event *e)
{
    (void)pthread_mutex_destroy(&e->lock);
    (void)pthread_cond_destroy(&e->reached);
    free(e);
}

static enum status async_event_record(event *e, stream *s)
{
    return hand_over(s, &(struct task){.kind = TASK_RECORD, .event = e, .number = ++e->n_recorded});
}

static enum status async_event_wait(event *e, stream *s)
{
    return hand_over(s, &(struct task){.kind = TASK_WAIT, .event = e, .number = e->n_recorded});
}

static enum status async_copy_region(stream *s, const struct region_copy *c, const void *from,
                                     void *to)
{
    return hand_over(
        s, &(struct task){.kind = TASK_COPY_REGION, .region = *c, .from = from, .to = to});
}

static enum status async_clear(stream *s, void *to, int64_t n_bytes)
{
    return hand_over(s, &(struct task){.kind = TASK_CLEAR, .to = to, .count = n_bytes});
}

static enum status async_accumulate(stream *s, enum element type, int64_t count, const void *from,
                                    void *to)
{
    return hand_over(
        s, &(struct task){
               .kind = TASK_ACCUMULATE, .type = type, .count = count, .from = from, .to = to});
}

static enum status async_copy(stream *s, const void *from, void *to, int64_t n_bytes)
{
    return hand_over(s,
                     &(struct task){.kind = TASK_COPY, .from = from, .to = to, .count = n_bytes});
}

static enum status async_upload(stream *s, const float *host, void *to, const layout *to_layout)
{
    return hand_over(
        s, &(struct task){.kind = TASK_UPLOAD, .from = host, .to = to, .layout = to_layout});
}

static enum status async_download(stream *s, const void *from, const layout *from_layout,
                                  float *host)
{
    TRY(async_stream_synchronize(s));
    return inner->download(s->inner, from, from_layout, host);
}

static enum status async_upload_labels(stream *s, const int32_t *host, int64_t count, int32_t *to)
{
    return hand_over(
        s, &(struct task){.kind = TASK_UPLOAD_LABELS, .from = host, .to = to, .count = count});
}

static enum status async_group_run(group *g, enum pass pass, stream *s,
                                   const struct group_args *args, const struct step_state *step)
{
    return hand_over(s, &(struct task){.kind = TASK_RUN,
                                       .group = g,
                                       .pass = pass,
                                       .args = args,
                                       .step = step ? *step : (struct step_state){0}});
}

static enum status async_fold(stream *s, const layout *l, int n_addends, const void *const *addends,
                              enum activation activation, const void *output, void *to)
{
    struct task t = {.kind = TASK_FOLD,
                     .layout = l,
                     .n_addends = n_addends,
                     .activation = activation,
                     .from = output,
                     .to = to};
    memcpy(t.addends, addends, (size_t)n_addends * sizeof *addends);
    return hand_over(s, &t);
}

static enum status async_update(stream *s, const struct update_rule *rule,
                                const struct update_args *args)
{
    return hand_over(s, &(struct task){.kind = TASK_UPDATE, .rule = *rule, .update = *args});
}

const struct backend *asynchronous_backend(const char *name)
{
    const struct backend *found;
    assert_ok(backend_find(name, &found));
    if (found == inner)
        return &outer; /* threads may be reading it */
    inner = found;
    outer = *inner;
    outer.name = "asynchronous";
    outer.stream_create = async_stream_create;
    outer.stream_destroy = async_stream_destroy;
    outer.stream_synchronize = async_stream_synchronize;
    outer.event_create = async_event_create;
    outer.event_destroy = async_event_destroy;
    outer.event_record = async_event_record;
    outer.event_wait = async_event_wait;
    outer.copy_region = async_copy_region;
    outer.clear = async_clear;
    outer.accumulate = async_accumulate;
    outer.copy = async_copy;
    outer.upload = async_upload;
    outer.download = async_download;
    outer.upload_labels = async_upload_labels;
    outer.group_run = async_group_run;
    outer.fold = async_fold;
    outer.update = async_update;
    return &outer;
}
