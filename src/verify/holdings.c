#include "verify/checking.h"

#include <stdlib.h>
#include <string.h>

enum { HASH_LEAST = 16 };

struct finding {
    const struct graph *graph;
    const struct plan *plan;
    struct holdings *out;
    size_t n_slots; /* a power of two, over twice the workers */
    int *slots;     /* of the parameter at hand: numbers of regions; -1: free */
};

static void find_pieces(struct finding *f, int node)
{
    const struct plan_layer *layer = &f->plan->layers[node];
    int *piece = f->out->piece + (size_t)node * (size_t)f->out->n_workers;
    for (int u = 0; u < f->out->n_workers; u++)
        piece[u] = -1;
    for (int i = layer->n_pieces - 1; i >= 0; i--) /* the first piece of a worker counts */
        if (layer->workers[i] >= 0 && layer->workers[i] < f->out->n_workers)
            piece[layer->workers[i]] = i;
}

/* The region of parameter k of the node that the piece computes with; false: none. */
static bool find_region(const struct finding *f, int node, int k, int piece,
                        struct param_region *out)
{
    const struct graph_node *n = &f->graph->nodes[node];
    struct range all[OP_MAX_PARAMS][SHAPE_MAX_RANK];
    struct loop_nest nest;
    struct box box;
    op_get_loops(&n->op, &nest);
    plan_piece_box(&f->plan->layers[node], &nest, piece, &box);
    if (op_get_piece_params(&nest, &box, all) <= k)
        return false;
    *out = (struct param_region){0};
    int rank = f->graph->params[n->first_param + k].spec.shape.rank;
    memcpy(out->range, all[k], (size_t)rank * sizeof all[k][0]);
    return true;
}

static size_t hash(const struct param_region *r)
{
    uint64_t h = 0;
    for (int i = 0; i < SHAPE_MAX_RANK; i++)
        h = (h * 0x9e3779b97f4a7c15u) ^ (uint64_t)r->range[i].begin ^
            (uint64_t)r->range[i].end << 32 ^ h >> 29;
    return (size_t)(h ^ h >> 32);
}

/* The number of the region among those of the parameter, to which it may be new. */
static int number_region(struct finding *f, struct param_regions *known,
                         const struct param_region *r)
{
    size_t at = hash(r) & (f->n_slots - 1);
    while (f->slots[at] >= 0 && memcmp(&known->list[f->slots[at]], r, sizeof *r) != 0)
        at = (at + 1) & (f->n_slots - 1);
    if (f->slots[at] < 0) {
        f->slots[at] = known->n;
        known->list[known->n++] = *r;
    }
    return f->slots[at];
}

static enum status find_param(struct finding *f, int param, struct param_region *room,
                              arena *memory)
{
    int node = f->graph->params[param].node, n_workers = f->out->n_workers;
    int *kind = f->out->kind + (size_t)param * (size_t)n_workers;
    struct param_regions known = {.list = room};
    for (size_t i = 0; i < f->n_slots; i++)
        f->slots[i] = -1;
    for (int u = 0; u < n_workers; u++) {
        struct param_region r;
        int piece = holdings_piece(f->out, node, u);
        bool has = piece >= 0 &&
                   find_region(f, node, param - f->graph->nodes[node].first_param, piece, &r);
        kind[u] = has ? number_region(f, &known, &r) : -1;
    }
    f->out->regions[param].n = known.n;
    TRY(arena_alloc_array(memory, (size_t)known.n + 1, sizeof *room, &f->out->regions[param].list));
    memcpy(f->out->regions[param].list, room, (size_t)known.n * sizeof *room);
    return STATUS_OK;
}

enum status holdings_create(const struct graph *graph, const struct plan *plan, arena *memory,
                            struct holdings *out)
{
    size_t n_workers = (size_t)plan->n_workers, n_params = (size_t)graph->n_params;
    struct finding f = {.graph = graph, .plan = plan, .out = out, .n_slots = HASH_LEAST};
    *out = (struct holdings){.n_workers = plan->n_workers, .memory = memory};
    TRY(arena_alloc_array(memory, (size_t)graph->n_nodes * n_workers, sizeof *out->piece,
                          &out->piece));
    TRY(arena_alloc_array(memory, (size_t)graph->n_nodes * n_workers * 2, sizeof *out->pieces,
                          &out->pieces));
    TRY(arena_alloc_array(memory, n_params * n_workers + 1, sizeof *out->kind, &out->kind));
    TRY(arena_alloc_array(memory, n_params + 1, sizeof *out->regions, &out->regions));
    while (f.n_slots <= 2 * n_workers)
        f.n_slots *= 2;
    f.slots = malloc(f.n_slots * sizeof *f.slots);
    struct param_region *room = malloc(n_workers * sizeof *room);
    enum status st = f.slots && room ? STATUS_OK : status_no_memory(n_workers * sizeof *room);
    for (int i = 0; st == STATUS_OK && i < graph->n_nodes; i++)
        find_pieces(&f, i);
    for (int i = 0; st == STATUS_OK && i < graph->n_params; i++)
        st = find_param(&f, i, room, memory);
    free(f.slots);
    free(room);
    return st;
}
