/* The contents that buffers must have, from the graph, the plan and the op table alone: pieces, the
 * regions of parameters and their holders, and for any region of any tensor the symbols of its
 * value and of its gradient. */
#include "verify/checking.h"

#include <string.h>

/* ---- micro-batches and pieces ---- */

bool world_has_loss(const struct world *w)
{
    return op_get_info(w->graph->nodes[w->graph->n_nodes - 1].op.op)->flags & OP_IS_LOSS;
}

int64_t world_first_sample(const struct world *w, int m)
{
    return m % w->n_micros * w->graph->batch / w->n_micros;
}

int64_t world_count_samples(const struct world *w, int m)
{
    return (m % w->n_micros + 1) * w->graph->batch / w->n_micros - world_first_sample(w, m);
}

static enum status make_piece(struct world *w, int node, int worker, int64_t n, struct op_piece *to)
{
    int number = holdings_piece(w->holdings, node, worker);
    to->empty = true;
    if (number < 0)
        return STATUS_OK;
    struct op_case op = op_resize(&w->graph->nodes[node].op, USE_BATCH, n);
    struct loop_nest nest;
    struct box box;
    op_get_loops(&op, &nest);
    plan_piece_box(&w->plan->layers[node], &nest, number, &box);
    return op_get_piece(&op, &box, to);
}

enum status world_get_piece(struct world *w, int node, int worker, int m,
                            const struct op_piece **out)
{
    int64_t n = world_count_samples(w, m);
    size_t larger = n > w->graph->batch / w->n_micros; /* micro-batches come in two sizes */
    size_t index = ((size_t)node * (size_t)w->n_workers + (size_t)worker) * 2 + larger;
    struct op_piece **piece = &w->holdings->pieces[index];
    if (!*piece) {
        TRY(arena_alloc(w->holdings->memory, sizeof **piece, piece));
        TRY(make_piece(w, node, worker, n, *piece));
    }
    *out = (*piece)->empty ? NULL : *piece;
    return STATUS_OK;
}

/* ---- parameters ---- */

bool world_get_param(const struct world *w, int param, int worker, struct range *region)
{
    int kind = holdings_kind(w->holdings, param, worker);
    if (kind < 0)
        return false;
    memcpy(region, w->holdings->regions[param].list[kind].range,
           sizeof w->holdings->regions[param].list[kind].range);
    return true;
}

bool world_shares_param(const struct world *w, int param, int a, int b)
{
    int kind = holdings_kind(w->holdings, param, a);
    return kind >= 0 && kind == holdings_kind(w->holdings, param, b);
}

/* Servers keep whole parameters. Where one holder's region is whole, so are all others'. */
int world_server_of(const struct world *w, int param)
{
    const struct shape *shape = &w->graph->params[param].spec.shape;
    struct range region[SHAPE_MAX_RANK];
    int holder = 0;
    if (w->plan->n_servers == 0 || !graph_param_learns(&w->graph->params[param]))
        return -1;
    while (holder < w->n_workers && !world_get_param(w, param, holder, region))
        holder++;
    for (int i = 0; holder < w->n_workers && i < shape->rank; i++)
        if (region[i].begin != 0 || region[i].end != shape->dim[i])
            return -1;
    return w->plan->servers[param % w->plan->n_servers];
}

/* How many micro-batches before m have added to a worker's running statistics: all, or those of
 * which it has samples where it sees no others. */
static enum status count_statistics(struct world *w, int node, int worker, int m, int *out)
{
    *out = m;
    for (int i = 0; plan_norms_by_worker(w->plan) && i < m; i++) {
        const struct op_piece *piece = NULL;
        TRY(world_get_piece(w, node, worker, i, &piece));
        *out -= !piece;
    }
    return STATUS_OK;
}

/* A stage's forwards run ahead of its backwards, and so of its updates, by its distance from the
 * end of the pipeline. */
enum status world_find_version(struct world *w, int param, int worker, int m, int *out)
{
    int node = w->graph->params[param].node;
    *out = 0;
    if (!w->training)
        return STATUS_OK;
    if (!w->graph->params[param].spec.trained)
        return count_statistics(w, node, worker, m, out);
    if (w->graph->params[param].group.frozen)
        return STATUS_OK;
    if (w->plan->schedule == PLAN_PIPEDREAM)
        *out = m - (w->plan->n_stages - w->plan->layers[node].stage) + 1;
    *out = *out > 0 ? *out : 0;
    return STATUS_OK;
}

