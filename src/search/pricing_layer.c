#include "search/pricing_layer.h"

#include <math.h>
#include <string.h>

/* ---- pieces ---- */

/* Of the longest parts, the one in the middle: it has a halo on both sides. */
static struct range longest_part(const struct plan_cut *cut, int64_t extent)
{
    struct range best = {0, 0};
    for (int k = 0; k < cut->n_parts; k++) {
        int i = (cut->n_parts / 2 + k) % cut->n_parts;
        struct range r = plan_part(cut, i, extent);
        if (r.end - r.begin > best.end - best.begin)
            best = r;
        if (!cut->sizes && best.end - best.begin == (extent + cut->n_parts - 1) / cut->n_parts)
            break;
    }
    return best;
}

static void largest_box(const struct plan_layer *layer, const struct loop_nest *nest,
                        struct box *box)
{
    loop_nest_whole(nest, box);
    for (int i = 0; i < layer->n_cuts; i++)
        box->range[layer->cut[i].loop] =
            longest_part(&layer->cut[i], nest->loop[layer->cut[i].loop].extent);
}

static double box_volume(const struct loop_nest *nest, const struct box *box)
{
    double volume = 1;
    for (int i = 0; i < nest->n_loops; i++)
        volume *= (double)(box->range[i].end - box->range[i].begin);
    return volume;
}

static int kind_of(const struct layer_pricer *p, int worker)
{
    return p->topology->machine->devices[p->topology->device[worker]].kind;
}

/* The largest piece that a device of this kind has; false: it has none. */
static bool largest_of_kind(const struct layer_pricer *p, const struct plan_layer *layer,
                            const struct loop_nest *nest, int kind, struct box *out)
{
    double most = 0;
    for (int i = 0; i < layer->n_pieces; i++) {
        struct box box;
        if (kind_of(p, layer->workers[i]) != kind)
            continue;
        plan_piece_box(layer, nest, i, &box);
        double volume = box_volume(nest, &box);
        if (volume > most) {
            most = volume;
            *out = box;
        }
    }
    return most > 0;
}

/* ---- computing ---- */

static double seconds_of(const struct cost_source *source, const struct group_spec *spec,
                         enum pass pass, int n_gradients)
{
    struct instr_work work;
    work_of_group(spec, pass, n_gradients, &work);
    return costs_estimate(source, &work);
}

static double elements(const struct shape *s)
{
    return (double)shape_elements(s);
}

static const struct precision_info *types_of(const struct layer_pricer *p)
{
    return precision_get_info(p->request->precision);
}

/* Of an element of an activation. */
static double activation_bytes(const struct layer_pricer *p)
{
    return (double)element_bytes(types_of(p)->activation);
}

/* The sum of several gradients, or an activation's slope, where the op does not do it itself. */
static double folding_s(const struct cost_source *source, const struct group_spec *spec,
                        int n_gradients)
{
    bool activates = spec->activation != ACTIVATION_NONE;
    struct instr_work work;
    if (op_get_info(spec->op.op)->flags & OP_FOLDS_GRADIENTS || (!activates && n_gradients < 2))
        return 0;
    enum element type = precision_get_info(spec->precision)->activation;
    double n_bytes = elements(&spec->op.output) * (double)element_bytes(type);
    work_of_fold(n_gradients, activates, n_bytes, type, &work);
    return costs_estimate(source, &work);
}

static bool is_reshape(const struct op_case *op)
{
    return op->n_inputs == 1 && op->input[0].rank != op->output.rank &&
           shape_elements(&op->input[0]) == shape_elements(&op->output);
}

static void price_group(const struct cost_source *source, const struct group_spec *spec,
                        int n_gradients, bool has_params, struct pricing_cost *out)
{
    unsigned flags = op_get_info(spec->op.op)->flags;
    out->forward_s += seconds_of(source, spec, PASS_FORWARD, n_gradients);
    if (spec->shared_statistics)
        out->forward_s += seconds_of(source, spec, PASS_FORWARD_STATISTICS, n_gradients);
    if (!spec->input_gradient && !has_params)
        return;
    out->backward_s += folding_s(source, spec, n_gradients);
    if (spec->shared_statistics)
        out->backward_s += seconds_of(source, spec, PASS_BACKWARD_STATISTICS, n_gradients);
    if (!(flags & OP_SPLIT_GRADIENT)) {
        out->backward_s += seconds_of(source, spec, PASS_BACKWARD, n_gradients);
        return;
    }
    if (spec->input_gradient)
        out->backward_s += seconds_of(source, spec, PASS_BACKWARD_DATA, n_gradients);
    if (has_params)
        out->backward_s += seconds_of(source, spec, PASS_BACKWARD_WEIGHTS, n_gradients);
}

