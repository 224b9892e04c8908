/* The dynamic programme of PipeDream (Narayanan et al. 2019, section 3.1), from the last stage to
 * the first, for pairs in place of one number:
 *
 *     blocks   | i ......... j-1 | j .................. end |
 *     slots    | k ... k+r-1     | k+r ..................   |
 *                one stage         s - 1 stages: S(s-1, j, k+r, r')
 *
 * There a plan is as good as its slowest stage, A(i, n, m) = min over j, r of max(A(j, n - r),
 * x(j), T(i..j, r)). A step with few micro-batches also takes the sum over stages, so a state keeps
 * all ways that no other beats in both the sum and the longest stage: few, sorted by sum. */
#include "search/stage_split.h"

#include "base/array.h"

#include <math.h>
#include <string.h>

/* fmax is a call, for the sake of numbers that are none. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* One way that no other beats, and where it goes on. */
struct way {
    struct split_cost cost;
    int end;          /* of its first stage */
    int next_r, next; /* the way behind: its slots, and its number */
};

struct ways {
    int n, capacity;
    struct way *all; /* sum ascends, longest falls */
};

struct splitter {
    const struct split_problem *p;
    arena *memory;
    struct ways *states;        /* [stage count][block][slot][slots] */
    struct split_cost *crosses; /* [block][slot][slots][slots behind] */
};

static struct ways *state_of(const struct splitter *s, int n_stages, int block, int slot, int r)
{
    int64_t slots = s->p->n_slots + 1, blocks = s->p->n_blocks;
    return &s->states[((n_stages * blocks + block) * slots + slot) * slots + r];
}

static struct split_cost *cross_of(const struct splitter *s, int at, int slot, int r, int next_r)
{
    int64_t slots = s->p->n_slots + 1;
    return &s->crosses[((at * slots + slot) * slots + r) * slots + next_r];
}

/* Asked once for each place and the slots on both sides; the ways that lead there are many more. */
static enum status find_crosses(struct splitter *s)
{
    const struct split_problem *p = s->p;
    size_t slots = (size_t)p->n_slots + 1;
    TRY(arena_alloc_array(s->memory, (size_t)p->n_blocks * slots * slots,
                          slots * sizeof *s->crosses, &s->crosses));
    for (int at = 1; at < p->n_blocks && p->max_stages > 1; at++)
        for (int slot = 0; slot < p->n_slots; slot++)
            for (int r = 1; slot + r < p->n_slots; r++)
                for (int next_r = 1; slot + r + next_r <= p->n_slots; next_r++)
                    *cross_of(s, at, slot, r, next_r) = p->cross(p->user, at, slot, r, next_r);
    return STATUS_OK;
}

/* Adds a way unless one that is there is as good in both; drops those that it beats. */
static enum status add_way(struct splitter *s, struct ways *to, const struct way *w)
{
    int at = 0, drop = 0;
    while (at < to->n && to->all[at].cost.sum < w->cost.sum)
        at++;
    if (at > 0 && to->all[at - 1].cost.longest <= w->cost.longest)
        return STATUS_OK;
    if (at < to->n && to->all[at].cost.sum <= w->cost.sum &&
        to->all[at].cost.longest <= w->cost.longest)
        return STATUS_OK;
    while (at + drop < to->n && to->all[at + drop].cost.longest >= w->cost.longest)
        drop++;
    TRY(array_reserve(s->memory, &to->all, to->n + 1, &to->capacity, sizeof *w));
    memmove(to->all + at + 1, to->all + at + drop, (size_t)(to->n - at - drop) * sizeof *to->all);
    to->all[at] = *w;
    to->n += 1 - drop;
    return STATUS_OK;
}

static enum status end_here(struct splitter *s, int block, int slot)
{
    const struct split_problem *p = s->p;
    int r = p->n_slots - slot;
    struct way w = {.end = p->n_blocks};
    if (!p->stage(p->user, block, p->n_blocks, slot, r, 0, &w.cost))
        return STATUS_OK;
    w.cost.longest = larger(w.cost.longest, p->rounds * w.cost.sum);
    return add_way(s, state_of(s, 1, block, slot, r), &w);
}

