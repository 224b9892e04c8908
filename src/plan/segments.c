/* Recomputation by segments (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
 *
 * A stage's layers are split into segments. Forward keeps the output of each segment's last layer
 * alone; backward runs a segment forward again from the output before it, and then backward:
 *
 *     forward    a b c [d] e f [g] h i        [d], [g]: kept
 *     backward   i h | e f again: g f e | a b c again: d c b a
 *
 * A segment can end where no edge but those of its last layer leads further: behind a residual
 * block, not inside it. The units between two such places are never split. With u(k) the bytes of
 * unit k and o(k) those of its last output, a split takes
 *
 *     in flight * (sum of the o(k) that are kept) + the largest segment's sum of u(k)
 *
 * where `in flight` is the number of micro-batches that the stage has begun and not ended. Bytes
 * are counted in elements of whole outputs; activations and sums are taken to be folded into the
 * layer before them. */
#include "base/numbers.h"
#include "plan/shared.h"

#include <stdlib.h>

struct unit {
    int last_node;
    double elements, output_elements;
};

struct split {
    int n_units;
    struct unit *units;
    double in_flight;
};

/* ---- units ---- */

static double output_elements(const struct graph_node *node)
{
    return (double)shape_elements(&node->op.output);
}

static double kept_elements(const struct graph_node *node)
{
    const struct op_info *info = op_get_info(node->op.op);
    bool folded = info->activation != ACTIVATION_NONE || info->flags & OP_PASSES_GRADIENT;
    return folded ? 0 : output_elements(node);
}

/* By node: the last node of the same stage that reads it, or 0. */
static void find_last_readers(const struct plan *plan, const struct graph *graph, int *reader)
{
    for (int i = 0; i < graph->n_nodes; i++)
        reader[i] = 0;
    for (int i = 1; i < graph->n_nodes; i++)
        for (int k = 0; k < graph->nodes[i].op.n_inputs; k++) {
            int from = graph->nodes[i].input[k];
            if (plan->layers[from].stage == plan->layers[i].stage)
                reader[from] = i;
        }
}

static void find_units(const struct plan *plan, const struct graph *graph, int stage,
                       const int *reader, struct split *s)
{
    int open_until = 0; /* the last reader of the nodes before this one */
    struct unit unit = {0};
    s->n_units = 0;
    for (int i = 1; i < graph->n_nodes; i++) {
        if (plan->layers[i].stage != stage)
            continue;
        unit.last_node = i;
        unit.elements += kept_elements(&graph->nodes[i]);
        unit.output_elements = output_elements(&graph->nodes[i]);
        if (open_until <= i) {
            if (unit.elements == 0 && s->n_units > 0) /* an activation belongs to the unit before */
                unit.elements = s->units[--s->n_units].elements;
            s->units[s->n_units++] = unit;
            unit.elements = 0;
        }
        if (reader[i] > open_until)
            open_until = reader[i];
    }
}

/* ---- splits ---- */

/* Segments of at most `limit` elements each, or of one unit; keeps[k]: unit k is the last one of a
 * segment and its output is kept. Returns the number of segments, and in *need what they take. */
static int split_by_limit(const struct split *s, double limit, bool *keeps, double *need)
{
    double sum = 0, largest = 0, kept = 0;
    int n = 1;
    for (int k = 0; k < s->n_units; k++) {
        keeps[k] = false;
        if (k > 0 && sum + s->units[k].elements > limit) {
            keeps[k - 1] = true;
            kept += s->units[k - 1].output_elements;
            sum = 0;
            n++;
        }
        sum += s->units[k].elements;
        if (sum > largest)
            largest = sum;
    }
    *need = s->in_flight * kept + largest;
    return n;
}

/* Into at most n segments whose largest is the least possible. */
static double split_into(const struct split *s, int n, bool *keeps)
{
    double low = 0, high = 0, need;
    for (int k = 0; k < s->n_units; k++) {
        low = s->units[k].elements > low ? s->units[k].elements : low;
        high += s->units[k].elements;
    }
    while (high - low > 0.5) { /* elements are whole numbers */
        double middle = (low + high) / 2;
        if (split_by_limit(s, middle, keeps, &need) <= n)
            high = middle;
        else
            low = middle;
    }
    (void)split_by_limit(s, high, keeps, &need);
    return need;
}

/* The number of segments with the least need. */
static int best_number(const struct split *s, bool *keeps)
{
    double least = 0;
    int best = 1;
    for (int n = 1; n <= s->n_units; n++) {
        double need = split_into(s, n, keeps);
        if (n == 1 || need < least) {
            least = need;
            best = n;
        }
    }
    return best;
}

static double count_in_flight(const struct plan *plan, int stage)
{
    int ahead = plan->schedule == PLAN_GPIPE ? plan->micro_batches : plan->n_stages - stage;
    bool windowed = plan->schedule == PLAN_PIPEDREAM;
    return windowed ? ahead : (double)int64_min(ahead, plan->micro_batches);
}

enum status plan_recompute_segments(struct plan *plan, const struct graph *graph, int n_segments)
{
    size_t n = (size_t)graph->n_nodes;
    int *reader = calloc(n, sizeof *reader);
    bool *keeps = calloc(n, sizeof *keeps);
    struct split s = {.units = calloc(n, sizeof *s.units)};
    enum status st = STATUS_OK;
    if (!reader || !keeps || !s.units)
        st = status_no_memory(n * sizeof *s.units);
    if (st == STATUS_OK)
        find_last_readers(plan, graph, reader);
    for (int i = 1; st == STATUS_OK && i < graph->n_nodes; i++)
        plan->layers[i].recompute = !(op_get_info(graph->nodes[i].op.op)->flags & OP_IS_LOSS);
    for (int stage = 0; st == STATUS_OK && stage < plan->n_stages; stage++) {
        find_units(plan, graph, stage, reader, &s);
        s.in_flight = count_in_flight(plan, stage);
        (void)split_into(&s, n_segments == PLAN_SEGMENTS_AUTO ? best_number(&s, keeps) : n_segments,
                         keeps);
        for (int k = 0; k < s.n_units; k++)
            if (keeps[k])
                plan->layers[s.units[k].last_node].recompute = false;
    }
    free(reader);
    free(keeps);
    free(s.units);
    return st;
}
