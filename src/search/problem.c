#include "search/problem.h"

#include "search/eliminate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t TABLE_LIMIT = 1 << 22;

struct solver {
    const struct search_problem *problem;
    const struct search_options *options; /* NULL: none */
    int64_t table_limit;
    const int *n_choices;
    int *best, *trial; /* choices by node */
    double best_cost, bound;
    bool stopped;
    struct search_answer *answer;
};

double search_sum(const struct search_problem *problem, const int *choice)
{
    double sum = 0;
    for (int i = 0; i < problem->n_nodes; i++)
        sum += problem->nodes[i].cost[choice[i]];
    for (int i = 0; i < problem->n_edges; i++) {
        const struct search_edge *e = &problem->edges[i];
        sum += e->cost[(int64_t)choice[e->a] * problem->nodes[e->b].n_choices + choice[e->b]];
    }
    return sum;
}

static bool is_stopped(struct solver *s)
{
    const struct search_options *o = s->options;
    if (!s->stopped && o && o->stop)
        s->stopped = o->stop(o->user, s->best_cost, s->bound);
    return s->stopped;
}

static void keep_trial(struct solver *s)
{
    double cost = search_sum(s->problem, s->trial);
    if (cost < s->best_cost) {
        s->best_cost = cost;
        memcpy(s->best, s->trial, (size_t)s->problem->n_nodes * sizeof *s->best);
    }
}

/* ---- something to begin with ---- */

/* Adds an edge's cost to cost[], by the choice of `node`, the other end being as it is. */
static void add_edge_costs(const struct search_problem *p, const struct search_edge *e, int node,
                           const int *choice, double *cost)
{
    int64_t columns = p->nodes[e->b].n_choices;
    for (int x = 0; x < p->nodes[node].n_choices; x++)
        cost[x] += node == e->a ? e->cost[x * columns + choice[e->b]]
                                : e->cost[choice[e->a] * columns + x];
}

static int least_index(const double *cost, int n)
{
    int best = 0;
    for (int x = 1; x < n; x++)
        best = cost[x] < cost[best] ? x : best;
    return best;
}

/* Each node the best for itself; then twice each node the best beside its neighbours. */
static enum status start_with_something(struct solver *s, arena *memory)
{
    const struct search_problem *p = s->problem;
    int most = 1;
    double *cost;
    for (int i = 0; i < p->n_nodes; i++) {
        most = p->nodes[i].n_choices > most ? p->nodes[i].n_choices : most;
        s->trial[i] = least_index(p->nodes[i].cost, p->nodes[i].n_choices);
    }
    TRY(arena_alloc_array(memory, (size_t)most, sizeof *cost, &cost));
    memcpy(s->best, s->trial, (size_t)p->n_nodes * sizeof *s->best);
    keep_trial(s);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < p->n_nodes; i++) {
            memcpy(cost, p->nodes[i].cost, (size_t)p->nodes[i].n_choices * sizeof *cost);
            for (int k = 0; k < p->n_edges; k++)
                if (p->edges[k].a == i || p->edges[k].b == i)
                    add_edge_costs(p, &p->edges[k], i, s->trial, cost);
            s->trial[i] = least_index(cost, p->nodes[i].n_choices);
        }
        keep_trial(s);
    }
    return STATUS_OK;
}

/* ---- branch and bound ---- */

static enum status solve_draft(struct solver *s, struct draft *d);

/* Takes out all nodes that it can; *stuck if a node has to be fixed first. */
static enum status eliminate(struct solver *s, struct draft *d, bool *stuck)
{
    *stuck = false;
    while (d->n_left > 0 && !*stuck && !is_stopped(s)) {
        bool done;
        TRY(draft_take_smallest(d, s->table_limit, &done));
        *stuck = !done;
    }
    return STATUS_OK;
}

/* One choice of the node that is fixed. */
struct branch {
    int choice;
    double bound;
};

static int compare_branches(const void *a, const void *b)
{
    const struct branch *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    return x->choice - y->choice;
}

static enum status bound_branch(struct solver *s, const struct draft *d, int node,
                                struct branch *branch)
{
    arena *memory;
    struct draft fixed;
    enum status st;
    TRY(arena_create(&memory));
    TRY_GOTO(st, draft_fix(d, node, branch->choice, memory, &fixed), out);
    s->trial[node] = branch->choice;
    while (fixed.n_left > 0)
        TRY_GOTO(st, draft_relax_smallest(&fixed), out);
    branch->bound = fixed.constant;
    draft_choose(&fixed, s->trial);
    keep_trial(s);
out:
    arena_destroy(memory);
    return st;
}

