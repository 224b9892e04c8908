/* Regions of parameters, and the workers that hold each.
 *
 *     fc1 cut n=2 i=2       worker 0, 2: inputs 0..511 of the weight     part 0
 *                           worker 1, 3: inputs 512..1023                part 1
 *
 * Where only the batch is cut, all pieces of a layer hold the whole parameter. This usual case is
 * quick even with a thousand workers. */
#include "program/analysis.h"

#include <string.h>

struct finder {
    const struct graph *graph;
    const struct plan *plan;
    const struct partition *part;
    arena *memory;
    struct param_parts *all; /* by parameter */
    const int *listed;       /* the array of pieces that `whole` was made from */
    struct param_part whole; /* all workers with a piece of such a layer */
};

static bool same_ranges(const struct range *a, const struct range *b, int rank)
{
    for (int i = 0; i < rank; i++)
        if (a[i].begin != b[i].begin || a[i].end != b[i].end)
            return false;
    return true;
}

/* ---- layers of which only the batch is cut ---- */

static enum status list_whole(struct finder *f, int node)
{
    const int *piece_of = f->part->piece_of[node];
    if (f->listed == piece_of)
        return STATUS_OK;
    f->listed = piece_of;
    f->whole = (struct param_part){0};
    TRY(arena_alloc_array(f->memory, (size_t)f->plan->layers[node].n_pieces,
                          sizeof *f->whole.holders, &f->whole.holders));
    for (int w = 0; w < f->plan->n_workers; w++)
        if (piece_of[w] != NO_PIECE)
            f->whole.holders[f->whole.n_holders++] = w;
    return STATUS_OK;
}

static enum status give_whole(struct finder *f, int node)
{
    const struct graph_node *of = &f->graph->nodes[node];
    TRY(list_whole(f, node));
    for (int k = 0; k < of->n_params; k++) {
        const struct shape *shape = &f->graph->params[of->first_param + k].spec.shape;
        struct param_parts *to = &f->all[of->first_param + k];
        TRY(arena_alloc(f->memory, sizeof *to->parts, &to->parts));
        to->n_parts = 1;
        to->parts[0] = f->whole;
        for (int i = 0; i < shape->rank; i++)
            to->parts[0].region[i] = (struct range){0, shape->dim[i]};
    }
    return STATUS_OK;
}

/* ---- any other layer ---- */

static int find_part(struct param_parts *to, const struct range *region, int rank)
{
    for (int i = 0; i < to->n_parts; i++)
        if (same_ranges(to->parts[i].region, region, rank))
            return i;
    memcpy(to->parts[to->n_parts].region, region, (size_t)rank * sizeof *region);
    return to->n_parts++;
}

/* The different regions, and the one that each piece has. */
static enum status find_parts(struct finder *f, int node)
{
    const struct graph_node *of = &f->graph->nodes[node];
    const struct plan_layer *layer = &f->plan->layers[node];
    const struct graph_param *params = &f->graph->params[of->first_param];
    struct param_parts *to = &f->all[of->first_param];
    size_t n = (size_t)layer->n_pieces;
    struct loop_nest nest;
    op_get_loops(&of->op, &nest);
    for (int k = 0; k < of->n_params; k++) {
        TRY(arena_alloc_array(f->memory, n, sizeof *to[k].parts, &to[k].parts));
        TRY(arena_alloc_array(f->memory, n, sizeof *to[k].part_of, &to[k].part_of));
    }
    for (int i = 0; i < layer->n_pieces; i++) {
        struct range region[OP_MAX_PARAMS][SHAPE_MAX_RANK];
        struct box box;
        plan_piece_box(layer, &nest, i, &box);
        int has = op_get_piece_params(&nest, &box, region);
        for (int k = 0; k < of->n_params; k++)
            to[k].part_of[i] =
                k < has ? find_part(&to[k], region[k], params[k].spec.shape.rank) : -1;
    }
    return STATUS_OK;
}

static struct param_part *part_at(const struct param_parts *parts, int piece)
{
    if (piece == NO_PIECE)
        return NULL;
    int part = parts->part_of ? parts->part_of[piece] : 0;
    return part < 0 ? NULL : &parts->parts[part];
}

/* The lists of all parts lie one behind the other. */
static enum status list_holders(struct finder *f, int node, struct param_parts *to)
{
    const int *piece_of = f->part->piece_of[node];
    int *next;
    if (!to->parts)
        return STATUS_OK;
    TRY(arena_alloc_array(f->memory, (size_t)f->plan->layers[node].n_pieces, sizeof *next, &next));
    for (int w = 0; w < f->plan->n_workers; w++) {
        struct param_part *part = part_at(to, piece_of[w]);
        if (part)
            part->n_holders++;
    }
    for (int i = 0; to->parts && i < to->n_parts; i++) {
        to->parts[i].holders = next;
        next += to->parts[i].n_holders;
        to->parts[i].n_holders = 0;
    }
    for (int w = 0; w < f->plan->n_workers; w++) {
        struct param_part *part = part_at(to, piece_of[w]);
        if (part)
            part->holders[part->n_holders++] = w;
    }
    return STATUS_OK;
}

enum status holders_find(const struct graph *graph, const struct plan *plan,
                         const struct partition *part, arena *memory, struct param_parts **out)
{
    struct finder f = {.graph = graph, .plan = plan, .part = part, .memory = memory};
    TRY(arena_alloc_array(memory, (size_t)graph->n_params, sizeof *f.all, &f.all));
    for (int i = 1; i < graph->n_nodes; i++) {
        const struct graph_node *node = &graph->nodes[i];
        if (node->n_params == 0)
            continue;
        if (plan_cuts_only_batch(&plan->layers[i], &node->op)) {
            TRY(give_whole(&f, i));
            continue;
        }
        TRY(find_parts(&f, i));
        for (int k = 0; k < node->n_params; k++)
            TRY(list_holders(&f, i, &f.all[node->first_param + k]));
    }
    for (int i = 0; i < graph->n_params; i++)
        f.all[i].server = plan_server_of(plan, graph, i);
    *out = f.all;
    return STATUS_OK;
}

const struct param_part *holders_part_of(const struct param_parts *parts, int piece)
{
    return part_at(parts, piece);
}