/* Whether node number i is an activation that the one before it does on its way. */
static bool is_folded(const struct layer_case *c, bool partial, int i)
{
    if (i == 0 || i >= c->n_nodes || op_get_info(c->op[i].op)->activation == ACTIVATION_NONE)
        return false;
    bool takes = op_get_info(c->op[i - 1].op)->flags & OP_TAKES_ACTIVATION;
    return takes && !(i == 1 && partial) && !is_folded(c, partial, i - 1);
}

/* One node's largest piece on a device of this kind. */
static enum status price_node(const struct layer_pricer *p, const struct layer_case *c,
                              bool partial, int i, int kind, const struct box *box,
                              struct pricing_cost *out)
{
    const struct cost_source *source = &p->request->sources[kind];
    struct op_piece piece;
    bool activates = is_folded(c, partial, i + 1);
    bool is_last = i + activates + 1 >= c->n_nodes;
    TRY(op_get_piece(&c->op[i], box, &piece));
    if (i == 0 && c->folded_sum) { /* one more tensor passes, each way */
        double n_bytes = elements(&piece.op.output) * activation_bytes(p);
        double s = n_bytes / source->kind->reached_bytes_per_s;
        out->forward_s += s;
        out->backward_s += s;
        return STATUS_OK;
    }
    if (is_reshape(&piece.op))
        return STATUS_OK;
    struct group_spec spec = {
        .op = piece.op,
        .precision = p->request->precision,
        .activation = activates ? op_get_info(c->op[i + 1].op)->activation : ACTIVATION_NONE,
        .training = true,
        .input_gradient = i > 0 || c->input_gradient,
        .shared_statistics = plan_summed_statistics(p->request->norms_by_worker, &c->nest[i],
                                                    piece.shared_statistics) != 0};
    price_group(source, &spec, is_last ? c->n_readers : 1, c->learns[i] != 0, out);
    return STATUS_OK;
}

/* All nodes of the layer on devices of one kind; false in *has: they have no pieces. */
static enum status price_kind(const struct layer_pricer *p, const struct layer_case *c,
                              bool partial, const struct plan_layer *cuts, int kind,
                              struct pricing_cost *out, bool *has)
{
    bool alike = p->topology->machine->n_kinds == 1;
    *has = false;
    for (int i = 0; i < c->n_nodes; i++) {
        struct box box;
        if (is_folded(c, partial, i))
            continue;
        if (alike)
            largest_box(&cuts[i], &c->nest[i], &box);
        else if (!largest_of_kind(p, &cuts[i], &c->nest[i], kind, &box))
            continue;
        *has = true;
        TRY(price_node(p, c, partial, i, kind, &box, out));
    }
    return STATUS_OK;
}

static enum status price_computing(const struct layer_pricer *p, const struct layer_case *c,
                                   bool partial, const struct plan_layer *cuts,
                                   struct pricing_cost *out)
{
    for (int kind = 0; kind < p->topology->machine->n_kinds; kind++) {
        struct pricing_cost cost = {0};
        bool has;
        TRY(price_kind(p, c, partial, cuts, kind, &cost, &has));
        if (has && cost.forward_s + cost.backward_s > out->forward_s + out->backward_s) {
            out->forward_s = cost.forward_s;
            out->backward_s = cost.backward_s;
        }
    }
    return STATUS_OK;
}

/* ---- sums ---- */

/* Whether a piece has the first part of every cut loop that `mask` has. */
static bool is_first(const struct plan_layer *layer, int piece, unsigned mask)
{
    for (int c = layer->n_cuts - 1; c >= 0; c--) {
        int part = piece % layer->cut[c].n_parts;
        piece /= layer->cut[c].n_parts;
        if (part > 0 && (mask >> layer->cut[c].loop & 1))
            return false;
    }
    return true;
}

