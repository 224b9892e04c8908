#include "program/partition.h"
#include "base/numbers.h"

#include <string.h>

/* ---- regions ---- */

bool region_is_empty(const struct region *r, int rank)
{
    for (int i = 0; i < rank; i++)
        if (r->axis[i].end <= r->axis[i].begin)
            return true;
    return false;
}

bool region_equal(const struct region *a, const struct region *b, int rank)
{
    bool a_empty = region_is_empty(a, rank), b_empty = region_is_empty(b, rank);
    if (a_empty || b_empty)
        return a_empty && b_empty;
    for (int i = 0; i < rank; i++)
        if (a->axis[i].begin != b->axis[i].begin || a->axis[i].end != b->axis[i].end)
            return false;
    return true;
}

bool region_intersect(const struct region *a, const struct region *b, int rank, struct region *out)
{
    *out = (struct region){0};
    struct region both = {0};
    for (int i = 0; i < rank; i++) {
        const struct range *x = &a->axis[i], *y = &b->axis[i];
        both.axis[i].begin = int64_max(x->begin, y->begin);
        both.axis[i].end = int64_min(x->end, y->end);
        if (both.axis[i].end <= both.axis[i].begin)
            return false;
    }
    *out = both;
    return true;
}

struct shape region_shape(const struct region *r, int rank)
{
    struct shape s = {.rank = rank};
    for (int i = 0; i < rank; i++)
        s.dim[i] = r->axis[i].end - r->axis[i].begin;
    return s;
}

struct range region_samples(const struct region *r, const struct axes *axes)
{
    return r->axis[axes_find(axes, USE_BATCH)];
}

/* ---- pieces of every node ---- */

/* The regions that workers hold of a node's output and read of its inputs, by size and worker. */
struct node_regions {
    bool partial;
    struct region *output[PARTITION_MAX_SIZES];
    struct region *input[OP_MAX_INPUTS][PARTITION_MAX_SIZES];
};

struct builder {
    const struct graph *graph;
    const struct plan *plan;
    arena *memory;
    struct partition *p;
    struct node_regions *nodes;
    int *consumer;       /* by node: its only consumer, or NOBODY, or MANY */
    int *tensor_of_node; /* only of nodes that end a group, and of node 0 */
};

enum { MANY = -2, NOBODY = -1 };

/* Layers that run on the same workers, as most do, share one array. */
static enum status find_pieces(struct builder *b, int node)
{
    const struct plan_layer *layer = &b->plan->layers[node], *before = layer - 1;
    int *pieces;
    if (node > 1 && layer->workers == before->workers && layer->n_pieces == before->n_pieces) {
        b->p->piece_of[node] = b->p->piece_of[node - 1];
        return STATUS_OK;
    }
    TRY(arena_alloc_array(b->memory, (size_t)b->plan->n_workers, sizeof *pieces, &pieces));
    for (int w = 0; w < b->plan->n_workers; w++)
        pieces[w] = NO_PIECE;
    for (int i = 0; i < layer->n_pieces; i++)
        pieces[layer->workers[i]] = i;
    b->p->piece_of[node] = pieces;
    return STATUS_OK;
}

/* The regions of one piece, as op_get_piece has them, but without the piece itself: with a thousand
 * workers there are hundreds of thousands. */
static enum status find_piece_regions(struct builder *b, int node, int size,
                                      const struct op_case *op, const struct loop_nest *nest,
                                      int piece)
{
    const struct plan_layer *layer = &b->plan->layers[node];
    struct node_regions *r = &b->nodes[node];
    int worker = layer->workers[piece];
    struct box box;
    plan_piece_box(layer, nest, piece, &box);
    for (int l = 0; l < nest->n_loops; l++)
        if (box.range[l].end <= box.range[l].begin)
            return STATUS_OK;
    for (int i = 0; i < layer->n_cuts; i++)
        r->partial |= nest->loop[layer->cut[i].loop].role == LOOP_SUMMED;
    op_get_piece_region(nest, &nest->output, &box, r->output[size][worker].axis);
    for (int k = 0; k < op->n_inputs; k++) {
        struct region *in = &r->input[k][size][worker];
        op_get_piece_region(nest, &nest->input[k], &box, in->axis);
        if (!region_is_empty(in, op->input[k].rank))
            continue;
        *in = (struct region){0}; /* a concat's piece need not touch every input */
        struct op_piece unused;
        if (op->n_inputs == 1) /* fails with a message */
            TRY(op_get_piece(op, &box, &unused));
    }
    return STATUS_OK;
}

