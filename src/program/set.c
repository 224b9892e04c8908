/* The programs of all workers of a plan, or their slabs alone.
 *
 * Each worker is lowered by itself, so several are at the same time, where the backend lets its
 * device be asked by several threads. */
#include "base/parallel.h"
#include "program/lowering.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- rooms ---- */

/* What a thread needs for itself. Programs come and go in it: the memory of one is the next one's,
 * and warm. */
struct room {
    struct tables tables;
    arena *scratch, *memory; /* memory: of a program that is not kept */
};

static void close_rooms(struct room *rooms, int n)
{
    for (int i = 0; rooms && i < n; i++) {
        tables_deinit(&rooms[i].tables);
        arena_destroy(rooms[i].scratch);
        arena_destroy(rooms[i].memory);
    }
    free(rooms);
}

static enum status open_rooms(int n, struct room **out)
{
    struct room *rooms = calloc((size_t)n, sizeof *rooms);
    enum status st = STATUS_OK;
    if (!rooms)
        return status_no_memory((size_t)n * sizeof *rooms);
    for (int i = 0; i < n && st == STATUS_OK; i++) {
        st = arena_create(&rooms[i].scratch);
        if (st == STATUS_OK)
            st = arena_create(&rooms[i].memory);
    }
    if (st != STATUS_OK)
        close_rooms(rooms, n);
    else
        *out = rooms;
    return st;
}

static struct lowering lowering_in(struct room *room, const struct groundwork *work,
                                   const struct program_set *shares, int worker)
{
    return (struct lowering){.work = work,
                             .shares = shares ? shares->programs[worker] : NULL,
                             .tables = &room->tables,
                             .scratch = room->scratch};
}

/* ---- twins ---- */

static enum status find_twins(const struct groundwork *work, bool twins, arena *memory, int **out)
{
    if (twins)
        return groundwork_find_twins(work, memory, out);
    TRY(arena_alloc_array(memory, (size_t)work->plan->n_workers, sizeof **out, out));
    for (int i = 0; i < work->plan->n_workers; i++)
        (*out)[i] = i;
    return STATUS_OK;
}

/* Workers that are lowered: the lowest of their twins. */
static enum status list_items(const struct groundwork *work, const int *twin_of, int **items,
                              int *n_items)
{
    int n = work->plan->n_workers;
    TRY(arena_alloc_array(work->memory, (size_t)n, sizeof **items, items));
    *n_items = 0;
    for (int i = 0; i < n; i++)
        if (twin_of[i] == i)
            (*items)[(*n_items)++] = i;
    return STATUS_OK;
}

/* ---- programs ---- */

struct workshop {
    const struct groundwork *work;
    const struct program_options *options;
    const struct program_set *shares;
    int n_items, *items;
    struct room *rooms;
    struct program **programs; /* where they go, by worker */
};

static enum status create_item(void *user, int item, int thread)
{
    const struct workshop *s = user;
    int worker = s->items[item];
    struct lowering given = lowering_in(&s->rooms[thread], s->work, s->shares, worker);
    return lowering_create(&given, s->options, worker, &s->programs[worker]);
}

static enum status create_set(const struct groundwork *work, const struct program_options *options,
                              const struct program_set *shares, bool twins, struct program_set *set)
{
    struct workshop s = {.work = work, .options = options, .shares = shares};
    set->n_workers = work->plan->n_workers;
    TRY(arena_alloc_array(set->memory, (size_t)set->n_workers, sizeof(struct program *),
                          &set->programs));
    TRY(find_twins(work, twins, set->memory, &set->twin_of));
    s.programs = set->programs;
    TRY(list_items(work, set->twin_of, &s.items, &s.n_items));
    int n_rooms = options->backend->describes_together ? parallel_threads(s.n_items) : 1;
    TRY(open_rooms(n_rooms, &s.rooms));
    enum status st = parallel_run(s.n_items, n_rooms, create_item, &s);
    close_rooms(s.rooms, n_rooms);
    TRY(st);
    for (int i = 0; i < set->n_workers; i++)
        set->programs[i] = set->programs[set->twin_of[i]];
    return STATUS_OK;
}

/* As program_create; a set of one. */
static enum status create_serial(const struct graph *graph, const struct program_options *options,
                                 const struct program_set *shares, struct program_set *set)
{
    struct program_options one = *options;
    one.worker = 0;
    one.shares_params_of = shares ? shares->programs[0] : NULL;
    set->n_workers = 1;
    TRY(arena_alloc(set->memory, sizeof *set->twin_of, &set->twin_of));
    TRY(arena_alloc(set->memory, sizeof(struct program *), &set->programs));
    return program_create(graph, &one, &set->programs[0]);
}

enum status program_create_all(const struct graph *graph, const struct program_options *options,
                               const struct program_set *shares, bool twins,
                               struct program_set *set)
{
    struct groundwork *work = NULL;
    enum status st;
    *set = (struct program_set){0};
    TRY(arena_create(&set->memory));
    if (!options->plan) {
        TRY_GOTO(st, create_serial(graph, options, shares, set), out);
    } else {
        TRY_GOTO(
            st, groundwork_create(graph, options->plan, options->training, options->n_steps, &work),
            out);
        TRY_GOTO(st, create_set(work, options, shares, twins, set), out);
    }
out:
    groundwork_destroy(work);
    if (st != STATUS_OK)
        program_destroy_all(set);
    return st;
}

