/* Pipeline stages of equal work.
 *
 * Nodes stay in graph order, so no edge goes back. With w(j, i) the operations of nodes j .. i-1
 * (forward and both gradients) and r(s) the workers of stage s, the least slowest stage is
 *
 *     best(s, i) = min over j < i with w(j, i) > 0 of max(best(s-1, j), w(j, i) / r(s))
 *
 * the dynamic programme of PipeDream (Narayanan et al. 2019, section 3.1) without its transfers.
 * That leaves all stages but the slowest undetermined; among the splits with the same slowest stage
 * a second pass takes the one with the least sum of squares.
 */
#include "plan/internal.h"

#include <math.h>
#include <stdlib.h>

struct balance {
    int n_nodes, n_stages;
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
        if (stage > b->limit)
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

/* Sums the work; returns how many nodes have some. The input has none. */
static int sum_work(const struct graph *graph, double *work)
{
    int n_working = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        struct op_cost cost;
        op_get_cost(&graph->nodes[i].op, &cost);
        double flops = cost.forward_flops + cost.data_gradient_flops + cost.weight_gradient_flops;
        n_working += flops > 0;
        work[i + 1] = work[i] + flops;
    }
    return n_working;
}

static enum status balance(struct balance *b, const struct graph *graph, int *stage)
{
    int n_working = sum_work(graph, b->work), width = b->n_nodes + 1;
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

enum status plan_balance_stages(const struct graph *graph, int n_stages, const int *replicas,
                                int *stage)
{
    struct balance b = {.n_nodes = graph->n_nodes, .n_stages = n_stages, .replicas = replicas};
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