/* The workers of the pieces that differ from the first only in loops that `mask` has. */
static int find_members(const struct plan_layer *layer, unsigned mask, int *members)
{
    int n = 0;
    for (int i = 0; i < layer->n_pieces; i++)
        if (is_first(layer, i, ~mask))
            members[n++] = layer->workers[i];
    return n;
}

/* How many such groups there are on the node of the first; none of other parts of `alone`. */
static int count_alike(const struct layer_pricer *p, const struct plan_layer *layer, int n,
                       unsigned alone)
{
    const struct topology *t = p->topology;
    int node = t->node_of[p->members[0]], pieces = 0, members = 0;
    if (t->n_nodes == 1)
        return 1;
    for (int i = 0; i < layer->n_pieces; i++)
        pieces += t->node_of[layer->workers[i]] == node && (!alone || is_first(layer, i, alone));
    for (int i = 0; i < n; i++)
        members += t->node_of[p->members[i]] == node;
    return members > 0 && pieces > members ? pieces / members : 1;
}

static unsigned loops_of_tensor(const struct tensor_map *map)
{
    unsigned mask = 0;
    for (int a = 0; a < map->rank; a++)
        for (int i = 0; i < map->axis[a].n_terms; i++)
            mask |= 1u << map->axis[a].term[i].loop;
    return mask;
}

/* Cut loops by their relation to a parameter: over the parts of the shared ones its gradient is
 * summed, and of those of a sum that does not index it (a bias) the first alone has it. */
struct param_loops {
    unsigned shared, alone;
};

static struct param_loops find_param_loops(const struct plan_layer *layer,
                                           const struct loop_nest *nest,
                                           const struct tensor_map *param)
{
    struct param_loops l = {0, 0};
    unsigned index = loops_of_tensor(param);
    for (int i = 0; i < layer->n_cuts; i++) {
        int loop = layer->cut[i].loop;
        unsigned bit = 1u << loop & ~index;
        if (nest->loop[loop].role == LOOP_SUMMED)
            l.alone |= bit;
        else
            l.shared |= bit;
    }
    return l;
}

static double region_bytes(const struct range *region, int rank, enum element type)
{
    double volume = (double)element_bytes(type);
    for (int a = 0; a < rank; a++)
        volume *= (double)(region[a].end - region[a].begin);
    return volume;
}

static const enum comm_method methods[PLAN_SYNC_COUNT] = {
    [PLAN_RING] = COMM_RING,
    [PLAN_TREE] = COMM_TREE,
    [PLAN_HIERARCHICAL] = COMM_HIERARCHICAL,
    [PLAN_SERVER] = COMM_RING, /* of weights that no server keeps */
};

/* Gradients lie in buckets with those of other layers: a share of a full one counts. */
static double sync_s(const struct layer_pricer *p, const struct plan_layer *layer,
                     struct param_loops loops, double n_bytes)
{
    double bucket = p->request->bucket_bytes ? (double)p->request->bucket_bytes : PLAN_BUCKET_BYTES;
    int n = find_members(layer, loops.shared, p->members);
    if (n < 2)
        return 0;
    int alike = count_alike(p, layer, n, loops.alone);
    const struct topology_sum sum = {methods[p->request->sync], p->request->node_size,
                                     types_of(p)->gradient, n, alike};
    return topology_sum_s(p->topology, &sum, p->members, bucket) * n_bytes / bucket;
}

static double kind_update_s(const struct layer_pricer *p, int kind, double n_bytes)
{
    struct instr_work work;
    work_of_update(p->request->n_states, n_bytes, types_of(p)->master, &work);
    return costs_estimate(&p->request->sources[kind], &work);
}

/* The first piece that a device of this kind has; -1: it has none. */
static int find_piece_of_kind(const struct layer_pricer *p, const struct plan_layer *layer,
                              int kind)
{
    for (int i = 0; i < layer->n_pieces; i++)
        if (kind_of(p, layer->workers[i]) == kind)
            return i;
    return -1;
}

/* Of a parameter of which the largest piece has n_bytes. On mixed machines of the kind of devices
 * that takes longest: those of one kind have about as much. */