/* ---- symbols ---- */

enum { SYMBOL_VALUE = 1, SYMBOL_PARTIAL, SYMBOL_WEIGHT, SYMBOL_STATE, SYMBOL_FLAT };

static uint64_t symbol_of(uint64_t kind, int a, int b, int c)
{
    uint64_t s = symbol_mix(symbol_mix(kind, (uint64_t)a), (uint64_t)b);
    return symbol_mix(s, (uint64_t)c);
}

uint64_t world_symbol(enum symbol_kind kind, int number, int m, int worker)
{
    return symbol_of((uint64_t)kind, number, m, worker);
}

uint64_t world_input_gradient(int node, int k, int m, int worker)
{
    return symbol_mix(world_symbol(SYMBOL_INPUT_GRADIENT, node, m, worker), (uint64_t)k);
}

bool world_is_identity(const struct world *w, int node, int worker)
{
    return w->identity[node * w->n_workers + worker];
}

bool world_is_flattened(const struct world *w, int node, int worker)
{
    const struct op_case *op = &w->graph->nodes[node].op;
    return world_is_identity(w, node, worker) && op->input[0].rank != op->output.rank;
}

/* The node that computes this node's value: where the output is the input, element for element, it
 * is that of the input. */
static int find_source(const struct world *w, int node)
{
    for (int u = 0; u < w->n_workers; u++)
        if (world_is_identity(w, node, u) && !world_is_flattened(w, node, u))
            return find_source(w, w->graph->nodes[node].input[0]);
    return node;
}

/* A flattened value is a symbol of its own, the same for all nodes that flatten one tensor. */
uint64_t world_value(const struct world *w, int node, int m)
{
    node = find_source(w, node);
    for (int u = 0; u < w->n_workers; u++)
        if (world_is_flattened(w, node, u))
            return symbol_mix(world_value(w, w->graph->nodes[node].input[0], m), SYMBOL_FLAT);
    return symbol_of(SYMBOL_VALUE, node, m, 0);
}

uint64_t world_partial_value(const struct world *w, int node, int m, int worker)
{
    (void)w;
    return symbol_of(SYMBOL_PARTIAL, node, m, worker);
}

/* Equal regions are equal symbols. Asynchronous workers have first weights of their own, and
 * workers whose batch norms see their own samples alone have running statistics of their own. */
uint64_t world_weight(const struct world *w, int param, int worker, int version)
{
    struct range region[SHAPE_MAX_RANK];
    bool trained = w->graph->params[param].spec.trained;
    bool held = world_get_param(w, param, worker, region);
    uint64_t s = symbol_of(SYMBOL_WEIGHT, param, version, trained);
    for (int i = 0; held && i < w->graph->params[param].spec.shape.rank; i++)
        s = symbol_mix(symbol_mix(s, (uint64_t)region[i].begin), (uint64_t)region[i].end);
    const struct shape *whole = &w->graph->params[param].spec.shape;
    for (int i = 0; !held && i < whole->rank; i++)
        s = symbol_mix(symbol_mix(s, 0), (uint64_t)whole->dim[i]);
    bool own = trained ? w->plan->asynchronous && version == 0 : plan_norms_by_worker(w->plan);
    if (own && held)
        s = symbol_mix(s, 1 + (uint64_t)worker);
    return s;
}

uint64_t world_state(const struct world *w, int param, int k, int version)
{
    (void)w;
    return symbol_of(SYMBOL_STATE, param, k, version);
}

/* ---- values ---- */

enum status world_want_value(struct world *w, int node, int m, struct wanted *out)
{
    bool partial = false;
    node = find_source(w, node);
    for (int u = 0; node > 0 && u < w->n_workers; u++) {
        const struct op_piece *piece = NULL;
        TRY(world_get_piece(w, node, u, m, &piece));
        if (!piece || !piece->partial)
            continue;
        partial = true;
        wanted_add(out, world_partial_value(w, node, m, u), piece->output);
    }
    if (!partial)
        wanted_add(out, world_value(w, node, m), out->region);
    return STATUS_OK;
}