/* All ways behind a stage that ends before block `end`. */
static enum status go_on(struct splitter *s, int n_stages, int block, int slot, int r, int end,
                         const struct split_cost *stage)
{
    const struct split_problem *p = s->p;
    struct ways *to = state_of(s, n_stages, block, slot, r);
    for (int next_r = 1; slot + r + next_r <= p->n_slots; next_r++) {
        const struct ways *behind = state_of(s, n_stages - 1, end, slot + r, next_r);
        if (behind->n == 0)
            continue;
        struct split_cost cross = *cross_of(s, end, slot, r, next_r);
        double longest = larger(stage->longest, cross.longest);
        for (int i = 0; i < behind->n; i++) {
            const struct way *b = &behind->all[i];
            double sum = stage->sum + cross.sum + b->cost.sum, round = p->rounds * sum / n_stages;
            struct way w = {{sum, larger(round, larger(longest, b->cost.longest))}, end, next_r, i};
            TRY(add_way(s, to, &w));
            if (b->cost.longest <= longest) /* those after it have larger sums for nothing */
                break;
        }
    }
    return STATUS_OK;
}

static enum status start_at(struct splitter *s, int n_stages, int block, int slot)
{
    const struct split_problem *p = s->p;
    int behind = n_stages - 1;
    if (behind == 0)
        return end_here(s, block, slot);
    for (int r = 1; slot + r + behind <= p->n_slots; r++)
        for (int end = block + 1; end + behind <= p->n_blocks; end++) {
            struct split_cost cost;
            if (p->stage(p->user, block, end, slot, r, behind, &cost))
                TRY(go_on(s, n_stages, block, slot, r, end, &cost));
        }
    return STATUS_OK;
}

static void follow(const struct splitter *s, const struct way *w, int r, struct split_found *out)
{
    int block = 0, slot = 0;
    for (int k = 0; k < out->n_stages; k++) {
        out->stages[k] = (struct split_stage){block, w->end, slot, r};
        block = w->end;
        slot += r;
        if (k + 1 == out->n_stages)
            break;
        r = w->next_r;
        w = &state_of(s, out->n_stages - 1 - k, block, slot, r)->all[w->next];
    }
}

static void take_best(const struct splitter *s, int n_stages, struct split_found *out)
{
    const struct split_problem *p = s->p;
    const struct way *best = NULL;
    int best_r = 0;
    *out = (struct split_found){.total = INFINITY};
    for (int r = 1; r <= p->n_slots; r++) {
        const struct ways *ways = state_of(s, n_stages, 0, 0, r);
        for (int i = 0; i < ways->n; i++) {
            double total = p->total(p->user, n_stages, &ways->all[i].cost);
            if (total < out->total) {
                out->total = total;
                best = &ways->all[i];
                best_r = r;
            }
        }
    }
    if (!best)
        return;
    out->n_stages = n_stages;
    out->cost = best->cost;
    follow(s, best, best_r, out);
}

static enum status solve(struct splitter *s, struct split_found *found)
{
    const struct split_problem *p = s->p;
    size_t slots = (size_t)p->n_slots + 1;
    TRY(arena_alloc_array(s->memory, ((size_t)p->max_stages + 1) * (size_t)p->n_blocks,
                          slots * slots * sizeof *s->states, &s->states));
    TRY(find_crosses(s));
    for (int n_stages = 1; n_stages <= p->max_stages; n_stages++) {
        const struct search_options *o = &p->options;
        if (o->stop && o->stop(o->user, INFINITY, 0))
            return STATUS_OK;
        for (int block = p->n_blocks - n_stages; block >= 0; block--)
            for (int slot = 0; slot + n_stages <= p->n_slots; slot++)
                TRY(start_at(s, n_stages, block, slot));
        take_best(s, n_stages, &found[n_stages]);
    }
    return STATUS_OK;
}

enum status split_solve(const struct split_problem *p, struct split_found *found)
{
    struct splitter s = {.p = p};
    memset(found, 0, ((size_t)p->max_stages + 1) * sizeof *found);
    TRY(arena_create(&s.memory));
    enum status st = solve(&s, found);
    arena_destroy(s.memory);
    return st;
}
