/* A worker's pieces, the kernels that run them, and the parameters that they hold.
 *
 * Parameters that several workers hold are summed, sent and received as they lie in memory, so all
 * holders must use one layout. But the backend chooses layouts by the shapes of a piece, and pieces
 * may be uneven. So all holders use the layout that the backend chooses for the first holder's
 * piece, with inputs in their natural layouts. */
#include "program/lowering.h"

#include <string.h>

/* ---- pieces ---- */

/* The analysis has most cases; *own is filled with the others. */
static const struct group_case *case_of(const struct emitter *e, const struct part_group *g,
                                        int size, struct group_case *own)
{
    int number = (int)(g - e->part->groups);
    const struct group_case *known = e->analysis->cases[number][size];
    if (!known)
        analysis_find_case(e->analysis, number, size, own);
    return known ? known : own;
}

/* Of a worker that has one. */
static enum status find_piece(const struct emitter *e, const struct part_group *g, int size,
                              int worker, struct op_piece *piece)
{
    struct group_case own;
    const struct group_case *whole = case_of(e, g, size, &own);
    struct box box;
    plan_piece_box(&e->p->plan->layers[g->first_node], &whole->nest,
                   e->part->piece_of[g->first_node][worker], &box);
    return op_get_piece_of(&whole->op, &whole->nest, &box, piece);
}

/* Elements of each channel over which statistics are taken, in all pieces together. */
static int64_t count_statistics(const struct loop_nest *nest, bool by_worker,
                                const struct op_case *piece)
{
    int64_t count = 1;
    for (int l = 0; l < nest->n_loops; l++) {
        const struct loop *loop = &nest->loop[l];
        bool own = by_worker && loop->use == USE_BATCH; /* of this worker's samples alone */
        if (loop->role == LOOP_STATISTIC)
            count *= own ? op_extent(piece, USE_BATCH) : loop->extent;
    }
    return count;
}

static void fill_spec(const struct emitter *e, const struct part_group *g, int size,
                      const struct op_piece *piece, struct group_spec *spec)
{
    const struct program *p = e->p;
    const struct plan *plan = p->plan;
    *spec = (struct group_spec){.op = piece->op,
                                .precision = p->precision,
                                .activation = g->activation,
                                .residual = g->residual_sum,
                                .training = p->training,
                                .input_gradient = g->input_gradient,
                                .random_stream = (uint32_t)g->first_node,
                                .global_batch = p->graph->batch};
    if (plan->asynchronous) /* every worker is a run of its own */
        spec->global_batch = op_extent(&piece->op, USE_BATCH);
    /* A micro-batch is a run of the whole's elements only where the batch is the outermost axis. */
    bool is_run = axes_find(&piece->op.output_axes, USE_BATCH) == 0;
    if (plan->layers[g->first_node].n_pieces > 1 || !is_run) {
        spec->whole = p->graph->nodes[g->first_node].op.output;
        for (int i = 0; i < spec->whole.rank; i++)
            spec->origin[i] = piece->output[i].begin;
    }
    if (p->training && piece->shared_statistics) {
        struct group_case own;
        const struct loop_nest *nest = &case_of(e, g, size, &own)->nest;
        bool by_worker = plan_norms_by_worker(plan);
        spec->shared_statistics =
            plan_summed_statistics(by_worker, nest, piece->shared_statistics) != 0;
        if (spec->shared_statistics)
            spec->statistics_count = count_statistics(nest, by_worker, &piece->op);
    }
}

/* ---- parameters ---- */

/* The first of a node's parameters that this worker shares with others, or -1. A worker may hold
 * only some of them, as servers do, and share only some of those: a weight that is cut along a
 * summed loop is its own, while the bias may be kept by a server. All that it shares have the same
 * holders. */
static int first_shared(const struct emitter *e, const struct graph_node *node)
{
    for (int k = 0; k < node->n_params; k++)
        if (emit_is_shared(e, node->first_param + k))
            return node->first_param + k;
    return -1;
}

/* The first holder of the group's parameters that has something to compute. */
static enum status find_model_piece(const struct emitter *e, const struct part_group *g,
                                    struct op_piece *piece)
{
    const struct program_param *param =
        &e->p->params[first_shared(e, &e->p->graph->nodes[g->first_node])];
    for (int i = 0; i < param->n_holders; i++) {
        TRY(find_piece(e, g, 0, param->holders[i], piece));
        if (!piece->empty)
            return STATUS_OK;
    }
    return status_fail(STATUS_USAGE, "%s: no worker has a sample to work on",
                       e->p->graph->nodes[g->first_node].name);
}

