#include "runtime/crew.h"

#include "base/log.h"
#include "base/numbers.h"
#include "base/timer.h"
#include "runtime/crew_parts.h"
#include "runtime/pin.h"
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which cores a worker has ---- */

/* Processes that may use the same cores of the same host share them. */
static enum status find_neighbours(crew *c)
{
    comm *end = crew_process(c);
    if (!end)
        return STATUS_OK;
    uint64_t mine = pin_identify_cores(), *all;
    TRY(arena_alloc_array(c->memory, (size_t)end->size, sizeof *all, &all));
    TRY(end->table->exchange(end, &mine, sizeof mine, all));
    c->n_places = 0;
    for (int i = 0; i < end->size; i++) {
        if (i == end->rank)
            c->workers[0].place = c->n_places;
        c->n_places += all[i] == mine;
    }
    return STATUS_OK;
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

/* ---- one worker: its device and programs ---- */

static enum status create_program(struct crew_worker *w, enum crew_program which)
{
    const struct crew_options *o = &w->crew->options;
    struct program_options options = {.backend = o->backend,
                                      .device = w->device,
                                      .precision = o->precision,
                                      .training = crew_trains(which),
                                      .n_states = o->n_states,
                                      .plan = o->plan,
                                      .worker = w->number,
                                      .transport = w->end ? w->end->table : NULL,
                                      .n_steps = which == CREW_TRAIN ? 0 : 1,
                                      .shares_params_of = w->programs[CREW_TRAIN]};
    TRY(program_create(o->graphs[which], &options, &w->programs[which]));
#ifndef NDEBUG
    TRY(verify_program(w->programs[which]));
#endif
    return STATUS_OK;
}

static enum status lower_worker(int number, void *user)
{
    const crew *c = user;
    struct crew_worker *w = &c->workers[number];
    struct device_options wanted = {.threads = c->threads};
    bind_to_cores(w);
    TRY(c->options.backend->device_open(&wanted, &w->device));
    for (int p = 0; p < CREW_PROGRAM_COUNT; p++)
        if (c->options.graphs[p])
            TRY(create_program(w, (enum crew_program)p));
    return STATUS_OK;
}

/* ---- one worker: everything that takes memory ---- */

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
        most = int64_max(most, count);
    }
    return most;
}