static double update_s(const struct layer_pricer *p, const struct loop_nest *nest,
                       const struct tensor_map *param, const struct plan_layer *layer,
                       double n_bytes)
{
    double longest_s = 0;
    if (p->topology->machine->n_kinds == 1)
        return kind_update_s(p, 0, n_bytes);
    for (int kind = 0; kind < p->topology->machine->n_kinds; kind++) {
        struct range region[SHAPE_MAX_RANK];
        struct box box;
        int piece = find_piece_of_kind(p, layer, kind);
        if (piece < 0)
            continue;
        plan_piece_box(layer, nest, piece, &box);
        op_get_piece_region(nest, param, &box, region);
        longest_s =
            fmax(longest_s,
                 kind_update_s(p, kind, region_bytes(region, param->rank, types_of(p)->master)));
    }
    return longest_s;
}

static void price_params(const struct layer_pricer *p, const struct layer_case *c, int i,
                         const struct plan_layer *layer, struct pricing_cost *out)
{
    const struct loop_nest *nest = &c->nest[i];
    struct op_param params[OP_MAX_PARAMS];
    struct range regions[OP_MAX_PARAMS][SHAPE_MAX_RANK];
    struct box box;
    int n = op_get_params(&c->op[i], params);
    largest_box(layer, nest, &box);
    for (int k = 0; k < n; k++) {
        struct param_loops loops = find_param_loops(layer, nest, &nest->param[k]);
        op_get_piece_region(nest, &nest->param[k], &box, regions[k]);
        double n_bytes = region_bytes(regions[k], nest->param[k].rank, types_of(p)->gradient);
        out->weight_bytes += n_bytes;
        if (!(c->learns[i] >> k & 1))
            continue;
        out->update_s += update_s(p, nest, &nest->param[k], layer, n_bytes);
        if (loops.shared)
            out->sync_s += sync_s(p, layer, loops, n_bytes);
    }
}

/* Two sums in double for each channel, forward and backward. */
static void price_statistics(const struct layer_pricer *p, const struct loop_nest *nest,
                             const struct plan_layer *layer, struct pricing_cost *out)
{
    unsigned over = 0;
    struct box box;
    for (int i = 0; i < layer->n_cuts; i++)
        if (nest->loop[layer->cut[i].loop].cut == CUT_STATISTICS)
            over |= 1u << layer->cut[i].loop;
    over = plan_summed_statistics(p->request->norms_by_worker, nest, over);
    if (!over)
        return;
    largest_box(layer, nest, &box);
    int loop = loop_nest_find(nest, USE_CHANNEL);
    double channels = (double)(box.range[loop].end - box.range[loop].begin);
    int n = find_members(layer, over, p->members);
    double wake_s = p->topology->on_cpu ? p->topology->machine->wake_s : 0;
    const struct topology_sum sum = {COMM_GATHER, 0, ELEMENT_F64, n, count_alike(p, layer, n, 0)};
    out->statistics_s += 2 * (wake_s + topology_sum_s(p->topology, &sum, p->members,
                                                      2 * channels * (double)sizeof(double)));
}

/* ---- memory ---- */

/* Outputs of all nodes that are not folded, and inputs of which a worker reads more than its part
 * of the whole: those are copies. */
static void count_kept(const struct layer_pricer *p, const struct layer_case *c, bool partial,
                       const struct plan_layer *cuts, struct pricing_cost *out)
{
    const enum element type = types_of(p)->activation;
    struct range region[SHAPE_MAX_RANK];
    struct box box;
    for (int i = 0; i < c->n_nodes; i++) {
        if (is_folded(c, partial, i) || is_reshape(&c->op[i]))
            continue;
        largest_box(&cuts[i], &c->nest[i], &box);
        op_get_piece_region(&c->nest[i], &c->nest[i].output, &box, region);
        out->kept_bytes += region_bytes(region, c->nest[i].output.rank, type);
    }
    largest_box(&cuts[0], &c->nest[0], &box);
    for (int k = 0; k < c->op[0].n_inputs; k++) {
        const struct tensor_map *map = &c->nest[0].input[k];
        op_get_piece_region(&c->nest[0], map, &box, region);
        double read = region_bytes(region, map->rank, type);
        double part = elements(&c->op[0].input[k]) * activation_bytes(p) / cuts[0].n_pieces;
        if (read > 1.05 * part)
            out->kept_bytes += read;
    }
}

