/* Pipeline stages of equal work.
 *
 * The work of a node is its operations on one micro-batch (forward and both gradients) plus the
 * elements that it moves, each worth FLOPS_PER_ELEMENT operations: layers with many weights and few
 * places, as the last ones of a network, are limited by memory, the more the smaller the
 * micro-batch is. (A CPU core does some 50 GFLOP/s and reads some 5 GB/s of data that do not fit
 * its cache; measured costs will take this place.)
 *
 * Nodes stay in graph order, so no edge goes back. With w(j, i) the work of nodes j .. i-1
 * and r(s) the workers of stage s, the least slowest stage is
 *
 *     best(s, i) = min over j < i with w(j, i) > 0 of max(best(s-1, j), w(j, i) / r(s))
 *
 * the dynamic programme of PipeDream (Narayanan et al. 2019, section 3.1) without its transfers.
 * That leaves all stages but the slowest undetermined; among the splits with the same slowest stage
 * a second pass takes the one with the least sum of squares.
 */
#include "plan/shared.h"

#include <math.h>
#include <stdlib.h>

static const double FLOPS_PER_ELEMENT = 40;

struct balance {
    int n_nodes, n_stages;
    int64_t micro_batch; /* samples */
    const int *replicas;
    double *work; /* [n_nodes + 1]: work[i] is that of the nodes before i */
    double *best; /* [n_stages + 1][n_nodes + 1] */
    int *from;    /* the same; where the last stage of best(s, i) begins */
    double limit; /* no stage takes longer */
    bool squares; /* second pass */
};

static double combine(const struct balance *b, double before, double stage)
{
    if (b->squares)
        return before + stage * stage;
    return fmax(before, stage);
}

static void find_best(struct balance *b, int s, int i)
{
    int width = b->n_nodes + 1;
    double *best = &b->best[s * width + i];
    *best = INFINITY;
    for (int j = i - 1; j >= 0; j--) {
        double stage = (b->work[i] - b->work[j]) / b->replicas[s - 1];
        if (stage > b->limit || combine(b, 0, stage) >= *best)
            return; /* longer runs are no shorter */
        double value = combine(b, b->best[(s - 1) * width + j], stage);
        if (stage > 0 && value < *best) {
            *best = value;
            b->from[s * width + i] = j;
        }
    }
}

/* Fills best and from; the value of the whole. */
static double find_all(struct balance *b)
{
    int width = b->n_nodes + 1;
    for (int i = 0; i < width; i++)
        b->best[i] = i == 0 ? 0 : INFINITY;
    for (int s = 1; s <= b->n_stages; s++)
        for (int i = 0; i < width; i++)
            find_best(b, s, i);
    return b->best[b->n_stages * width + b->n_nodes];
}

double plan_node_work(const struct graph_node *node, int64_t samples)
{
    struct op_case op = op_resize(&node->op, USE_BATCH, samples);
    struct op_cost cost;
    op_get_cost(&op, &cost);
    double flops = cost.forward_flops + cost.data_gradient_flops + cost.weight_gradient_flops;
    double elements = (double)(cost.forward_elements + cost.data_gradient_elements +
                               cost.weight_gradient_elements);
    return flops > 0 ? flops + FLOPS_PER_ELEMENT * elements : 0;
}

/* Sums the work; returns how many nodes have some. The input has none. */
static int sum_work(const struct graph *graph, int64_t samples, double *work)
{
    int n_working = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        double node = plan_node_work(&graph->nodes[i], samples);
        n_working += node > 0;
        work[i + 1] = work[i] + node;
    }
    return n_working;
}

static enum status balance(struct balance *b, const struct graph *graph, int *stage)
{
    int n_working = sum_work(graph, b->micro_batch, b->work), width = b->n_nodes + 1;
    if (b->n_stages > n_working)
        return status_fail(STATUS_USAGE, "%s cannot be split into %d stages: at most %d have work",
                           graph->name, b->n_stages, n_working);
    b->limit = INFINITY;
    b->limit = find_all(b);
    b->squares = true;
    (void)find_all(b);
    for (int s = b->n_stages, i = b->n_nodes; s > 0; s--) {
        int first = b->from[s * width + i];
        while (i > first)
            stage[--i] = s - 1;
    }
    return STATUS_OK;
}

enum status plan_balance_stages(const struct graph *graph, int micro_batches, int n_stages,
                                const int *replicas, int *stage)
{
    struct balance b = {.n_nodes = graph->n_nodes,
                        .n_stages = n_stages,
                        .micro_batch = (graph->batch + micro_batches - 1) / micro_batches,
                        .replicas = replicas};
    size_t width = (size_t)b.n_nodes + 1, cells = ((size_t)n_stages + 1) * width;
    b.work = calloc(width, sizeof *b.work);
    b.best = calloc(cells, sizeof *b.best);
    b.from = calloc(cells, sizeof *b.from);
    enum status st = b.work && b.best && b.from ? balance(&b, graph, stage)
                                                : status_no_memory(cells * sizeof *b.best);
    free(b.work);
    free(b.best);
    free(b.from);
    return st;
}