/* The layouts that all holders agree on, from a group that is made for nothing else. */
static enum status agree_on_layouts(struct emitter *e, const struct part_group *g,
                                    struct group_layouts *io)
{
    struct op_piece piece;
    struct group_spec spec;
    struct group_layouts natural = {0};
    group *model;
    TRY(find_model_piece(e, g, &piece));
    fill_spec(e, g, 0, &piece, &spec);
    for (int k = 0; k < piece.op.n_inputs; k++)
        TRY(emit_natural_layout(e, g->input[piece.slot[k]], &piece.op.input[k], &natural.input[k]));
    if (spec.residual)
        TRY(emit_natural_layout(e, g->residual, &piece.op.output, &natural.residual));
    TRY(e->p->backend->group_create(e->p->device, &spec, &natural, &model));
    e->p->backend->group_destroy(model);
    memcpy(io->param, natural.param, sizeof io->param);
    return STATUS_OK;
}

/* Whether making the group as it is gives the layouts that all agree on. */
static enum status agrees_by_itself(struct emitter *e, const struct part_group *g,
                                    const struct op_piece *piece, const struct group_layouts *io,
                                    bool *out)
{
    struct op_piece model;
    TRY(find_model_piece(e, g, &model));
    *out = op_equal(&piece->op, &model.op);
    for (int k = 0; *out && k < piece->op.n_inputs; k++) {
        const layout *natural;
        TRY(emit_natural_layout(e, g->input[piece->slot[k]], &piece->op.input[k], &natural));
        *out = natural == io->input[k];
    }
    return STATUS_OK;
}

static const layout *known_layout(const struct emitter *e, int param)
{
    const struct program *from = e->shares ? e->shares : e->p;
    int weight = from->params[param].weight;
    return weight == NO_BUFFER ? NULL : from->buffers[weight].layout;
}

/* The layouts of those of the group's parameters that have one already or must agree on one. */
static enum status fix_param_layouts(struct emitter *e, const struct part_group *g,
                                     const struct kernel *k, struct group_layouts *io)
{
    const struct graph_node *node = &e->p->graph->nodes[g->first_node];
    int shared = first_shared(e, node);
    for (int i = 0; i < node->n_params; i++)
        io->param[i] = known_layout(e, node->first_param + i);
    if (shared < 0 || io->param[shared - node->first_param])
        return STATUS_OK;
    bool agrees = false;
    if (k->here)
        TRY(agrees_by_itself(e, g, k->piece, io, &agrees));
    return agrees ? STATUS_OK : agree_on_layouts(e, g, io);
}

static enum status add_param_buffers(struct emitter *e, const struct part_group *g,
                                     const struct group_layouts *io)
{
    struct program *p = e->p;
    const struct precision_info *types = precision_get_info(p->precision);
    const struct graph_node *node = &p->graph->nodes[g->first_node];
    for (int k = 0; k < node->n_params; k++) {
        int number = node->first_param + k;
        const struct graph_param *param = &p->graph->params[number];
        struct program_param *to = &p->params[number];
        if (to->n_holders == 0 || to->weight != NO_BUFFER)
            continue;
        const layout *master, *gradient;
        TRY(emit_tensor(e, param->name, BUFFER_WEIGHTS, io->param[k], &to->weight));
        if (!p->training || !graph_param_learns(param))
            continue;
        TRY(p->backend->layout_in_type(p->device, types->master, io->param[k], &master));
        TRY(p->backend->layout_in_type(p->device, types->gradient, io->param[k], &gradient));
        if (to->has_state && master != io->param[k])
            TRY(emit_tensor(e, param->name, BUFFER_OPTIMIZER, master, &to->master));
        for (int s = 0; to->has_state && s < p->n_states; s++)
            TRY(emit_tensor(e, param->name, BUFFER_OPTIMIZER, master, &to->state[s]));
        TRY(emit_tensor(e, param->name, BUFFER_GRADIENTS, gradient, &to->gradient));
    }
    return STATUS_OK;
}

int emit_server_of(const struct emitter *e, int param)
{
    return e->analysis->params[param].server;
}

