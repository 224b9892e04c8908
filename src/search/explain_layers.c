/* The price of a layer's cut by the additive model (pricing.h), and of its best other cut. */
#include "search/candidates_searched.h"
#include "search/explain.h"
#include "search/pricing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One stage of a plan, priced. */
struct stage_view {
    const struct predict_request *request;
    const struct plan *plan;
    int stage;
    const struct pricing *pricing;
    int *choice;    /* by layer of the pricing: the plan's; -1: none of the choices */
    double full;    /* micro-batches of pricing->request.samples that a batch would be */
    double exposed; /* share of the sums of gradients that does not hide behind backward */
};

static bool same_cut(const struct plan_layer *layer, const struct choice *c, int first_worker)
{
    if (layer->n_cuts != c->n_cuts || layer->n_pieces != c->n_pieces)
        return false;
    for (int i = 0; i < c->n_cuts; i++)
        if (layer->cut[i].loop != c->cut[i].loop || layer->cut[i].n_parts != c->cut[i].n_parts ||
            !layer->cut[i].sizes != !c->cut[i].sizes)
            return false;
    for (int i = 0; i < c->n_pieces; i++)
        if (layer->workers[i] != first_worker + c->workers[i])
            return false;
    return true;
}

static int find_choice(const struct stage_view *v, int layer)
{
    const struct pricing_layer *l = &v->pricing->layers[layer];
    const struct plan_layer *planned = &v->plan->layers[l->nodes.node[0]];
    int first_worker = v->plan->stages[v->stage].workers[0];
    if (planned->stage != v->stage)
        return -1;
    for (int x = 0; x < l->n_choices; x++)
        if (same_cut(planned, &l->choices[x], first_worker))
            return x;
    return -1;
}

/* Seconds of the moves to a layer and from it, there and back. */
struct moves {
    double to_s, from_s;
};

/* Under choice x of the layer and the plan's of the others. */
static struct moves find_moves(const struct stage_view *v, int layer, int x)
{
    struct moves m = {0, 0};
    for (int i = 0; i < v->pricing->n_edges; i++) {
        const struct pricing_edge *e = &v->pricing->edges[i];
        int columns = v->pricing->layers[e->to].n_choices;
        if (e->from == layer && v->choice[e->to] >= 0)
            m.from_s += v->full * e->table[(int64_t)x * columns + v->choice[e->to]];
        if (e->to == layer && v->choice[e->from] >= 0)
            m.to_s += v->full * e->table[(int64_t)v->choice[e->from] * columns + x];
    }
    return m;
}

/* In a step, without moves: sums and updates come once, the rest for each micro-batch. */
static double own_seconds(const struct stage_view *v, int layer, int x)
{
    const struct pricing_cost *c = &v->pricing->layers[layer].costs[x];
    double each_s = c->forward_s + c->backward_s + c->statistics_s + c->inside_s;
    return v->full * each_s + c->update_s + v->exposed * c->sync_s;
}

/* With all moves that depend on the choice. */
static double all_seconds(const struct stage_view *v, int layer, int x)
{
    struct moves m = find_moves(v, layer, x);
    return own_seconds(v, layer, x) + m.to_s + m.from_s;
}

/* A move counts where it is read, so that the times of all layers add up. */
static void price_layer(const struct stage_view *v, int layer, struct priced_node *out)
{
    const struct pricing_layer *l = &v->pricing->layers[layer];
    int chosen = v->choice[layer], other = -1;
    double least_s = INFINITY;
    if (chosen < 0)
        return;
    out->known = true;
    out->seconds = own_seconds(v, layer, chosen) + find_moves(v, layer, chosen).to_s;
    for (int x = 0; x < l->n_choices; x++) {
        double seconds = x == chosen ? INFINITY : all_seconds(v, layer, x);
        if (seconds < least_s) {
            least_s = seconds;
            other = x;
        }
    }
    if (other < 0)
        return;
    (void)choice_text(v->request->graph, &l->nodes, &l->choices[other],
                      v->plan->stages[v->stage].n_workers, out->other, sizeof out->other);
    out->other_s = least_s - all_seconds(v, layer, chosen);
}

/* By how long workers wait: no more of the sums than that takes time. */
static double find_exposed(const struct stage_view *v, double wait_s)
{
    double sync_s = 0;
    for (int i = 0; i < v->pricing->n_layers; i++)
        if (v->choice[i] >= 0)
            sync_s += v->pricing->layers[i].costs[v->choice[i]].sync_s;
    return sync_s > 0 ? fmin(1, wait_s / sync_s) : 0;
}

static enum status price_with(struct stage_view *v, double wait_s, arena *memory,
                              struct priced_node *priced)
{
    int n = v->pricing->n_layers;
    TRY(arena_alloc_array(memory, (size_t)n, sizeof *v->choice, &v->choice));
    for (int i = 0; i < n; i++)
        v->choice[i] = find_choice(v, i);
    v->exposed = find_exposed(v, wait_s);
    for (int i = 0; i < n; i++)
        price_layer(v, i, &priced[v->pricing->layers[i].nodes.node[0]]);
    return STATUS_OK;
}

static enum status price_stage(struct stage_view *v, const struct known_costs *costs, double wait_s,
                               arena *memory, struct priced_node *priced)
{
    const struct graph *graph = v->request->graph;
    const struct plan_stage *stage = &v->plan->stages[v->stage];
    int micros = v->plan->micro_batches;
    struct pricing_request r = {.graph = graph,
                                .machine = v->request->machine,
                                .transport = v->request->transport,
                                .precision = v->request->precision,
                                .first_device = stage->workers[0],
                                .n_workers = stage->n_workers,
                                .samples = (graph->batch + micros - 1) / micros,
                                .n_states = v->request->n_states,
                                .norms_by_worker = plan_norms_by_worker(v->plan),
                                .bucket_bytes = v->plan->bucket_bytes};
    struct pricing *p;
    TRY(known_costs_find_sources(costs, v->request->machine, memory, &r.sources));
    TRY(pricing_create(&r, NULL, &p));
    v->pricing = p;
    v->full = (double)graph->batch / (double)r.samples;
    enum status st = price_with(v, wait_s, memory, priced);
    pricing_destroy(p);
    return st;
}

/* Where pricing takes a while, a plan of many stages would take it many times. */
static bool is_quick(const struct plan *plan)
{
    return plan->n_workers > 1 && plan->n_workers <= EXPLAIN_MOST_WORKERS && plan->n_stages <= 4;
}

enum status explain_price_layers(const struct predict_request *request, const struct prediction *p,
                                 const struct plan *plan, struct priced_node *priced)
{
    struct known_costs costs;
    arena *memory;
    if (!is_quick(plan))
        return STATUS_OK;
    known_costs_take(&costs, request, p);
    TRY(arena_create(&memory));
    enum status st = STATUS_OK;
    for (int s = 0; s < plan->n_stages && st == STATUS_OK; s++) {
        struct stage_view v = {.request = request, .plan = plan, .stage = s};
        const struct clock_worker_result *w = &p->clock.workers[plan->stages[s].workers[0]];
        st = price_stage(&v, &costs, w->wait_s / p->programs[0]->n_steps, memory, priced);
    }
    arena_destroy(memory);
    return st;
}
