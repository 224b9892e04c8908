#include "data/loader.h"

#include "base/array.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/random.h"
#include "base/thread.h"
#include "base/timer.h"
#include "data/augment.h"
#include "data/source.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 1024,
    DEPTH = 3,
    MEMORY_CHUNK = 64, /* samples claimed at once where each costs little */
};
static const double TIMEOUT_S = 300, DESTROY_S = 5;

/* One buffer of the ring. Batch b lives in slot b % depth. */
struct slot {
    float *images;
    int32_t *labels;
    int64_t batch;                /* -1: none yet */
    int64_t n, n_claimed, n_done; /* samples of this worker's part */
    struct status_error error;
    int64_t error_place; /* of the earliest sample that failed, so that the error is the same for
                            any number of threads */
    struct dataset_replaced *replaced; /* [n_replaced], by place */
    int64_t *replaced_places;
    int n_replaced, replaced_room, places_room;
};

struct reader {
    loader *loader;
    pthread_t thread;
    int64_t batch;       /* under lock; being filled, or -1 */
    atomic_llong sample; /* being read */
};

struct loader {
    dataset *set;
    struct loader_options options;
    int64_t n_batches, n_samples, sample_floats, chunk;

    pthread_mutex_t lock;
    pthread_cond_t work;  /* there may be something to fill, or it is time to stop */
    pthread_cond_t ready; /* a slot was filled, or a reader became idle or ended */
    bool started, stopping, abandoned;
    int n_alive, n_busy;
    /* Batches of the epoch: oldest held <= next to hand over <= next to fill <= end. */
    int64_t epoch, released, handed, filling, end;
    atomic_bool cancel; /* readers leave their chunk early */

    struct slot *slots; /* [depth] */
    float *images;      /* [depth, part of the batch, c, h, w] */
    int32_t *labels;
    int n_readers;
    struct reader *readers;
};

static int64_t global_size(const loader *l, int64_t batch)
{
    return int64_min(l->options.batch, l->n_samples - batch * l->options.batch);
}

static bool has_short_part(const loader *l, int64_t batch)
{
    return l->options.exact_parts && global_size(l, batch) < l->options.batch;
}

static int64_t part_first(const loader *l, int64_t batch)
{
    return has_short_part(l, batch) ? l->options.short_first : l->options.first;
}

/* This worker's samples of the batch. */
static int64_t part_size(const loader *l, int64_t batch)
{
    if (has_short_part(l, batch))
        return l->options.short_count;
    int64_t end = int64_min(l->options.first + l->options.count, global_size(l, batch));
    return int64_max(0, end - l->options.first);
}

static bool slot_ready(const struct slot *s, int64_t batch)
{
    return s->batch == batch && s->n_done == s->n;
}

static int64_t sample_at(const loader *l, int64_t epoch, int64_t batch, int64_t place)
{
    int64_t position = batch * l->options.batch + part_first(l, batch) + place;
    if (!l->options.shuffle)
        return position;
    struct random_key key = {l->options.seed, RANDOM_SHUFFLE, (uint32_t)epoch};
    return (int64_t)random_permute(key, (uint64_t)l->n_samples, (uint64_t)position);
}

/* ---- filling ---- */

struct chunk {
    struct slot *slot;
    int64_t epoch, batch, first, end; /* places [first, end) of the batch */
};

/* The next places to fill, if a slot is free. Called under lock. */
static bool claim(loader *l, struct chunk *out)
{
    while (l->filling < l->end && l->filling < l->released + l->options.depth) {
        struct slot *s = &l->slots[l->filling % l->options.depth];
        if (s->batch != l->filling) {
            s->batch = l->filling;
            s->n = part_size(l, s->batch);
            s->n_claimed = s->n_done = 0;
            s->n_replaced = 0;
            s->error.status = STATUS_OK;
        }
        if (s->n_claimed < s->n) {
            *out = (struct chunk){s, l->epoch, s->batch, s->n_claimed,
                                  int64_min(s->n, s->n_claimed + l->chunk)};
            s->n_claimed = out->end;
            return true;
        }
        l->filling++;
        if (s->n == 0) /* a short batch that ends before this worker's part */
            (void)pthread_cond_broadcast(&l->ready);
    }
    return false;
}

/* In the order of the places, whatever thread comes first. */
static enum status keep_replaced(struct slot *s, int64_t place, const struct dataset_replaced *r)
{
    int at = s->n_replaced, room = at + 1;
    TRY(array_reserve(NULL, &s->replaced, room, &s->replaced_room, sizeof *s->replaced));
    TRY(array_reserve(NULL, &s->replaced_places, room, &s->places_room, sizeof place));
    for (; at > 0 && s->replaced_places[at - 1] > place; at--) {
        s->replaced[at] = s->replaced[at - 1];
        s->replaced_places[at] = s->replaced_places[at - 1];
    }
    s->replaced[at] = *r;
    s->replaced_places[at] = place;
    s->n_replaced = room;
    return STATUS_OK;
}