/* The arena is the crew's and not for two threads at a time. */
static enum status alloc_room(struct crew_worker *w)
{
    crew *c = w->crew;
    const struct program *p = w->programs[CREW_TRAIN];
    pthread_mutex_lock(&c->lock);
    enum status st =
        arena_alloc_array(c->memory, (size_t)p->n_steps, sizeof *w->results, &w->results);
    if (st == STATUS_OK)
        st = arena_alloc_array(c->memory, (size_t)largest_region(p), sizeof *w->scratch,
                               &w->scratch);
    if (st == STATUS_OK && c->options.trace_steps)
        st = crew_alloc_times(w);
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* A loader of the samples that the worker's programs for full and for short batches read. */
static enum status open_loader(const struct crew_worker *w, dataset *set, struct loader_options o,
                               enum crew_program full, enum crew_program last,
                               struct crew_feed *out)
{
    static const struct range nothing;
    const crew *c = w->crew;
    struct range whole = w->programs[full] ? w->programs[full]->samples : nothing;
    struct range rest = w->programs[last] ? w->programs[last]->samples : nothing;
    if (!set || (whole.begin == whole.end && rest.begin == rest.end))
        return STATUS_OK;
    o.exact_parts = true;
    o.first = whole.begin;
    o.count = whole.end - whole.begin;
    o.short_first = rest.begin;
    o.short_count = rest.end - rest.begin;
    o.skip_corrupt = c->options.skip_corrupt;
    out->crew = c;
    /* Threads for decoding are shared out like cores; data in memory needs one each. */
    if (!o.threads && c->n_places > 1 && !dataset_get_info(set)->in_memory)
        o.threads = int_min(c->threads, LOADER_MOST_THREADS);
    return loader_create(set, &o, &out->loader);
}

static enum status open_worker(int number, void *user)
{
    const crew *c = user;
    const struct crew_options *o = &c->options;
    struct crew_worker *w = &c->workers[number];
    TRY(create_executor(w));
    TRY(alloc_room(w));
    TRY(open_loader(w, o->train_set, o->train_loader, CREW_TRAIN, CREW_TRAIN_SHORT, &w->train));
    return open_loader(w, o->test_set, o->test_loader, CREW_EVAL, CREW_EVAL_SHORT, &w->test);
}

static void close_worker(struct crew_worker *w)
{
    const struct crew_options *o = &w->crew->options;
    if (w->kept_weights)
        executor_free_kept(w->executor, w->kept_weights);
    executor_destroy(w->executor);
    for (int p = CREW_PROGRAM_COUNT - 1; p >= 0; p--)
        program_destroy(w->programs[p]);
    if (w->device)
        o->backend->device_close(w->device);
    loader_destroy(w->train.loader);
    loader_destroy(w->test.loader);
    free(w->train.replaced);
    free(w->test.replaced);
    if (w->end && !o->process)
        w->end->table->destroy(w->end);
}

/* ---- all workers ---- */

/* The workers, their threads, and the transport between them; then each lowers the plan. */
static enum status make_workers(crew *c)
{
    const struct crew_options *o = &c->options;
    int n = c->info.n_local;
    TRY(arena_alloc_array(c->memory, (size_t)n, sizeof *c->workers, &c->workers));
    for (int i = 0; i < n; i++)
        c->workers[i] = (struct crew_worker){
            .crew = c, .number = o->process ? o->process->rank : i, .place = i, .end = o->process};
    c->n_places = n;
    TRY(find_neighbours(c));
    int cores = c->n_places > 0 ? pin_count_cores() / c->n_places : 0;
    c->threads = o->threads ? o->threads : c->n_places == 1 ? 0 : int_max(cores, 1);
    if (!o->process && n > 1) {
        comm **ends;
        TRY(arena_alloc_array(c->memory, (size_t)n, sizeof *ends, &ends));
        TRY(comm_threads_create(n, o->timeout_s, ends));
        for (int i = 0; i < n; i++)
            c->workers[i].end = ends[i];
    }
    TRY(thread_team_create(n, &c->thread_team));
    return thread_team_run(c->thread_team, lower_worker, c);
}

/* Tensors travel, and are summed, as the devices lay them out, in blocks as wide as their vectors:
 * between devices that differ in that, sizes may be equal and every number in another place. */
static enum status check_alike(crew *c)
{
    enum { ABOUT_BYTES = 128 };
    comm *end = crew_process(c);
    if (!end)
        return STATUS_OK;
    const char *about = c->options.backend->device_describe(c->workers[0].device);
    const char *threads = strstr(about, ", threads ");
    char mine[ABOUT_BYTES] = "", *all;
    int length = threads ? (int)(threads - about) : ABOUT_BYTES;
    (void)snprintf(mine, sizeof mine, "%.*s", length, about);
    TRY(arena_alloc_array(c->memory, (size_t)end->size, sizeof mine, &all));
    TRY(end->table->exchange(end, mine, sizeof mine, all));
    for (int i = 1; i < end->size; i++)
        if (strcmp(all + (size_t)i * sizeof mine, all) != 0)
            return status_fail(STATUS_FAILED,
                               "worker 0 computes with %s, worker %d with %s: all must lay tensors "
                               "out alike (DNNL_MAX_CPU_ISA lowers the instruction set)",
                               all, i, all + (size_t)i * sizeof mine);
    return STATUS_OK;
}

/* Fills crew_get_info's answer, of all processes together; each learns which regions of parameters
 * the others hold. */
static enum status describe(crew *c)
{
    struct crew_info *i = &c->info;
    const struct backend *backend = c->options.backend;
    i->threads = backend->device_threads(c->workers[0].device);
    i->device = backend->device_describe(c->workers[0].device);
    for (int w = 0; w < i->n_local; w++) {
        i->memory_bytes = int64_max(i->memory_bytes, executor_memory_bytes(c->workers[w].executor));
        i->bytes_moved += program_sent_bytes(c->workers[w].programs[CREW_TRAIN]);
    }
    c->clock_ns = timer_now_ns();
    comm *end = crew_process(c);
    if (!end)
        return STATUS_OK;
    int64_t mine[2] = {i->memory_bytes, i->bytes_moved}, *all;
    TRY(arena_alloc_array(c->memory, 2 * (size_t)end->size, sizeof *all, &all));
    TRY(end->table->exchange(end, mine, sizeof mine, all));
    c->clock_ns = timer_now_ns();
    i->bytes_moved = 0;
    for (int k = 0; k < end->size; k++) {
        i->memory_bytes = int64_max(i->memory_bytes, all[2 * k]);
        i->bytes_moved += all[2 * k + 1];
    }
    return crew_learn_parts(c);
}

static enum status build(crew *c)
{
    const struct crew_options *o = &c->options;
    if (o->process && o->process->size != o->plan->n_workers)
        return status_fail(STATUS_USAGE, "the plan is for %d worker%s, but there are %d processes",
                           o->plan->n_workers, o->plan->n_workers == 1 ? "" : "s",
                           o->process->size);
    TRY(backend_check_precision(o->backend, o->precision));
    TRY(crew_agree(o->process, make_workers(c)));
    TRY(crew_agree(o->process, check_alike(c)));
    TRY(crew_agree(o->process, crew_check_memory(c)));
    TRY(crew_agree(o->process, crew_alloc_skips(c)));
    TRY(crew_agree(o->process, thread_team_run(c->thread_team, open_worker, c)));
    TRY(describe(c));
    return crew_start_watch(c);
}

enum status crew_create(const struct crew_options *options, crew **out)
{
    arena *memory;
    TRY(arena_create(&memory));
    crew *c;
    enum status st = arena_alloc(memory, sizeof *c, &c);
    if (st != STATUS_OK) {
        arena_destroy(memory);
        return st;
    }
    bool alone = !options->process || options->process->size == 1;
    *c = (crew){.memory = memory,
                .options = *options,
                .info = {.n_workers = options->plan->n_workers,
                         .n_local = options->process ? 1 : options->plan->n_workers,
                         .root = alone || options->process->rank == 0,
                         .alone = alone}};
    (void)pthread_mutex_init(&c->lock, NULL);
    st = build(c);
    if (st != STATUS_OK) {
        crew_destroy(c);
        return st;
    }
    *out = c;
    return STATUS_OK;
}

void crew_destroy(crew *c)
{
    if (!c)
        return;
    crew_end_watch(c);
    thread_team_destroy(c->thread_team);
    for (int i = 0; c->workers && i < c->info.n_local; i++)
        close_worker(&c->workers[i]);
    free(c->room);
    free(c->seen[0]);
    free(c->seen[1]);
    (void)pthread_mutex_destroy(&c->lock);
    arena_destroy(c->memory);
}

const struct crew_info *crew_get_info(const crew *c)
{
    return &c->info;
}

int crew_count_steps(const crew *c, enum crew_program which)
{
    const struct program *p = c->workers[0].programs[which];
    return p ? p->n_steps : 0;
}
