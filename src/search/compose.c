#include "search/compose.h"

#include <string.h>

struct composition {
    struct plan *plan;
    const struct graph *graph;
    int first_worker; /* of the stage */
};

static enum status compose_stages(const struct composition *d, const struct composed_stage *stages)
{
    int next = 0;
    for (int s = 0; s < d->plan->n_stages; s++) {
        int *workers, n = stages[s].pricing->request.n_workers;
        TRY(arena_alloc_array(d->plan->memory, (size_t)n, sizeof *workers, &workers));
        for (int i = 0; i < n; i++)
            workers[i] = next++;
        d->plan->stages[s] = (struct plan_stage){n, workers};
    }
    d->plan->n_workers = next;
    return STATUS_OK;
}

/* Copies the lists that the pricing owns; layers with the stage's own workers share them. */
static enum status keep_layer(const struct composition *d, struct plan_layer *layer)
{
    const struct plan_stage *stage = &d->plan->stages[layer->stage];
    bool same = true;
    for (int i = 0; i < layer->n_pieces; i++)
        same &= layer->workers[i] == i;
    int *workers;
    if (!same)
        TRY(arena_alloc_array(d->plan->memory, (size_t)layer->n_pieces, sizeof *workers, &workers));
    for (int i = 0; !same && i < layer->n_pieces; i++)
        workers[i] = stage->workers[layer->workers[i]];
    layer->workers = same ? stage->workers : workers;
    for (int i = 0; i < layer->n_cuts; i++) {
        struct plan_cut *cut = &layer->cut[i];
        int64_t *sizes;
        if (!cut->sizes)
            continue;
        TRY(arena_alloc_array(d->plan->memory, (size_t)cut->n_parts, sizeof *sizes, &sizes));
        memcpy(sizes, cut->sizes, (size_t)cut->n_parts * sizeof *sizes);
        cut->sizes = sizes;
    }
    return STATUS_OK;
}

static enum status compose_layers(const struct composition *d, const struct composed_stage *stage,
                                  int number)
{
    for (int i = stage->first; i < stage->end; i++) {
        const struct pricing_layer *priced = &stage->pricing->layers[i];
        const struct choice *c = &priced->choices[stage->choice[i]];
        for (int k = 0; k < priced->nodes.n_nodes; k++) {
            struct plan_layer *layer = &d->plan->layers[priced->nodes.node[k]];
            layer->stage = number;
            layer->recompute = stage->recompute;
            TRY(choice_write(d->graph, &priced->nodes, k, c, d->plan->memory, layer));
            TRY(keep_layer(d, layer));
        }
    }
    return STATUS_OK;
}

static enum status compose(struct composition *d, const char *name,
                           const struct composed_stage *stages)
{
    struct plan *p = d->plan;
    const struct machine *m = stages[0].pricing->request.machine;
    TRY(arena_copy_text(p->memory, name, &p->name));
    TRY(arena_alloc_array(p->memory, (size_t)p->n_stages, sizeof *p->stages, &p->stages));
    TRY(arena_alloc_array(p->memory, (size_t)p->n_layers, sizeof *p->layers, &p->layers));
    TRY(compose_stages(d, stages));
    p->workers_per_node = m->nodes[0].n_devices;
    p->layers[0].n_pieces = 1;
    p->layers[0].workers = p->stages[0].workers;
    for (int s = 0; s < p->n_stages; s++)
        TRY(compose_layers(d, &stages[s], s));
    return plan_check(p, d->graph);
}

enum status compose_plan(const char *name, const struct composed_stage *stages, int n_stages,
                         int micro_batches, enum plan_schedule schedule, int window,
                         struct plan **out)
{
    const struct pricing_request *r = &stages[0].pricing->request;
    struct composition d = {.graph = r->graph};
    arena *memory;
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *d.plan, &d.plan), failed);
    *d.plan = (struct plan){.memory = memory,
                            .n_stages = n_stages,
                            .n_layers = r->graph->n_nodes,
                            .micro_batches = micro_batches,
                            .schedule = schedule,
                            .window = window,
                            .bucket_bytes = r->bucket_bytes ? r->bucket_bytes : PLAN_BUCKET_BYTES};
    TRY_GOTO(st, compose(&d, name, stages), failed);
    *out = d.plan;
    return STATUS_OK;
failed:
    arena_destroy(memory);
    return st;
}