static enum status read_sample(loader *l, const struct chunk *c, int64_t place, int64_t sample,
                               float *pixels)
{
    struct dataset_replaced r;
    bool replaced;
    TRY(dataset_read_or_next(l->set, sample, l->options.skip_corrupt, pixels,
                             &c->slot->labels[place], &r, &replaced));
    if (!replaced)
        return STATUS_OK;
    (void)pthread_mutex_lock(&l->lock);
    enum status st = keep_replaced(c->slot, place, &r);
    (void)pthread_mutex_unlock(&l->lock);
    return st;
}

static enum status fill_place(struct reader *r, const struct chunk *c, int64_t place)
{
    loader *l = r->loader;
    int64_t sample = sample_at(l, c->epoch, c->batch, place);
    atomic_store(&r->sample, sample);
    float *pixels = c->slot->images + place * l->sample_floats;
    TRY(read_sample(l, c, place, sample, pixels));
    if (l->options.augment)
        augment_apply(l->set, l->options.seed, c->epoch, sample, pixels);
    return STATUS_OK;
}

/* Without the lock: the places are this reader's own. *failed_place stays -1 if all went well. */
static void fill(struct reader *r, const struct chunk *c, struct status_error *error,
                 int64_t *failed_place)
{
    *failed_place = -1;
    for (int64_t place = c->first; place < c->end && !atomic_load(&r->loader->cancel); place++) {
        enum status st = fill_place(r, c, place);
        if (st != STATUS_OK) {
            status_take(st, error);
            *failed_place = place;
            return;
        }
    }
}

static void finish(const struct chunk *c, const struct status_error *error, int64_t failed_place)
{
    struct slot *s = c->slot;
    if (failed_place >= 0 && (s->error.status == STATUS_OK || failed_place < s->error_place)) {
        s->error = *error;
        s->error_place = failed_place;
    }
    s->n_done += c->end - c->first;
}

static void free_loader(loader *l)
{
    (void)pthread_cond_destroy(&l->work);
    (void)pthread_cond_destroy(&l->ready);
    (void)pthread_mutex_destroy(&l->lock);
    dataset_close(l->set);
    for (int i = 0; l->slots && i < l->options.depth; i++) {
        free(l->slots[i].replaced);
        free(l->slots[i].replaced_places);
    }
    free(l->slots);
    free(l->images);
    free(l->labels);
    free(l->readers);
    free(l);
}

static void *read_ahead(void *reader_)
{
    struct reader *r = reader_;
    loader *l = r->loader;
    (void)pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        struct chunk c;
        if (!claim(l, &c)) {
            (void)pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        struct status_error error;
        int64_t failed_place;
        r->batch = c.batch;
        l->n_busy++;
        (void)pthread_mutex_unlock(&l->lock);
        fill(r, &c, &error, &failed_place);
        (void)pthread_mutex_lock(&l->lock);
        l->n_busy--;
        r->batch = -1;
        finish(&c, &error, failed_place);
        (void)pthread_cond_broadcast(&l->ready);
    }
    bool last = --l->n_alive == 0 && l->abandoned;
    (void)pthread_cond_broadcast(&l->ready);
    (void)pthread_mutex_unlock(&l->lock);
    if (last)
        free_loader(l);
    return NULL;
}

/* ---- creation ---- */

static enum status check_part(int64_t first, int64_t count, int64_t batch)
{
    if (first < 0 || count < 0 || first > batch || count > batch - first)
        return status_fail(STATUS_USAGE, "part %lld + %lld lies outside the batch of %lld",
                           (long long)first, (long long)count, (long long)batch);
    return STATUS_OK;
}

static enum status check_parts(const struct dataset_info *info, const struct loader_options *o)
{
    TRY(check_part(o->first, o->count, o->batch));
    if (o->exact_parts)
        return check_part(o->short_first, o->short_count, info->n_samples % o->batch);
    if (o->first == o->batch)
        return check_part(o->first, 1, o->batch);
    return STATUS_OK;
}