static enum status find_node_regions(struct builder *b, int node, int size)
{
    struct node_regions *r = &b->nodes[node];
    struct op_case op =
        op_resize(&b->graph->nodes[node].op, USE_BATCH, b->p->samples_of_size[size]);
    struct loop_nest nest;
    size_t n = (size_t)b->plan->n_workers;
    op_get_loops(&op, &nest);
    TRY(arena_alloc_array(b->memory, n, sizeof(struct region), &r->output[size]));
    for (int k = 0; k < op.n_inputs; k++)
        TRY(arena_alloc_array(b->memory, n, sizeof(struct region), &r->input[k][size]));
    for (int i = 0; i < b->plan->layers[node].n_pieces; i++)
        TRY(find_piece_regions(b, node, size, &op, &nest, i));
    return STATUS_OK;
}

static bool same_regions(const struct builder *b, struct region *const x[PARTITION_MAX_SIZES],
                         struct region *const y[PARTITION_MAX_SIZES], int rank)
{
    for (int s = 0; s < b->p->n_sizes; s++)
        for (int w = 0; w < b->plan->n_workers; w++)
            if (!region_equal(&x[s][w], &y[s][w], rank))
                return false;
    return true;
}

/* ---- groups: an op, then a sum with a second tensor, then an activation ----
 *
 *     bn2 ──► add ──► relu       one group: relu(bn2(x) + shortcut)
 *              ▲
 *     shortcut ┘
 *
 * A node is folded into the group before it only if it is the sole consumer of that group's output
 * and every worker holds the same region of both, so no other op needs the tensor between them. A
 * group runs at the place of its last node: by then all of its inputs exist. The op table says
 * which ops take a sum or an activation (OP_TAKES_*). */

static void find_sole_consumers(const struct graph *g, int *consumer)
{
    for (int i = 0; i < g->n_nodes; i++)
        consumer[i] = NOBODY;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op.n_inputs; k++) {
            int from = g->nodes[i].input[k];
            consumer[from] = consumer[from] == NOBODY ? i : MANY;
        }
}

/* Whether node `next` may run as one with the node before it. */
static bool runs_together(const struct builder *b, int node, int next)
{
    const struct plan_layer *x = &b->plan->layers[node], *y = &b->plan->layers[next];
    return x->stage == y->stage && !b->nodes[node].partial &&
           same_regions(b, b->nodes[node].output, b->nodes[next].output,
                        b->graph->nodes[node].op.output.rank);
}

/* The input of a sum whose group takes the sum in: of those that can, the one computed last. */
static int residual_taker(const struct builder *b, int sum)
{
    int taker = NOBODY;
    const struct graph_node *node = &b->graph->nodes[sum];
    if (node->op.op != OP_ADD || node->op.n_inputs != 2)
        return NOBODY;
    for (int k = 0; k < 2; k++) {
        int from = node->input[k];
        bool can = op_get_info(b->graph->nodes[from].op.op)->flags & OP_TAKES_RESIDUAL;
        if (can && b->consumer[from] == sum && from > taker && runs_together(b, from, sum))
            taker = from;
    }
    return taker;
}

/* Folds the sum and the activation that may follow the group's first node. */
static void extend_group(const struct builder *b, struct part_group *g)
{
    const struct graph_node *nodes = b->graph->nodes;
    unsigned flags = op_get_info(nodes[g->first_node].op.op)->flags;
    int next = b->consumer[g->last_node];
    if (next >= 0 && residual_taker(b, next) == g->last_node) {
        g->residual_sum = true;
        g->last_node = next;
        next = b->consumer[next];
    }
    if (next >= 0 && flags & OP_TAKES_ACTIVATION && runs_together(b, g->last_node, next)) {
        enum activation activation = op_get_info(nodes[next].op.op)->activation;
        if (activation != ACTIVATION_NONE) {
            g->activation = activation;
            g->last_node = next;
        }
    }
}

/* A group keeps its last node's output, or none. The host reads the losses, so they are kept. */
static bool drops_output(const struct builder *b, int last_node)
{
    bool is_loss = op_get_info(b->graph->nodes[last_node].op.op)->flags & OP_IS_LOSS;
    return b->plan->layers[last_node].recompute && !is_loss;
}

