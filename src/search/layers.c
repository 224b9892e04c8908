#include "search/layers.h"

#include "base/timer.h"
#include "search/compose.h"

#include <math.h>
#include <string.h>

static double seconds_since(int64_t start_ns)
{
    return (double)(timer_now_ns() - start_ns) * 1e-9;
}

/* ---- memory ---- */

/* The least that a worker's device has; 0: unknown. */
static double memory_limit(const struct pricing_request *r)
{
    double least = 0;
    for (int i = 0; i < r->n_workers; i++) {
        int number = (r->first_device + i) % r->machine->n_devices;
        double bytes = (double)machine_device_memory(r->machine, number);
        if (bytes > 0 && (least <= 0 || bytes < least))
            least = bytes;
    }
    return least;
}

static double memory_of(const struct pricing *p, const int *choice)
{
    double sum = 0;
    for (int i = 0; i < p->n_layers; i++)
        sum += pricing_bytes(&p->request, &p->layers[i].costs[choice[i]]);
    return sum;
}

/* The same problem with every byte costing so many seconds. */
static enum status weigh_bytes(const struct pricing *p, double per_byte, arena *memory,
                               struct search_problem *out)
{
    struct search_node *nodes;
    TRY(arena_alloc_array(memory, (size_t)p->n_layers, sizeof *nodes, &nodes));
    for (int i = 0; i < p->n_layers; i++) {
        double *cost;
        int n = p->layers[i].n_choices;
        TRY(arena_alloc_array(memory, (size_t)n, sizeof *cost, &cost));
        for (int x = 0; x < n; x++)
            cost[x] = p->layers[i].totals[x] +
                      per_byte * pricing_bytes(&p->request, &p->layers[i].costs[x]);
        nodes[i] = (struct search_node){n, cost};
    }
    *out = p->problem;
    out->nodes = nodes;
    return STATUS_OK;
}

/* Lagrange's way: the least price of a byte with which the best plan fits. Its plan is the best of
 * those that need as little; others in between may be missed. */
static enum status bend_to_fit(const struct pricing *p, const struct search_options *options,
                               double limit, int *choice, arena *memory, bool *fits)
{
    enum { ROUNDS = 14 };
    struct search_answer answer;
    double low = 0, high = 0, per_byte = search_sum(&p->problem, choice) / limit / 16;
    int *trial;
    *fits = false;
    TRY(arena_alloc_array(memory, (size_t)p->n_layers, sizeof *trial, &trial));
    for (int i = 0; i < ROUNDS; i++) {
        struct search_problem weighed;
        TRY(weigh_bytes(p, per_byte, memory, &weighed));
        TRY(search_solve(&weighed, options, trial, &answer));
        bool fit = memory_of(p, trial) <= limit;
        if (fit || !*fits)
            memcpy(choice, trial, (size_t)p->n_layers * sizeof *choice);
        *fits |= fit;
        if (fit)
            high = per_byte;
        else
            low = per_byte;
        per_byte = high > 0 ? (low + high) / 2 : 4 * per_byte;
        if (!answer.optimal)
            break;
    }
    return STATUS_OK;
}

/* ---- the whole ---- */

static enum status search(const struct layers_request *r, const struct pricing *p,
                          struct layers_answer *a)
{
    struct search_answer answer;
    int *choice;
    TRY(arena_alloc_array(a->memory, (size_t)p->n_layers, sizeof *choice, &choice));
    a->choice = choice;
    TRY(search_solve(&p->problem, &r->options, choice, &answer));
    a->optimal = answer.optimal;
    a->bound_s = answer.bound;
    a->n_sums = answer.n_sums;
    double limit = memory_limit(&p->request);
    a->fits = limit <= 0 || memory_of(p, choice) <= limit;
    if (!a->fits && !r->ignore_memory) {
        TRY(bend_to_fit(p, &r->options, limit, choice, a->memory, &a->fits));
        a->optimal = false;
    }
    a->step_s = search_sum(&p->problem, choice);
    a->memory_bytes = memory_of(p, choice);
    a->n_layers = p->n_layers;
    a->n_edges = p->n_edges;
    a->n_priced_layers = p->n_priced_layers;
    a->n_priced_edges = p->n_priced_edges;
    for (int i = 0; i < p->n_layers; i++) {
        a->n_choices += p->layers[i].n_choices;
        a->log10_plans += log10(p->layers[i].n_choices);
    }
    struct composed_stage stage = {p, 0, p->n_layers, choice, false};
    return compose_plan(r->name ? r->name : "searched", &stage, 1, 1, PLAN_GPIPE, 1, &a->plan);
}

enum status search_layers_priced(const struct layers_request *request, const struct pricing *p,
                                 struct layers_answer **out)
{
    int64_t start_ns = timer_now_ns();
    struct layers_answer *a;
    arena *memory;
    enum status st;
    TRY(arena_create(&memory));
    TRY_GOTO(st, arena_alloc(memory, sizeof *a, &a), failed);
    a->memory = memory;
    TRY_GOTO(st, search(request, p, a), failed);
    a->search_s = seconds_since(start_ns);
    *out = a;
    return STATUS_OK;
failed:
    arena_destroy(memory);
    return st;
}

enum status search_layers(const struct layers_request *request, struct layers_answer **out)
{
    int64_t start_ns = timer_now_ns();
    struct pricing_request pricing = request->pricing;
    struct pricing *p;
    pricing.samples = 0;
    pricing.first_device = 0;
    TRY(pricing_create(&pricing, &request->options, &p));
    double pricing_s = seconds_since(start_ns);
    enum status st = search_layers_priced(request, p, out);
    pricing_destroy(p);
    TRY(st);
    (*out)->pricing_s = pricing_s;
    (*out)->search_s = seconds_since(start_ns);
    return STATUS_OK;
}

void layers_answer_destroy(struct layers_answer *a)
{
    if (!a)
        return;
    plan_destroy(a->plan);
    arena_destroy(a->memory);
}