static enum status check_options(const struct dataset_info *info, struct loader_options *o)
{
    if (o->batch < 1 || o->batch > (int64_t)1 << 31)
        return status_fail(STATUS_USAGE, "batch %lld must be from 1 to %lld", (long long)o->batch,
                           1LL << 31);
    TRY(check_parts(info, o));
    if (o->threads < 0 || o->threads > LOADER_MOST_THREADS || o->depth < 0 || o->depth > DEPTH_MAX)
        return status_fail(STATUS_USAGE,
                           "loader threads %d and depth %d must be from 0 to %d and 0 to %d",
                           o->threads, o->depth, LOADER_MOST_THREADS, DEPTH_MAX);
    if (!(o->timeout_s >= 0))
        return status_fail(STATUS_USAGE, "timeout %g must not be negative", o->timeout_s);
    if (o->count == 0 && !o->exact_parts)
        o->count = o->batch - o->first;
    if (o->depth == 0)
        o->depth = DEPTH;
    if (o->timeout_s == 0)
        o->timeout_s = TIMEOUT_S;
    if (o->threads == 0 && info->in_memory)
        o->threads = 1;
    else if (o->threads == 0)
        o->threads = (int)int64_min(LOADER_MOST_THREADS, sysconf(_SC_NPROCESSORS_ONLN));
    return STATUS_OK;
}

static enum status allocate(loader *l)
{
    size_t depth = (size_t)l->options.depth;
    /* A dataset smaller than the batch needs no more room than it has samples. */
    int64_t count = int64_max(l->options.count, l->options.short_count);
    size_t part = (size_t)int64_min(int64_max(count, 1), l->n_samples);
    size_t floats, bytes;
    if (__builtin_mul_overflow(part, (size_t)l->sample_floats, &floats) ||
        __builtin_mul_overflow((floats + 15) / 16 * 16, depth * sizeof(float), &bytes))
        return status_no_memory(SIZE_MAX);
    floats = (floats + 15) / 16 * 16; /* every slot at a multiple of 64 bytes */
    l->slots = calloc(depth, sizeof *l->slots);
    l->labels = calloc(depth * part, sizeof *l->labels);
    l->readers = calloc((size_t)l->options.threads, sizeof *l->readers);
    l->images = aligned_alloc(64, bytes);
    if (!l->slots || !l->labels || !l->readers || !l->images)
        return status_no_memory(bytes);
    for (size_t i = 0; i < depth; i++) {
        l->slots[i].images = l->images + i * floats;
        l->slots[i].labels = l->labels + i * part;
        l->slots[i].batch = -1;
    }
    return STATUS_OK;
}

/* Signals are for the threads of the program, not for these. */
static enum status start_readers(loader *l)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    (void)pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->options.threads && !error; i++) {
        struct reader *r = &l->readers[i];
        r->loader = l;
        r->batch = -1;
        error = pthread_create(&r->thread, NULL, read_ahead, r);
        l->n_readers += !error;
    }
    l->n_alive = l->n_readers;
    (void)pthread_mutex_unlock(&l->lock);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (l->n_readers == 0)
        return status_fail(STATUS_FAILED, "cannot start a thread to load data: %s",
                           strerror(error));
    return STATUS_OK;
}

enum status loader_create(dataset *d, const struct loader_options *options, loader **out)
{
    const struct dataset_info *info = dataset_get_info(d);
    struct loader_options checked = *options;
    TRY(check_options(info, &checked));
    loader *l = calloc(1, sizeof *l);
    if (!l)
        return status_no_memory(sizeof *l);
    l->set = d;
    dataset_retain(d);
    l->options = checked;
    l->n_samples = info->n_samples;
    l->n_batches = (info->n_samples + (checked.drop_last ? 0 : checked.batch - 1)) / checked.batch;
    l->sample_floats = dataset_sample_floats(info);
    l->chunk = info->in_memory ? MEMORY_CHUNK : 1;
    (void)pthread_mutex_init(&l->lock, NULL);
    thread_init_condition(&l->work);
    thread_init_condition(&l->ready);
    enum status st = allocate(l);
    if (st == STATUS_OK)
        st = start_readers(l);
    if (st != STATUS_OK)
        free_loader(l);
    else
        *out = l;
    return st;
}

/* ---- use ---- */

int64_t loader_batches(const loader *l)
{
    return l->n_batches;
}

/* Fails with the sample that a reader of the batch (-1: of any) is still reading. Called under
 * lock. */
static enum status fail_late(loader *l, int64_t batch)
{
    char name[512] = "a reading thread";
    for (int i = 0; i < l->n_readers; i++)
        if (l->readers[i].batch >= 0 && (batch < 0 || l->readers[i].batch == batch)) {
            (void)dataset_sample_name(l->set, atomic_load(&l->readers[i].sample), name,
                                      sizeof name);
            break;
        }
    if (batch < 0)
        return status_fail(STATUS_TIMEOUT, "data: waited %g s for a reader to stop, still at %s",
                           l->options.timeout_s, name);
    return status_fail(STATUS_TIMEOUT,
                       "data: waited %g s for batch %lld of epoch %lld, still reading %s",
                       l->options.timeout_s, (long long)batch, (long long)l->epoch, name);
}

