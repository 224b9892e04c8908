/* Twins: workers that do the same on other samples.
 *
 *     worker        0    1    2    3
 *     conv1  n=4   n0   n1   n2   n3        twin_of 0 0 0 0: one program stands for all
 *     fc1    n=4   n0   n1   n2   n3
 *
 * The pieces of twins differ only in their first sample, in every layer. Then the regions of all
 * tensors do, too, while the parameters, their holders and the sharers of statistics are the same.
 * Twins send and receive nothing outside reductions, so no other worker's region or number comes
 * into their programs. */
#include "program/analysis.h"

/* ---- workers with messages ---- */

/* Holders without a sample of a micro-batch receive running statistics. */
static bool sends_statistics(const struct analysis *a, int group)
{
    const struct graph_node *node = &a->graph->nodes[a->part->groups[group].first_node];
    bool empty = false, running = false;
    for (int s = 0; s < a->part->n_sizes; s++)
        empty |= a->has_empty[group][s];
    for (int k = 0; k < node->n_params; k++)
        running |= !a->graph->params[node->first_param + k].spec.trained;
    return a->training && empty && running && !plan_norms_by_worker(a->plan);
}

static void find_talkers(const struct analysis *a, bool *talks)
{
    /* Workers of other samples add up their statistics with other workers. */
    bool several_norms = a->shares_statistics && plan_norms_by_worker(a->plan);
    for (int i = 0; i < a->plan->n_workers; i++)
        talks[i] = a->plan->n_servers > 0 || several_norms;
    for (int t = 0; t < a->part->n_tensors; t++)
        for (int s = 0; a->part->tensors[t].source != NO_TENSOR && s < a->part->n_sizes; s++) {
            const struct traffic *pairs = &a->traffic[t][s];
            for (int i = 0; i < pairs->of_view[a->plan->n_workers]; i++) {
                talks[pairs->in_source[i].peer] |= pairs->in_source[i].message[TO_VIEW] >= 0;
                talks[pairs->in_view[i].peer] |= pairs->in_view[i].message[TO_VIEW] >= 0;
            }
        }
    for (int g = 0; g < a->part->n_groups; g++) {
        const struct plan_layer *layer = &a->plan->layers[a->part->groups[g].first_node];
        for (int i = 0; sends_statistics(a, g) && i < layer->n_pieces; i++)
            talks[layer->workers[i]] = true;
    }
}

/* ---- workers with the same work ---- */

/* Parts of the batch may begin elsewhere, but at the same distance in all micro-batches. */
static bool same_parts(const struct partition *part, const struct plan_cut *cut, int batch_loop,
                       int i, int k)
{
    if (cut->loop != batch_loop || i == k)
        return i == k;
    int64_t distance = 0;
    for (int s = 0; s < part->n_sizes; s++) {
        struct range x = plan_part(cut, i, part->samples_of_size[s]);
        struct range y = plan_part(cut, k, part->samples_of_size[s]);
        if (s == 0)
            distance = y.begin - x.begin;
        if (y.begin - x.begin != distance || y.end - x.end != distance)
            return false;
    }
    return true;
}

static bool same_pieces(const struct analysis *a, int node, int batch_loop, int x, int y)
{
    const struct plan_layer *layer = &a->plan->layers[node];
    int i = a->part->piece_of[node][x], k = a->part->piece_of[node][y];
    if (i == NO_PIECE || k == NO_PIECE)
        return i == k;
    for (int c = layer->n_cuts - 1; c >= 0; c--) {
        int n = layer->cut[c].n_parts;
        if (!same_parts(a->part, &layer->cut[c], batch_loop, i % n, k % n))
            return false;
        i /= n;
        k /= n;
    }
    return true;
}

/* Where a worker's part of a view begins in what it holds of the source. */
static int64_t first_in_source(const struct partition *part, int view, int size, int worker)
{
    const struct part_tensor *t = &part->tensors[view];
    return region_samples(&t->at[size][worker], &t->axes).begin -
           region_samples(&part->tensors[t->source].at[size][worker], &t->axes).begin;
}

/* batch_loop: by node. */
static bool same_work(const struct analysis *a, const int *batch_loop, int x, int y)
{
    const struct partition *part = a->part;
    for (int i = 1; i < a->graph->n_nodes; i++)
        if (!same_pieces(a, i, batch_loop[i], x, y))
            return false;
    for (int t = 0; t < part->n_tensors; t++)
        for (int s = 0; part->tensors[t].source != NO_TENSOR && s < part->n_sizes; s++)
            if (first_in_source(part, t, s, x) != first_in_source(part, t, s, y))
                return false;
    return true;
}

enum status analysis_find_twins(const struct analysis *a, int *twin_of)
{
    size_t n = (size_t)a->plan->n_workers;
    int *firsts, n_firsts = 0; /* the lowest of each set of twins */
    int *batch_loop;
    bool *talks;
    TRY(arena_alloc_array(a->memory, (size_t)a->graph->n_nodes, sizeof *batch_loop, &batch_loop));
    for (int i = 0; i < a->graph->n_nodes; i++) {
        struct loop_nest nest;
        op_get_loops(&a->graph->nodes[i].op, &nest);
        batch_loop[i] = loop_nest_find(&nest, USE_BATCH);
    }
    TRY(arena_alloc_array(a->memory, n, sizeof *firsts, &firsts));
    TRY(arena_alloc_array(a->memory, n, sizeof *talks, &talks));
    find_talkers(a, talks);
    for (int i = 0; i < a->plan->n_workers; i++) {
        twin_of[i] = i;
        if (talks[i])
            continue;
        for (int k = 0; twin_of[i] == i && k < n_firsts; k++)
            if (same_work(a, batch_loop, i, firsts[k]))
                twin_of[i] = firsts[k];
        if (twin_of[i] == i)
            firsts[n_firsts++] = i;
    }
    return STATUS_OK;
}