/* Adds a partial sum's share of the region. */
static enum status put_partial(struct world *w, uint64_t symbol, const struct op_piece *piece,
                               const struct range *region, struct content *out)
{
    int rank = out->shape.rank;
    struct range both[SHAPE_MAX_RANK];
    struct content share;
    int64_t from[SHAPE_MAX_RANK] = {0}, to[SHAPE_MAX_RANK] = {0}, extent[SHAPE_MAX_RANK] = {0};
    if (!ranges_meet(rank, piece->output, region, both))
        return STATUS_OK;
    for (int i = 0; i < rank; i++) {
        to[i] = both[i].begin - region[i].begin;
        extent[i] = both[i].end - both[i].begin;
    }
    TRY(content_of_region(w->scratch, symbol, rank, both, &share));
    return content_copy(w->scratch, &share, from, to, extent, true, out);
}

enum status world_put_value(struct world *w, int node, int m, int rank, const struct range *region,
                            struct content *out)
{
    bool partial = false;
    TRY(content_of_region(w->scratch, world_value(w, node, m), rank, region, out));
    node = find_source(w, node);
    for (int u = 0; node > 0 && u < w->n_workers; u++) {
        const struct op_piece *piece = NULL;
        TRY(world_get_piece(w, node, u, m, &piece));
        if (!piece || !piece->partial)
            continue;
        if (!partial)
            *out = content_zero(&out->shape);
        partial = true;
        TRY(put_partial(w, world_partial_value(w, node, m, u), piece, region, out));
    }
    return STATUS_OK;
}

/* ---- gradients ---- */

/* The gradient that a group hands on to the inputs of a sum: its output's, folded. */
static enum status want_handed_on(struct world *w, const struct node_group *g, int m, int worker,
                                  const struct range *region, struct wanted *out)
{
    if (g->activation != ACTIVATION_NONE) {
        wanted_add(out, world_symbol(SYMBOL_FOLDED, g->last, m, worker), region);
        return STATUS_OK;
    }
    struct wanted before = *out;
    if (!ranges_meet(out->rank, before.clip, region, out->clip)) {
        *out = before;
        return STATUS_OK;
    }
    TRY(world_want_gradient(w, g->last, m, out));
    memcpy(out->clip, before.clip, sizeof out->clip);
    return STATUS_OK;
}

/* A flatten without an instruction hands on what its output gets, in its input's shape. */
static enum status want_flattened(struct world *w, int node, int m, const struct op_piece *piece,
                                  struct wanted *out)
{
    struct wanted flat = wanted_flat(out, &w->graph->nodes[node].op.input[0], piece->output);
    return world_want_gradient(w, node, m, &flat);
}

/* The terms that one consumer's pieces add to the gradient of its input k. A sum, and a node that
 * does nothing, hand on the gradient that they get; all others make a new one. */
static enum status want_from_consumer(struct world *w, int consumer, int k, int m,
                                      struct wanted *out)
{
    const struct node_group *g = &w->groups[consumer];
    unsigned flags = op_get_info(w->graph->nodes[consumer].op.op)->flags;
    bool passes_on = g->first >= 0 && (g->first != consumer || flags & OP_PASSES_GRADIENT);
    for (int u = 0; u < w->n_workers; u++) {
        const struct op_piece *piece = NULL;
        TRY(world_get_piece(w, consumer, u, m, &piece));
        if (!piece)
            continue;
        if (world_is_flattened(w, consumer, u)) {
            TRY(want_flattened(w, consumer, m, piece, out));
            continue;
        }
        if (passes_on || world_is_identity(w, consumer, u)) {
            TRY(want_handed_on(w, g, m, u, piece->output, out));
            continue;
        }
        for (int i = 0; i < piece->op.n_inputs; i++)
            if (piece->slot[i] == k)
                wanted_add(out, world_input_gradient(consumer, k, m, u), piece->input[i]);
    }
    return STATUS_OK;
}

enum status world_want_gradient(struct world *w, int node, int m, struct wanted *out)
{
    for (int c = node + 1; c < w->graph->n_nodes; c++)
        for (int k = 0; k < w->graph->nodes[c].op.n_inputs; k++)
            if (w->graph->nodes[c].input[k] == node)
                TRY(want_from_consumer(w, c, k, m, out));
    return STATUS_OK;
}