/* Waits, under lock, until no reader is in the middle of a chunk; false if that took too long. */
static bool wait_idle(loader *l, double seconds)
{
    struct timespec deadline = timer_after(seconds);
    int error = 0;
    while (l->n_busy > 0 && error == 0)
        error = pthread_cond_timedwait(&l->ready, &l->lock, &deadline);
    return l->n_busy == 0;
}

enum status loader_start(loader *l, int64_t epoch, int64_t first_batch)
{
    if (epoch < 0 || first_batch < 0 || first_batch > l->n_batches)
        return status_fail(STATUS_USAGE, "batch %lld of epoch %lld does not exist (%lld do)",
                           (long long)first_batch, (long long)epoch, (long long)l->n_batches);
    enum status st = STATUS_OK;
    (void)pthread_mutex_lock(&l->lock);
    l->end = l->filling; /* nothing more to claim */
    l->started = false;  /* a cancelled batch is never handed over, even if the wait fails */
    atomic_store(&l->cancel, true);
    if (wait_idle(l, l->options.timeout_s)) {
        for (int i = 0; i < l->options.depth; i++)
            l->slots[i].batch = -1;
        l->epoch = epoch;
        l->released = l->handed = l->filling = first_batch;
        l->end = l->n_batches;
        l->started = true;
        atomic_store(&l->cancel, false);
        (void)pthread_cond_broadcast(&l->work);
    } else {
        st = fail_late(l, -1);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return st;
}

static enum status wait_for_slot(loader *l, const struct slot *s)
{
    struct timespec deadline = timer_after(l->options.timeout_s);
    int error = 0;
    while (!slot_ready(s, l->handed) && error == 0)
        error = pthread_cond_timedwait(&l->ready, &l->lock, &deadline);
    if (!slot_ready(s, l->handed))
        return fail_late(l, l->handed);
    return status_give(&s->error);
}

static enum status hand_over(loader *l, struct batch *out)
{
    memset(out, 0, sizeof *out);
    if (!l->started)
        return status_fail(STATUS_USAGE, "loader_next before loader_start");
    out->index = l->handed;
    if (l->handed == l->n_batches)
        return STATUS_OK;
    if (l->handed - l->released >= l->options.depth)
        return status_fail(STATUS_USAGE, "all %d batches of the loader are held: release one",
                           l->options.depth);
    const struct slot *s = &l->slots[l->handed % l->options.depth];
    int64_t start_ns = timer_now_ns();
    TRY(wait_for_slot(l, s));
    out->wait_ns = timer_now_ns() - start_ns;
    out->images = s->images;
    out->labels = s->labels;
    out->first = part_first(l, l->handed);
    out->n_samples = s->n;
    out->n_global = global_size(l, l->handed);
    out->replaced = s->replaced;
    out->n_replaced = s->n_replaced;
    l->handed++;
    return STATUS_OK;
}

enum status loader_next(loader *l, struct batch *out)
{
    (void)pthread_mutex_lock(&l->lock);
    enum status st = hand_over(l, out);
    (void)pthread_mutex_unlock(&l->lock);
    return st;
}

void loader_release(loader *l)
{
    (void)pthread_mutex_lock(&l->lock);
    if (l->released < l->handed) {
        l->released++;
        (void)pthread_cond_broadcast(&l->work);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

/* A reader that is stuck in a read cannot be stopped; it frees the loader when it comes back. */
static bool abandon(loader *l)
{
    for (int i = 0; i < l->n_readers; i++)
        (void)pthread_detach(l->readers[i].thread);
    l->abandoned = true;
    return l->n_alive > 0;
}

void loader_destroy(loader *l)
{
    if (!l)
        return;
    (void)pthread_mutex_lock(&l->lock);
    l->stopping = true;
    atomic_store(&l->cancel, true);
    (void)pthread_cond_broadcast(&l->work);
    double seconds = l->options.timeout_s < DESTROY_S ? l->options.timeout_s : DESTROY_S;
    struct timespec deadline = timer_after(seconds);
    int error = 0;
    while (l->n_alive > 0 && error == 0)
        error = pthread_cond_timedwait(&l->ready, &l->lock, &deadline);
    bool left_behind = l->n_alive > 0 && abandon(l);
    (void)pthread_mutex_unlock(&l->lock);
    if (left_behind) {
        log_warn("data: a read did not end in %g s; its thread is left behind", seconds);
        return;
    }
    for (int i = 0; i < l->n_readers; i++)
        (void)pthread_join(l->readers[i].thread, NULL);
    free_loader(l);
}