/* Most parameters have the same holders as the one before: then the list is kept once. */
static enum status copy_holders(struct emitter *e, const struct param_part *part,
                                struct program_param *to)
{
    to->n_holders = part->n_holders;
    if (e->last_holders != part->holders) {
        int *copy;
        TRY(arena_alloc_array(e->p->memory, (size_t)part->n_holders, sizeof *copy, &copy));
        memcpy(copy, part->holders, (size_t)part->n_holders * sizeof *copy);
        e->last_holders = part->holders;
        e->copied_holders = copy;
    }
    to->holders = e->copied_holders;
    return STATUS_OK;
}

static enum status describe_param(struct emitter *e, int node, int number)
{
    struct program *p = e->p;
    const struct param_parts *parts = &e->analysis->params[number];
    const struct param_part *part = holders_part_of(parts, e->part->piece_of[node][e->me]);
    struct program_param *to = &p->params[number];
    *to = (struct program_param){.weight = NO_BUFFER,
                                 .gradient = NO_BUFFER,
                                 .state = {NO_BUFFER, NO_BUFFER},
                                 .master = NO_BUFFER};
    int server = parts->server;
    if (!part && server == e->me)
        part = &parts->parts[0]; /* whole: there is no other */
    if (!part)
        return STATUS_OK;
    memcpy(to->region, part->region, sizeof to->region);
    TRY(copy_holders(e, part, to));
    to->saves = server >= 0 ? server == e->me : to->holders[0] == e->me;
    to->has_state = !p->graph->params[number].group.frozen && (server < 0 || server == e->me);
    return STATUS_OK;
}

enum status emit_params(struct emitter *e)
{
    struct program *p = e->p;
    TRY(arena_alloc_array(p->memory, (size_t)p->graph->n_params, sizeof *p->params, &p->params));
    for (int i = 0; i < p->graph->n_nodes; i++)
        for (int k = 0; k < p->graph->nodes[i].n_params; k++)
            TRY(describe_param(e, i, p->graph->nodes[i].first_param + k));
    /* Buffers of parameters without a piece that computes: a server's. */
    bool serves = false;
    for (int i = 0; i < p->plan->n_servers; i++)
        serves |= p->plan->servers[i] == e->me;
    for (int g = 0; serves && g < e->part->n_groups; g++) {
        const struct part_group *part = &e->part->groups[g];
        const struct graph_node *node = &p->graph->nodes[part->first_node];
        struct kernel nothing = {0};
        struct group_layouts io = {0};
        if (first_shared(e, node) < 0)
            continue;
        TRY(fix_param_layouts(e, part, &nothing, &io));
        TRY(add_param_buffers(e, part, &io));
    }
    return STATUS_OK;
}

/* ---- kernels ---- */

static enum status create_group(struct emitter *e, const struct part_group *g, int size,
                                struct kernel *k)
{
    struct program *p = e->p;
    struct program_group made = {.name = p->graph->nodes[g->first_node].name,
                                 .first_node = g->first_node,
                                 .last_node = g->last_node};
    struct group_layouts io = {0};
    fill_spec(e, g, size, k->piece, &made.spec);
    for (int i = 0; i < k->piece->op.n_inputs; i++)
        io.input[i] = e->layouts[g->input[k->piece->slot[i]]][size];
    if (g->residual_sum)
        io.residual = e->layouts[g->residual][size];
    TRY(fix_param_layouts(e, g, k, &io));
    TRY(p->backend->group_create(p->device, &made.spec, &io, &made.kernels));
    p->backend->group_get_needs(made.kernels, &made.needs);
    k->group = p->n_groups++;
    p->groups[k->group] = made;
    e->layouts[g->output][size] = io.output;
    return add_param_buffers(e, g, &io);
}

enum status emit_kernel(struct emitter *e, int group_number, int size, struct kernel **out)
{
    struct kernel *k = &e->kernels[group_number][size];
    const struct part_group *g = &e->part->groups[group_number];
    *out = k;
    if (k->known)
        return STATUS_OK;
    k->known = true;
    k->group = -1;
    if (e->part->piece_of[g->first_node][e->me] == NO_PIECE)
        return STATUS_OK;
    TRY(arena_alloc(e->scratch, sizeof *k->piece, &k->piece));
    TRY(find_piece(e, g, size, e->me, k->piece));
    k->here = !k->piece->empty;
    if (k->here)
        return create_group(e, g, size, k);
    struct group_layouts io = {0};
    TRY(fix_param_layouts(e, g, k, &io));
    return add_param_buffers(e, g, &io);
}
