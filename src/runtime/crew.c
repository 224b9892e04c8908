#include "runtime/crew.h"

#include "base/log.h"
#include "base/timer.h"
#include "runtime/crew_parts.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Building (opening data, lowering) and saving may take others much longer than a message. */
static const double PATIENCE_S = 600;

static atomic_bool failed_together;

void crew_note_common_failure(const crew *c)
{
    if (!c->info.alone)
        atomic_store(&failed_together, true);
}

bool crew_failed_together(void)
{
    return atomic_load(&failed_together);
}

/* ---- the workers' threads ---- */

static void do_work(int number, void *crew_of_it)
{
    crew *c = crew_of_it;
    struct crew_worker *w = &c->workers[number];
    enum status st = c->work(w, c->user);
    w->error.status = STATUS_OK;
    if (st != STATUS_OK)
        status_take(st, &w->error);
}

/* The first that failed for a reason of its own; else the first. */
static enum status find_cause(const crew *c)
{
    const struct status_error *cause = NULL;
    for (int i = 0; i < c->info.n_local; i++) {
        const struct status_error *e = &c->workers[i].error;
        if (e->status == STATUS_OK)
            continue;
        if (!cause || (cause->status == STATUS_LOST && e->status != STATUS_LOST))
            cause = e;
    }
    return cause ? status_give(cause) : STATUS_OK;
}

/* The calling thread is worker 0, on its cores, while it works here: before and behind it is the
 * caller's, who may have several crews, or another thread call next. */
static void do_all(crew *c)
{
    struct pin_mask before;
    pin_remember(&before);
    pin_restore(&c->own);
    gang_do(c->gang, do_work, c);
    if (!c->own.is_known)
        pin_remember(&c->own);
    pin_restore(&before);
}

enum status crew_do(crew *c, crew_work *work, void *user)
{
    c->work = work;
    c->user = user;
    if (c->gang)
        do_all(c);
    else
        do_work(0, c);
    return find_cause(c);
}

/* ---- with other processes ---- */

/* Waits of this length are for what may take another process long. */
static double set_timeout(comm *end, double timeout_s)
{
    double before = end->timeout_s;
    end->timeout_s = timeout_s;
    return before;
}

comm *crew_process(const crew *c)
{
    return c->info.alone ? NULL : c->options.process;
}

void crew_be_patient(crew *c, bool patient)
{
    double usual_s = c->options.timeout_s;
    (void)set_timeout(c->options.process, patient ? fmax(usual_s, PATIENCE_S) : usual_s);
}

void crew_abort(crew *c, enum status st)
{
    comm *end = c->options.process ? c->options.process : c->workers[0].end;
    if (end)
        end->table->abort(end, st, status_message());
}

enum status crew_agree(comm *process, enum status mine)
{
    if (!process || process->size == 1)
        return mine;
    struct status_error error = {.status = STATUS_OK};
    if (mine != STATUS_OK)
        status_take(mine, &error);
    struct status_error *all = calloc((size_t)process->size, sizeof *all);
    if (!all)
        return status_no_memory((size_t)process->size * sizeof *all);
    double before = set_timeout(process, fmax(process->timeout_s, PATIENCE_S));
    enum status st = process->table->exchange(process, &error, sizeof error, all);
    (void)set_timeout(process, before);
    for (int i = 0; i < process->size && st == STATUS_OK; i++)
        if (all[i].status != STATUS_OK) {
            atomic_store(&failed_together, true);
            st = status_give(&all[i]);
        }
    free(all);
    return st;
}

/* ---- who works where ---- */

const struct comm_table *crew_transport(const crew *c)
{
    return c->workers[0].end ? c->workers[0].end->table : NULL;
}

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

static enum status make_workers(crew *c)
{
    const struct crew_options *o = &c->options;
    TRY(arena_alloc_array(c->memory, (size_t)c->info.n_local, sizeof *c->workers, &c->workers));
    for (int i = 0; i < c->info.n_local; i++)
        c->workers[i] = (struct crew_worker){
            .crew = c, .number = o->process ? o->process->rank : i, .place = i, .end = o->process};
    c->n_places = c->info.n_local;
    TRY(find_neighbours(c));
    int cores = c->n_places > 0 ? pin_count_cores() / c->n_places : 0;
    c->threads = o->threads ? o->threads : c->n_places == 1 ? 0 : cores > 1 ? cores : 1;
    if (o->process || c->info.n_local == 1)
        return STATUS_OK;
    comm **ends;
    TRY(arena_alloc_array(c->memory, (size_t)c->info.n_local, sizeof *ends, &ends));
    TRY(comm_threads_create(c->info.n_local, o->timeout_s, ends));
    for (int i = 0; i < c->info.n_local; i++)
        c->workers[i].end = ends[i];
    return gang_create(c->info.n_local, &c->gang);
}

/* ---- making one ---- */

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

static void describe(crew *c)
{
    struct crew_info *i = &c->info;
    const struct backend *backend = c->options.backend;
    i->threads = backend->device_threads(c->workers[0].device);
    i->device = backend->device_describe(c->workers[0].device);
    for (int w = 0; w < i->n_local; w++) {
        int64_t n_bytes = executor_memory_bytes(c->workers[w].executor);
        i->memory_bytes = n_bytes > i->memory_bytes ? n_bytes : i->memory_bytes;
        i->bytes_moved += program_sent_bytes(c->workers[w].programs[CREW_TRAIN]);
    }
}

static enum status describe_all(crew *c)
{
    comm *end = crew_process(c);
    c->clock_ns = timer_now_ns();
    if (!end)
        return STATUS_OK;
    int64_t mine[2] = {c->info.memory_bytes, c->info.bytes_moved}, *all;
    TRY(arena_alloc_array(c->memory, 2 * (size_t)end->size, sizeof *all, &all));
    TRY(end->table->exchange(end, mine, sizeof mine, all));
    c->clock_ns = timer_now_ns();
    c->info.bytes_moved = 0;
    for (int i = 0; i < end->size; i++) {
        if (all[2 * i] > c->info.memory_bytes)
            c->info.memory_bytes = all[2 * i];
        c->info.bytes_moved += all[2 * i + 1];
    }
    return crew_learn_parts(c);
}

static enum status lower_here(crew *c)
{
    TRY(make_workers(c));
    return crew_do(c, crew_worker_lower, NULL);
}

static enum status open_here(crew *c)
{
    TRY(crew_do(c, crew_worker_open, NULL));
    c->most_steps = c->workers[0].programs[CREW_TRAIN]->n_steps;
    describe(c);
    return STATUS_OK;
}

static enum status build(crew *c)
{
    const struct crew_options *o = &c->options;
    if (o->process && o->process->size != o->plan->n_workers)
        return status_fail(STATUS_USAGE, "the plan is for %d worker%s, but there are %d processes",
                           o->plan->n_workers, o->plan->n_workers == 1 ? "" : "s",
                           o->process->size);
    TRY(crew_agree(o->process, lower_here(c)));
    TRY(crew_agree(o->process, check_alike(c)));
    TRY(crew_agree(o->process, crew_check_memory(c)));
    TRY(crew_agree(o->process, open_here(c)));
    return describe_all(c);
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
    gang_destroy(c->gang);
    for (int i = 0; c->workers && i < c->info.n_local; i++)
        crew_worker_close(&c->workers[i]);
    free(c->room);
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
