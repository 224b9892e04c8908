/* One worker of a crew: what it opens on its own thread, and how it gets its data. */
#include "base/log.h"
#include "runtime/crew_parts.h"
#include "runtime/pin.h"
#include "verify/verify.h"

#include <stdio.h>

/* ---- data ---- */

static void give_back(struct crew_feed *f)
{
    if (f->holds)
        loader_release(f->loader);
    f->holds = false;
}

static enum status take(struct crew_feed *f, struct batch *b)
{
    give_back(f);
    TRY(loader_next(f->loader, b));
    if (b->n_global == 0)
        return status_fail(STATUS_FAILED, "the data ended after batch %lld", (long long)b->index);
    f->holds = true;
    f->taken++;
    f->wait_ns += b->wait_ns;
    return STATUS_OK;
}

enum status crew_feed_next(void *user, struct executor_batch *batch)
{
    struct batch b;
    TRY(take(user, &b));
    *batch = (struct executor_batch){b.images, b.labels, b.first};
    return STATUS_OK;
}

enum status crew_feed_finish(struct crew_feed *f, int n_steps)
{
    struct batch b;
    while (f->loader && f->taken < n_steps)
        TRY(take(f, &b));
    give_back(f);
    return STATUS_OK;
}

static struct range samples_of(const struct crew_worker *w, enum crew_program which)
{
    return w->programs[which] ? w->programs[which]->samples : (struct range){0, 0};
}

/* Threads for decoding are shared out like cores; data in memory needs one each. */
static int loader_threads(const struct crew *c, const dataset *set, int asked)
{
    if (asked || c->n_places == 1 || dataset_get_info(set)->in_memory)
        return asked;
    return c->threads < LOADER_MOST_THREADS ? c->threads : LOADER_MOST_THREADS;
}

static enum status open_loader(struct crew_worker *w, dataset *set, struct loader_options o,
                               enum crew_program full, enum crew_program last,
                               struct crew_feed *out)
{
    struct range whole = samples_of(w, full), rest = samples_of(w, last);
    if (!set || (whole.begin == whole.end && rest.begin == rest.end))
        return STATUS_OK;
    o.exact_parts = true;
    o.first = whole.begin;
    o.count = whole.end - whole.begin;
    o.short_first = rest.begin;
    o.short_count = rest.end - rest.begin;
    o.threads = loader_threads(w->crew, set, o.threads);
    return loader_create(set, &o, &out->loader);
}

/* ---- programs ---- */

static enum status create_program(struct crew_worker *w, enum crew_program which)
{
    const struct crew_options *o = &w->crew->options;
    struct program_options options = {.backend = o->backend,
                                      .device = w->device,
                                      .training = crew_trains(which),
                                      .n_states = o->n_states,
                                      .plan = o->plan,
                                      .worker = w->number,
                                      .transport = crew_transport(w->crew),
                                      .n_steps = which == CREW_TRAIN ? 0 : 1,
                                      .shares_params_of = w->programs[CREW_TRAIN]};
    TRY(program_create(o->graphs[which], &options, &w->programs[which]));
#ifndef NDEBUG
    TRY(verify_program(w->programs[which]));
#endif
    return STATUS_OK;
}

static enum status create_programs(struct crew_worker *w)
{
    for (int p = 0; p < CREW_PROGRAM_COUNT; p++)
        if (w->crew->options.graphs[p])
            TRY(create_program(w, (enum crew_program)p));
    return STATUS_OK;
}

static enum status create_executor(struct crew_worker *w)
{
    const struct program *all[CREW_PROGRAM_COUNT];
    int n = 0;
    for (int p = 0; p < CREW_PROGRAM_COUNT; p++)
        if (w->programs[p]) {
            w->executor_program[p] = n;
            all[n++] = w->programs[p];
        }
    return executor_create(all, n, w->end, &w->executor);
}

static int64_t largest_region(const struct program *p)
{
    int64_t most = 1;
    for (int i = 0; i < p->graph->n_params; i++) {
        int64_t count = p->params[i].weight == NO_BUFFER ? 0 : 1;
        for (int axis = 0; axis < p->graph->params[i].spec.shape.rank; axis++)
            count *= p->params[i].region[axis].end - p->params[i].region[axis].begin;
        most = count > most ? count : most;
    }
    return most;
}

/* The arena is the crew's and not for two threads at a time. */
static enum status alloc_room(struct crew_worker *w)
{
    crew *c = w->crew;
    pthread_mutex_lock(&c->lock);
    enum status st;
    TRY_GOTO(st,
             arena_alloc_array(c->memory, (size_t)w->programs[CREW_TRAIN]->n_steps,
                               sizeof *w->results, &w->results),
             out);
    TRY_GOTO(st,
             arena_alloc_array(c->memory, (size_t)largest_region(w->programs[CREW_TRAIN]),
                               sizeof *w->scratch, &w->scratch),
             out);
    if (c->options.trace_steps)
        st = crew_alloc_times(w);
out:
    pthread_mutex_unlock(&c->lock);
    return st;
}

static void bind_to_cores(const struct crew_worker *w)
{
    const crew *c = w->crew;
    if (c->n_places == 1 || pin_thread(w->place, c->n_places, c->threads) || w->place > 0)
        return;
    int cores = pin_count_cores();
    if (c->n_places * c->threads > cores)
        log_warn(
            "%d workers with %d thread%s each share %d core%s: they take turns (there are cores "
            "for %d)",
            c->n_places, c->threads, c->threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s",
            cores < c->threads ? 1 : cores / c->threads);
}

enum status crew_worker_lower(struct crew_worker *w, void *user)
{
    (void)user;
    const crew *c = w->crew;
    bind_to_cores(w);
    struct device_options wanted = {.precision = c->options.precision, .threads = c->threads};
    TRY(c->options.backend->device_open(&wanted, &w->device));
    return create_programs(w);
}

enum status crew_worker_open(struct crew_worker *w, void *user)
{
    (void)user;
    const struct crew_options *o = &w->crew->options;
    TRY(create_executor(w));
    TRY(alloc_room(w));
    TRY(open_loader(w, o->train_set, o->train_loader, CREW_TRAIN, CREW_TRAIN_SHORT, &w->train));
    return open_loader(w, o->test_set, o->test_loader, CREW_EVAL, CREW_EVAL_SHORT, &w->test);
}

void crew_worker_close(struct crew_worker *w)
{
    const struct crew *c = w->crew;
    executor_destroy(w->executor);
    for (int p = CREW_PROGRAM_COUNT - 1; p >= 0; p--)
        program_destroy(w->programs[p]);
    if (w->device)
        c->options.backend->device_close(w->device);
    loader_destroy(w->train.loader);
    loader_destroy(w->test.loader);
    if (w->end && !c->options.process)
        w->end->table->destroy(w->end);
}