/* ---- all of it ---- */

/* A partial sum is added up before the followers go on with it. */
static enum status price_inside(const struct layer_pricer *p, const struct layer_case *c,
                                const struct plan_layer *cuts, struct pricing_cost *out)
{
    struct sharding own, read;
    TRY(sharding_make(p->maker, &c->nest[0], &c->nest[0].output, &cuts[0], &own));
    TRY(sharding_make(p->maker, &c->nest[1], &c->nest[1].input[0], &cuts[1], &read));
    out->inside_s = sharding_move_s(p->topology, &own, &read, activation_bytes(p));
    return STATUS_OK;
}

enum status layer_price_cuts(const struct layer_pricer *p, const struct layer_case *c,
                             const struct plan_layer *cuts, struct pricing_cost *out)
{
    bool partial = false;
    for (int i = 0; i < cuts[0].n_cuts; i++)
        partial |= c->nest[0].loop[cuts[0].cut[i].loop].role == LOOP_SUMMED;
    *out = (struct pricing_cost){0};
    TRY(price_computing(p, c, partial, cuts, out));
    for (int i = 0; i < c->n_nodes; i++) {
        price_params(p, c, i, &cuts[i], out);
        price_statistics(p, &c->nest[i], &cuts[i], out);
    }
    count_kept(p, c, partial, cuts, out);
    return partial && c->n_nodes > 1 ? price_inside(p, c, cuts, out) : STATUS_OK;
}

enum status layer_price(const struct layer_pricer *p, const struct layer_case *c,
                        const struct choice *choice, struct plan_layer *cuts,
                        struct pricing_cost *out)
{
    for (int i = 0; i < c->n_nodes; i++)
        TRY(choice_write(p->request->graph, c->layer, i, choice, p->memory, &cuts[i]));
    return layer_price_cuts(p, c, cuts, out);
}

/* ---- cases ---- */

enum status layer_readers_find(const struct graph *g, int64_t samples, arena *memory,
                               struct layer_readers *out)
{
    bool *needs;
    int *count;
    TRY(arena_alloc_array(memory, (size_t)g->n_nodes, sizeof *needs, &needs));
    TRY(arena_alloc_array(memory, (size_t)g->n_nodes, sizeof *count, &count));
    for (int i = 0; i < g->n_nodes; i++) {
        needs[i] = graph_node_learns(g, &g->nodes[i]) != 0;
        for (int k = 0; k < g->nodes[i].op.n_inputs; k++) {
            needs[i] |= needs[g->nodes[i].input[k]];
            count[g->nodes[i].input[k]]++;
        }
    }
    *out = (struct layer_readers){g, samples, needs, count};
    return STATUS_OK;
}

/* A sum of two that is folded into one of the nodes before it, if they are cut alike. */
static bool is_folded_sum(const struct layer_readers *r, int node)
{
    const struct graph_node *n = &r->graph->nodes[node];
    if (n->op.n_inputs != 2 || !(op_get_info(n->op.op)->flags & OP_PASSES_GRADIENT))
        return false;
    for (int k = 0; k < 2; k++)
        if (op_get_info(r->graph->nodes[n->input[k]].op.op)->flags & OP_TAKES_RESIDUAL &&
            r->count[n->input[k]] == 1)
            return true;
    return false;
}

void layer_case_fill(const struct layer_readers *r, const struct choice_layer *layer,
                     struct layer_case *out)
{
    const struct graph *g = r->graph;
    const struct graph_node *first = &g->nodes[layer->node[0]];
    memset(out, 0, sizeof *out);
    out->layer = layer;
    out->n_nodes = layer->n_nodes;
    for (int i = 0; i < layer->n_nodes; i++) {
        out->op[i] = op_resize(&g->nodes[layer->node[i]].op, USE_BATCH, r->samples);
        out->learns[i] = graph_node_learns(g, &g->nodes[layer->node[i]]);
    }
    for (int k = 0; k < first->op.n_inputs; k++)
        out->input_gradient |= r->needs_gradient[first->input[k]];
    out->folded_sum = is_folded_sum(r, layer->node[0]);
    out->n_readers = r->count[layer->node[layer->n_nodes - 1]];
}
