/* Which ops run as one: an op, then a sum with a second tensor, then an activation.
 *
 *     bn2 ──► add ──► relu       one group: relu(bn2(x) + shortcut)
 *              ▲
 *     shortcut ┘
 *
 * A node is folded into the group before it only if it is the sole consumer of what it folds, so no
 * intermediate tensor is ever needed by anyone else. A group runs at the place of its last node:
 * by then all of its inputs exist. Which ops take what is in the op table (OP_TAKES_*). */
#include "program/lowering.h"

enum { MANY = -2, NOBODY = -1 };

/* The only consumer of each node, or NOBODY, or MANY. */
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

/* Of a sum's two inputs, the one whose group takes the sum in: the last computed that can. */
static int residual_taker(const struct graph *g, const int *consumer, int sum)
{
    int taker = NOBODY;
    const struct graph_node *node = &g->nodes[sum];
    if (node->op.op != OP_ADD || node->op.n_inputs != 2)
        return NOBODY;
    for (int k = 0; k < 2; k++) {
        int from = node->input[k];
        bool can = op_get_info(g->nodes[from].op.op)->flags & OP_TAKES_RESIDUAL;
        if (can && consumer[from] == sum && from > taker)
            taker = from;
    }
    return taker;
}

static void start_group(const struct graph *g, int node, bool training, struct program_group *out)
{
    *out = (struct program_group){.name = g->nodes[node].name,
                                  .first_node = node,
                                  .last_node = node,
                                  .residual = NO_BUFFER,
                                  .output = NO_BUFFER,
                                  .saved = NO_BUFFER,
                                  .forward_workspace = NO_BUFFER,
                                  .backward_workspace = NO_BUFFER,
                                  .folded_grad = NO_BUFFER};
    for (int k = 0; k < OP_MAX_INPUTS; k++)
        out->input[k] = out->input_grad[k] = NO_BUFFER;
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        out->param[k] = out->param_grad[k] = NO_BUFFER;
    out->spec = (struct group_spec){.op = g->nodes[node].op,
                                    .training = training,
                                    .random_stream = (uint32_t)node,
                                    .global_batch = g->batch};
}

/* Folds what can be folded behind the group's first node. */
static void extend_group(const struct graph *g, const int *consumer, struct program_group *out)
{
    unsigned flags = op_get_info(out->spec.op.op)->flags;
    int next = consumer[out->last_node];
    if (next >= 0 && residual_taker(g, consumer, next) == out->last_node) {
        out->spec.residual = true;
        out->last_node = next;
        next = consumer[next];
    }
    if (next >= 0 && flags & OP_TAKES_ACTIVATION) {
        enum activation activation = op_get_info(g->nodes[next].op.op)->activation;
        if (activation != ACTIVATION_NONE) {
            out->spec.activation = activation;
            out->last_node = next;
        }
    }
}

enum status lowering_group_nodes(struct program *p)
{
    const struct graph *g = p->graph;
    int *consumer, *group_ending_at;
    struct program_group *found;
    size_t n = (size_t)g->n_nodes;
    TRY(arena_alloc_array(p->memory, n, sizeof *consumer, &consumer));
    TRY(arena_alloc_array(p->memory, n, sizeof *group_ending_at, &group_ending_at));
    TRY(arena_alloc_array(p->memory, n, sizeof *found, &found));
    TRY(arena_alloc_array(p->memory, n, sizeof *p->groups, &p->groups));
    find_sole_consumers(g, consumer);

    enum { FREE = -1, FOLDED = -2 };
    for (int i = 0; i < g->n_nodes; i++)
        group_ending_at[i] = FREE;
    for (int i = 1; i < g->n_nodes; i++) {
        if (group_ending_at[i] != FREE)
            continue;
        start_group(g, i, p->training, &found[i]);
        extend_group(g, consumer, &found[i]);
        for (int k = i; k != found[i].last_node; k = consumer[k])
            group_ending_at[k] = FOLDED;
        group_ending_at[found[i].last_node] = i;
    }
    for (int i = 1; i < g->n_nodes; i++)
        if (group_ending_at[i] >= 0)
            p->groups[p->n_groups++] = found[group_ending_at[i]];
    return STATUS_OK;
}