void program_destroy_all(struct program_set *set)
{
    for (int i = 0; set->programs && i < set->n_workers; i++)
        if (set->twin_of && set->twin_of[i] == i)
            program_destroy(set->programs[i]);
    arena_destroy(set->memory);
    *set = (struct program_set){0};
}

/* ---- slabs ---- */

/* One program of the study. Its groundwork is done by the first who needs it, so that opening a
 * study takes nobody's time. */
struct study_case {
    const struct program_case *given;
    pthread_mutex_t lock; /* of what follows, until it is there */
    struct groundwork *work;
    int *twin_of;
};

struct program_study {
    const struct program_set *shares;
    int n_cases, n_rooms;
    struct study_case *cases;
    struct room *rooms;
};

static enum status prepare(struct study_case *c)
{
    const struct program_options *o = &c->given->options;
    struct groundwork *work = NULL;
    enum status st;
    TRY_GOTO(st, groundwork_create(c->given->graph, o->plan, o->training, o->n_steps, &work), fail);
    TRY_GOTO(st, groundwork_find_twins(work, work->memory, &c->twin_of), fail);
    c->work = work;
    return STATUS_OK;
fail:
    groundwork_destroy(work);
    return st;
}

static enum status prepare_once(struct study_case *c)
{
    pthread_mutex_lock(&c->lock);
    enum status st = c->work ? STATUS_OK : prepare(c);
    pthread_mutex_unlock(&c->lock);
    return st;
}

static enum status open_study(struct program_study *s, const struct program_case *cases)
{
    s->cases = calloc((size_t)s->n_cases + 1, sizeof *s->cases);
    if (!s->cases)
        return status_no_memory((size_t)s->n_cases * sizeof *s->cases);
    for (int i = 0; i < s->n_cases; i++) {
        s->cases[i].given = &cases[i];
        pthread_mutex_init(&s->cases[i].lock, NULL);
    }
    return open_rooms(s->n_rooms, &s->rooms);
}

enum status program_study_open(const struct program_case *cases, int n_cases,
                               const struct program_set *shares, int n_threads,
                               struct program_study **out)
{
    struct program_study *s = calloc(1, sizeof *s);
    if (!s)
        return status_no_memory(sizeof *s);
    *s = (struct program_study){.shares = shares, .n_cases = n_cases, .n_rooms = n_threads};
    enum status st = open_study(s, cases);
    if (st != STATUS_OK)
        program_study_close(s);
    else
        *out = s;
    return st;
}

int program_study_items(const struct program_study *s)
{
    return s->n_cases ? s->n_cases * s->cases[0].given->options.plan->n_workers : 0;
}

/* Of twins what the one with the least has. */
static void find_enough(const struct study_case *c, int worker, int64_t enough[BUFFER_CLASS_COUNT])
{
    int64_t(*slab_bytes)[BUFFER_CLASS_COUNT] = c->given->slab_bytes;
    memcpy(enough, slab_bytes[worker], sizeof slab_bytes[worker]);
    for (int i = worker + 1; i < c->work->plan->n_workers; i++)
        for (int k = 0; c->twin_of[i] == worker && k < BUFFER_CLASS_COUNT; k++)
            enough[k] = slab_bytes[i][k] < enough[k] ? slab_bytes[i][k] : enough[k];
}

static void take_larger(const struct study_case *c, int worker,
                        const int64_t found[BUFFER_CLASS_COUNT])
{
    for (int i = worker; i < c->work->plan->n_workers; i++)
        for (int k = 0; c->twin_of[i] == worker && k < BUFFER_CLASS_COUNT; k++)
            if (found[k] > c->given->slab_bytes[i][k])
                c->given->slab_bytes[i][k] = found[k];
}

enum status program_study_do(struct program_study *s, int item, int thread)
{
    /* Neighbours are of unlike programs: who comes first prepares one, and the next another. */
    struct study_case *c = &s->cases[item % s->n_cases];
    int worker = item / s->n_cases;
    struct room *room = &s->rooms[thread];
    int64_t enough[BUFFER_CLASS_COUNT], found[BUFFER_CLASS_COUNT];
    TRY(prepare_once(c));
    if (c->twin_of[worker] != worker)
        return STATUS_OK;
    struct lowering given = lowering_in(room, c->work, s->shares, worker);
    find_enough(c, worker, enough);
    given.enough = enough;
    TRY(lowering_measure(&given, &c->given->options, worker, room->memory, found));
    take_larger(c, worker, found);
    return STATUS_OK;
}

void program_study_close(struct program_study *s)
{
    if (!s)
        return;
    for (int i = 0; s->cases && i < s->n_cases; i++) {
        groundwork_destroy(s->cases[i].work);
        pthread_mutex_destroy(&s->cases[i].lock);
    }
    close_rooms(s->rooms, s->n_rooms);
    free(s->cases);
    free(s);
}