static enum status group_nodes(struct builder *b)
{
    enum { FREE = -1, FOLDED = -2 };
    size_t n = (size_t)b->graph->n_nodes;
    int *group_ending_at;
    struct part_group *found;
    TRY(arena_alloc_array(b->memory, n, sizeof *group_ending_at, &group_ending_at));
    TRY(arena_alloc_array(b->memory, n, sizeof *found, &found));
    TRY(arena_alloc_array(b->memory, n, sizeof *b->p->groups, &b->p->groups));
    find_sole_consumers(b->graph, b->consumer);
    for (int i = 0; i < b->graph->n_nodes; i++)
        group_ending_at[i] = FREE;
    for (int i = 1; i < b->graph->n_nodes; i++) {
        if (group_ending_at[i] != FREE)
            continue;
        found[i] = (struct part_group){.first_node = i,
                                       .last_node = i,
                                       .stage = b->plan->layers[i].stage,
                                       .residual = NO_TENSOR};
        extend_group(b, &found[i]);
        found[i].recompute = drops_output(b, found[i].last_node);
        for (int k = i; k != found[i].last_node; k = b->consumer[k])
            group_ending_at[k] = FOLDED;
        group_ending_at[found[i].last_node] = i;
    }
    for (int i = 1; i < b->graph->n_nodes; i++)
        if (group_ending_at[i] >= 0)
            b->p->groups[b->p->n_groups++] = found[group_ending_at[i]];
    return STATUS_OK;
}

/* ---- tensors ---- */

static int add_tensor(struct builder *b, struct part_tensor tensor)
{
    tensor.first_view = tensor.next_view = NO_TENSOR;
    b->p->tensors[b->p->n_tensors] = tensor;
    return b->p->n_tensors++;
}

/* Takes the samples of `read` into a region of whole images. */
static void read_images(const struct op_case *images, const struct region *read, struct region *all)
{
    const struct axes *axes = &images->output_axes;
    struct range samples;
    if (region_is_empty(read, axes->rank))
        return;
    samples = region_samples(read, axes);
    if (!region_is_empty(all, axes->rank)) {
        struct range have = region_samples(all, axes);
        samples.begin = int64_min(have.begin, samples.begin);
        samples.end = int64_max(have.end, samples.end);
    }
    for (int a = 0; a < axes->rank; a++)
        all->axis[a] =
            axes->use[a] == USE_BATCH ? samples : (struct range){0, images->output.dim[a]};
}

static enum status add_images(struct builder *b)
{
    const struct graph_node *nodes = b->graph->nodes;
    struct part_tensor t = {.name = nodes[0].name,
                            .axes = nodes[0].op.output_axes,
                            .source = NO_TENSOR,
                            .producer = -1,
                            .first_consumer = -1};
    for (int s = 0; s < b->p->n_sizes; s++) {
        TRY(arena_alloc_array(b->memory, (size_t)b->plan->n_workers, sizeof *t.at[s], &t.at[s]));
        for (int i = 1; i < b->graph->n_nodes; i++)
            for (int k = 0; k < nodes[i].op.n_inputs; k++)
                for (int w = 0; nodes[i].input[k] == 0 && w < b->plan->n_workers; w++)
                    read_images(&nodes[0].op, &b->nodes[i].input[k][s][w], &t.at[s][w]);
    }
    b->tensor_of_node[0] = add_tensor(b, t);
    return STATUS_OK;
}

/* The tensor for a consumer that reads `regions` of `source`: the source itself, or a view. */
static int find_view(struct builder *b, int source, struct region *const regions[], int consumer)
{
    struct part_tensor *tensors = b->p->tensors, *t = &tensors[source];
    if (!t->partial && same_regions(b, regions, t->at, t->axes.rank)) {
        if (t->first_consumer < 0)
            t->first_consumer = consumer;
        return source;
    }
    int *link = &t->first_view;
    for (; *link != NO_TENSOR; link = &tensors[*link].next_view)
        if (same_regions(b, regions, tensors[*link].at, t->axes.rank))
            return *link;
    struct part_tensor view = {.name = t->name,
                               .axes = t->axes,
                               .source = source,
                               .producer = -1,
                               .first_consumer = consumer,
                               .needs_gradient = t->needs_gradient};
    memcpy(view.at, regions, sizeof view.at);
    return *link = add_tensor(b, view);
}