static enum status follow_branch(struct solver *s, const struct draft *d, int node, int choice)
{
    arena *memory;
    struct draft fixed;
    enum status st;
    TRY(arena_create(&memory));
    TRY_GOTO(st, draft_fix(d, node, choice, memory, &fixed), out);
    s->trial[node] = choice;
    s->answer->n_branches++;
    TRY_GOTO(st, solve_draft(s, &fixed), out);
out:
    arena_destroy(memory);
    return st;
}

/* Fixes the node with the most neighbours to each of its choices, the most promising first. */
static enum status branch(struct solver *s, struct draft *d)
{
    int node = draft_busiest(d), n = s->n_choices[node];
    struct branch *branches;
    TRY(arena_alloc_array(d->memory, (size_t)n, sizeof *branches, &branches));
    for (int x = 0; x < n; x++) {
        branches[x] = (struct branch){x, -INFINITY};
        if (!is_stopped(s))
            TRY(bound_branch(s, d, node, &branches[x]));
    }
    qsort(branches, (size_t)n, sizeof *branches, compare_branches);
    if (!d->outer)
        s->bound = fmax(s->bound, branches[0].bound);
    for (int i = 0; i < n && branches[i].bound < s->best_cost && !is_stopped(s); i++) {
        TRY(follow_branch(s, d, node, branches[i].choice));
        if (!d->outer && !s->stopped && i + 1 < n) /* the rest is no better */
            s->bound = fmax(s->bound, fmin(s->best_cost, branches[i + 1].bound));
    }
    return STATUS_OK;
}

static enum status solve_draft(struct solver *s, struct draft *d)
{
    bool stuck;
    TRY(eliminate(s, d, &stuck));
    s->answer->n_reduced += d->n_reduced;
    s->answer->n_tabled += d->n_tabled;
    s->answer->n_sums += d->n_sums;
    if (s->stopped)
        return STATUS_OK;
    if (stuck)
        return branch(s, d);
    draft_choose(d, s->trial);
    keep_trial(s);
    return STATUS_OK;
}

/* ---- the whole ---- */

static enum status check_problem(const struct search_problem *p)
{
    for (int i = 0; i < p->n_nodes; i++)
        if (p->nodes[i].n_choices < 1)
            return status_fail(STATUS_USAGE, "search: node %d has no choices", i);
    for (int i = 0; i < p->n_edges; i++) {
        const struct search_edge *e = &p->edges[i];
        if (e->a < 0 || e->a >= p->n_nodes || e->b < 0 || e->b >= p->n_nodes || e->a == e->b)
            return status_fail(STATUS_USAGE, "search: edge %d from node %d to node %d of %d", i,
                               e->a, e->b, p->n_nodes);
    }
    return STATUS_OK;
}

/* Every part at its least. */
static double weakest_bound(const struct search_problem *p)
{
    double sum = 0;
    for (int i = 0; i < p->n_nodes; i++)
        sum += p->nodes[i].cost[least_index(p->nodes[i].cost, p->nodes[i].n_choices)];
    for (int i = 0; i < p->n_edges; i++) {
        const struct search_edge *e = &p->edges[i];
        int64_t n = (int64_t)p->nodes[e->a].n_choices * p->nodes[e->b].n_choices;
        double least = INFINITY;
        for (int64_t k = 0; k < n; k++)
            least = e->cost[k] < least ? e->cost[k] : least;
        sum += least;
    }
    return sum;
}

static enum status solve(struct solver *s, arena *memory)
{
    const struct search_problem *p = s->problem;
    size_t n = (size_t)p->n_nodes;
    struct draft d;
    int *n_choices;
    TRY(arena_alloc_array(memory, n, sizeof *n_choices, &n_choices));
    TRY(arena_alloc_array(memory, n, sizeof *s->trial, &s->trial));
    for (int i = 0; i < p->n_nodes; i++)
        n_choices[i] = p->nodes[i].n_choices;
    s->n_choices = n_choices;
    s->bound = weakest_bound(p);
    TRY(start_with_something(s, memory));
    TRY(draft_create(p, n_choices, memory, &d));
    return solve_draft(s, &d);
}

enum status search_solve(const struct search_problem *problem, const struct search_options *options,
                         int *choice, struct search_answer *answer)
{
    struct solver s = {.problem = problem,
                       .options = options,
                       .table_limit =
                           options && options->table_limit ? options->table_limit : TABLE_LIMIT,
                       .best_cost = INFINITY,
                       .answer = answer};
    arena *memory;
    s.best = choice;
    TRY(check_problem(problem));
    TRY(arena_create(&memory));
    *answer = (struct search_answer){0};
    enum status st = solve(&s, memory);
    arena_destroy(memory);
    answer->cost = s.best_cost;
    answer->optimal = !s.stopped;
    answer->bound = answer->optimal ? s.best_cost : fmin(s.bound, s.best_cost);
    return st;
}