enum status world_want_param_gradient(struct world *w, int param, int worker, int step, int holder,
                                      struct wanted *out)
{
    int node = w->graph->params[param].node;
    bool whole = world_server_of(w, param) == worker; /* a server's holders have all of it */
    for (int u = 0; u < w->n_workers; u++) {
        struct range region[SHAPE_MAX_RANK];
        bool counts = holder < 0 ? world_shares_param(w, param, u, worker) ||
                                       (whole && world_get_param(w, param, u, region))
                                 : u == holder;
        for (int m = step * w->n_micros; counts && m < (step + 1) * w->n_micros; m++) {
            const struct op_piece *piece = NULL;
            TRY(world_get_piece(w, node, u, m, &piece));
            if (piece)
                wanted_add(out, world_symbol(SYMBOL_PARAM_GRADIENT, param, m, u), out->region);
        }
    }
    return STATUS_OK;
}

enum status world_want_statistics(struct world *w, int node, int m, int worker, bool backward,
                                  struct wanted *out)
{
    enum symbol_kind kind = backward ? SYMBOL_BACKWARD_STATISTICS : SYMBOL_FORWARD_STATISTICS;
    const struct op_piece *mine = NULL, *piece = NULL;
    const struct axes *axes = &w->graph->nodes[node].op.output_axes;
    bool by_worker = plan_norms_by_worker(w->plan);
    TRY(world_get_piece(w, node, worker, m, &mine));
    for (int u = 0; mine && u < w->n_workers; u++) {
        TRY(world_get_piece(w, node, u, m, &piece));
        bool shares = piece != NULL;
        for (int a = 0; shares && a < axes->rank; a++)
            if (axes->use[a] == USE_CHANNEL || (by_worker && axes->use[a] == USE_BATCH))
                shares = piece->output[a].begin == mine->output[a].begin;
        if (shares)
            wanted_add(out, world_symbol(kind, node, m, u), out->region);
    }
    return STATUS_OK;
}

/* ---- creating ---- */

/* A group's nodes: its first, and each one's only consumer up to its last. */
static void note_group(struct world *w, int worker, const struct program_group *g)
{
    struct node_group info = {g->first_node, g->last_node, g->spec.activation};
    int node = g->first_node;
    w->identity[node * w->n_workers + worker] |= g->needs.output_is_input;
    w->groups[node] = w->groups[g->last_node] = info;
    for (int c = node + 1; c < g->last_node; c++)
        for (int k = 0; k < w->graph->nodes[c].op.n_inputs; k++)
            if (w->graph->nodes[c].input[k] == node)
                w->groups[c] = info; /* the sum between op and activation */
}

static enum status allocate_worker(struct world *w, int worker)
{
    const struct program *p = w->programs[worker];
    TRY(arena_alloc_array(w->scratch, (size_t)p->n_buffers, sizeof **w->contents,
                          &w->contents[worker]));
    return arena_alloc_array(w->scratch, (size_t)w->graph->n_params, sizeof **w->updates,
                             &w->updates[worker]);
}

enum status world_create(struct world *w)
{
    size_t n_nodes = (size_t)w->graph->n_nodes, n_workers = (size_t)w->n_workers;
    TRY(arena_alloc_array(w->scratch, n_nodes, sizeof *w->groups, &w->groups));
    TRY(arena_alloc_array(w->scratch, n_nodes * n_workers, sizeof *w->identity, &w->identity));
    TRY(arena_alloc_array(w->scratch, n_workers, sizeof *w->contents, &w->contents));
    TRY(arena_alloc_array(w->scratch, n_workers, sizeof *w->updates, &w->updates));
    for (size_t i = 0; i < n_nodes; i++)
        w->groups[i] = (struct node_group){-1, -1, ACTIVATION_NONE};
    for (int u = 0; u < w->n_workers; u++) {
        const struct program *p = w->programs[u];
        for (int i = 0; p && i < p->n_groups; i++)
            note_group(w, u, &p->groups[i]);
        if (p)
            TRY(allocate_worker(w, u));
    }
    return STATUS_OK;
}