/* The node whose tensor is added to the group's op: the other input of the sum behind it. */
static int residual_node(const struct builder *b, const struct part_group *g)
{
    const struct graph_node *sum = &b->graph->nodes[b->consumer[g->first_node]];
    return sum->input[sum->input[0] == g->first_node ? 1 : 0];
}

static void connect_group(struct builder *b, int number)
{
    struct part_group *g = &b->p->groups[number];
    const struct graph_node *node = &b->graph->nodes[g->first_node];
    struct node_regions *first = &b->nodes[g->first_node], *last = &b->nodes[g->last_node];
    g->first_view = b->p->n_tensors;
    for (int k = 0; k < node->op.n_inputs; k++) {
        g->input[k] = find_view(b, b->tensor_of_node[node->input[k]], first->input[k], number);
        g->input_gradient |= b->p->tensors[g->input[k]].needs_gradient;
    }
    if (g->residual_sum) {
        g->residual = find_view(b, b->tensor_of_node[residual_node(b, g)], last->output, number);
        g->input_gradient |= b->p->tensors[g->residual].needs_gradient;
    }
    struct part_tensor out = {.name = b->graph->nodes[g->last_node].name,
                              .axes = b->graph->nodes[g->last_node].op.output_axes,
                              .source = NO_TENSOR,
                              .producer = number,
                              .first_consumer = -1,
                              .needs_gradient =
                                  graph_node_learns(b->graph, node) || g->input_gradient,
                              .partial = last->partial};
    memcpy(out.at, last->output, sizeof out.at);
    g->output = b->tensor_of_node[g->last_node] = add_tensor(b, out);
}

/* ---- the whole ---- */

/* Micro-batches as even as the batch allows. */
static enum status cut_batch(struct partition *p, int64_t batch, arena *memory)
{
    size_t n = (size_t)p->n_micros;
    int64_t small = batch / p->n_micros;
    bool even = batch % p->n_micros == 0;
    TRY(arena_alloc_array(memory, n, sizeof *p->size_of_micro, &p->size_of_micro));
    TRY(arena_alloc_array(memory, n, sizeof *p->micro_first, &p->micro_first));
    p->n_sizes = even ? 1 : 2;
    p->samples_of_size[0] = even ? small : small + 1;
    p->samples_of_size[1] = even ? 0 : small;
    for (int m = 0; m < p->n_micros; m++) {
        p->micro_first[m] = m * batch / p->n_micros;
        int64_t n_samples = (m + 1) * batch / p->n_micros - p->micro_first[m];
        p->size_of_micro[m] = n_samples == p->samples_of_size[0] ? 0 : 1;
    }
    return STATUS_OK;
}

enum status partition_create(const struct graph *graph, const struct plan *plan, int n_micros,
                             arena *memory, struct partition **out)
{
    struct partition *p;
    size_t n = (size_t)graph->n_nodes;
    TRY(arena_alloc(memory, sizeof *p, &p));
    *p = (struct partition){.n_micros = n_micros};
    if (n_micros < 1 || n_micros > graph->batch)
        return status_fail(STATUS_USAGE, "%d micro-batches of a batch of %lld samples", n_micros,
                           (long long)graph->batch);
    TRY(cut_batch(p, graph->batch, memory));
    struct builder b = {.graph = graph, .plan = plan, .memory = memory, .p = p};
    TRY(arena_alloc_array(memory, n, sizeof *b.nodes, &b.nodes));
    TRY(arena_alloc_array(memory, n, sizeof *b.consumer, &b.consumer));
    TRY(arena_alloc_array(memory, n, sizeof *b.tensor_of_node, &b.tensor_of_node));
    TRY(arena_alloc_array(memory, 2 * n * OP_MAX_INPUTS, sizeof *p->tensors, &p->tensors));
    TRY(arena_alloc_array(memory, n, sizeof *p->piece_of, &p->piece_of));
    for (int i = 1; i < graph->n_nodes; i++) {
        TRY(find_pieces(&b, i));
        for (int s = 0; s < p->n_sizes; s++)
            TRY(find_node_regions(&b, i, s));
    }
    TRY(group_nodes(&b));
    TRY(add_images(&b));
    for (int g = 0; g < p->n_groups; g++)
        connect_group(&b, g);
    *out = p;
    return STATUS_OK;
}
