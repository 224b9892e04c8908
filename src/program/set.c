/* The programs of all workers of a plan, or their slabs alone.
 *
 * Each worker is lowered by itself, so several threads share the workers out where the backend lets
 * several threads ask its device. */
#include "base/numbers.h"
#include "base/parallel.h"
#include "program/lowering.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

enum status lowering_open_memory(int n, struct lowering_memory **out)
{
    struct lowering_memory *all = calloc((size_t)n, sizeof *all);
    enum status st = STATUS_OK;
    if (!all)
        return status_no_memory((size_t)n * sizeof *all);
    for (int i = 0; i < n && st == STATUS_OK; i++) {
        st = arena_create(&all[i].scratch);
        if (st == STATUS_OK)
            st = arena_create(&all[i].program);
    }
    if (st != STATUS_OK)
        lowering_close_memory(all, n);
    else
        *out = all;
    return st;
}

void lowering_close_memory(struct lowering_memory *all, int n)
{
    for (int i = 0; all && i < n; i++) {
        arrays_deinit(&all[i].arrays);
        arena_destroy(all[i].scratch);
        arena_destroy(all[i].program);
    }
    free(all);
}

/* ---- programs ---- */

struct set_work {
    const struct analysis *analysis;
    const struct program_options *options;
    const struct program_set *shares;
    struct lowering_memory *memory; /* by thread */
    struct program_set *set;
};

static enum status create_item(void *user, int worker, int thread)
{
    const struct set_work *w = user;
    if (w->set->twin_of[worker] != worker)
        return STATUS_OK;
    struct lowering given = {.analysis = w->analysis,
                             .options = w->options,
                             .worker = worker,
                             .shares = w->shares ? w->shares->programs[worker] : NULL,
                             .memory = &w->memory[thread]};
    return lowering_create(&given, &w->set->programs[worker]);
}

static enum status create_set(const struct analysis *a, const struct program_options *options,
                              const struct program_set *shares, bool twins, struct program_set *set)
{
    struct set_work w = {.analysis = a, .options = options, .shares = shares, .set = set};
    int n = set->n_workers = a->plan->n_workers, n_lowered = 0;
    TRY(arena_alloc_array(set->memory, (size_t)n, sizeof(struct program *), &set->programs));
    TRY(arena_alloc_array(set->memory, (size_t)n, sizeof *set->twin_of, &set->twin_of));
    for (int i = 0; i < n; i++)
        set->twin_of[i] = i;
    if (twins)
        TRY(analysis_find_twins(a, set->twin_of));
    for (int i = 0; i < n; i++)
        n_lowered += set->twin_of[i] == i;
    int n_threads = options->backend->describes_together ? parallel_threads(n_lowered) : 1;
    TRY(lowering_open_memory(n_threads, &w.memory));
    enum status st = parallel_run(n, n_threads, create_item, &w);
    lowering_close_memory(w.memory, n_threads);
    TRY(st);
    for (int i = 0; i < n; i++)
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
    struct analysis *a = NULL;
    enum status st;
    *set = (struct program_set){0};
    TRY(arena_create(&set->memory));
    if (!options->plan) {
        TRY_GOTO(st, create_serial(graph, options, shares, set), out);
    } else {
        TRY_GOTO(st, analysis_create(graph, options->plan, options->training, options->n_steps, &a),
                 out);
        TRY_GOTO(st, create_set(a, options, shares, twins, set), out);
    }
out:
    analysis_destroy(a);
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

struct study_case {
    const struct program_case *given;
    struct analysis *analysis;
    int *twin_of;
};

struct program_slabs {
    const struct program_set *shares;
    int n_cases, n_threads;
    struct study_case *cases;
    struct lowering_memory *memory; /* by thread */
};

static enum status open_study(struct program_slabs *s, const struct program_case *cases)
{
    s->cases = calloc((size_t)s->n_cases + 1, sizeof *s->cases);
    if (!s->cases)
        return status_no_memory((size_t)s->n_cases * sizeof *s->cases);
    for (int i = 0; i < s->n_cases; i++) {
        const struct program_options *o = &cases[i].options;
        struct study_case *c = &s->cases[i];
        c->given = &cases[i];
        TRY(analysis_create(cases[i].graph, o->plan, o->training, o->n_steps, &c->analysis));
        TRY(arena_alloc_array(c->analysis->memory, (size_t)o->plan->n_workers, sizeof *c->twin_of,
                              &c->twin_of));
        TRY(analysis_find_twins(c->analysis, c->twin_of));
    }
    return lowering_open_memory(s->n_threads, &s->memory);
}

enum status program_slabs_open(const struct program_case *cases, int n_cases,
                               const struct program_set *shares, int n_threads,
                               struct program_slabs **out)
{
    struct program_slabs *s = calloc(1, sizeof *s);
    if (!s)
        return status_no_memory(sizeof *s);
    *s = (struct program_slabs){.shares = shares, .n_cases = n_cases, .n_threads = n_threads};
    enum status st = open_study(s, cases);
    if (st != STATUS_OK)
        program_slabs_close(s);
    else
        *out = s;
    return st;
}

int program_slabs_items(const struct program_slabs *s)
{
    return s->n_cases ? s->n_cases * s->cases[0].given->options.plan->n_workers : 0;
}

enum status program_slabs_do(struct program_slabs *s, int item, int thread)
{
    struct study_case *c = &s->cases[item % s->n_cases];
    int worker = item / s->n_cases;
    int64_t found[BUFFER_CLASS_COUNT];
    if (c->twin_of[worker] != worker)
        return STATUS_OK;
    struct lowering given = {.analysis = c->analysis,
                             .options = &c->given->options,
                             .worker = worker,
                             .shares = s->shares ? s->shares->programs[worker] : NULL,
                             .memory = &s->memory[thread]};
    TRY(lowering_measure(&given, found));
    for (int i = worker; i < c->analysis->plan->n_workers; i++)
        for (int k = 0; c->twin_of[i] == worker && k < BUFFER_CLASS_COUNT; k++)
            c->given->slab_bytes[i][k] = int64_max(c->given->slab_bytes[i][k], found[k]);
    return STATUS_OK;
}

void program_slabs_close(struct program_slabs *s)
{
    if (!s)
        return;
    for (int i = 0; s->cases && i < s->n_cases; i++)
        analysis_destroy(s->cases[i].analysis);
    lowering_close_memory(s->memory, s->n_threads);
    free(s->cases);
    free(s);
}
