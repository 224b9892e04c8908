/* Workers that do the same on other samples.
 *
 * Their pieces of every layer differ in nothing but where their samples begin. Then so do the
 * regions of all tensors, while parameters, their holders and whoever shares statistics are the
 * same; and as such workers send and receive nothing outside reductions, no other worker's place
 * or number comes into their programs. */
#include "program/analysis.h"

/* ---- workers with messages ---- */

static void mark_traffic(const struct analysis *w, const struct traffic *t, bool *talks)
{
    for (int i = 0; i < t->of_view[w->plan->n_workers]; i++) {
        talks[t->in_source[i].peer] |= t->in_source[i].message[TO_VIEW] >= 0;
        talks[t->in_view[i].peer] |= t->in_view[i].message[TO_VIEW] >= 0;
    }
}

/* Those without a sample of a micro-batch are sent running statistics by others. */
static bool hands_out_statistics(const struct analysis *w, int group)
{
    const struct graph_node *node = &w->graph->nodes[w->part->groups[group].first_node];
    bool empty = false, running = false;
    for (int c = 0; c < w->part->n_sizes; c++)
        empty |= w->has_empty[group][c];
    for (int k = 0; k < node->n_params; k++)
        running |= !w->graph->params[node->first_param + k].spec.trained;
    return w->training && empty && running;
}

static void find_talkers(const struct analysis *w, bool *talks)
{
    for (int i = 0; i < w->plan->n_workers; i++)
        talks[i] = w->plan->n_servers > 0;
    for (int t = 0; t < w->part->n_tensors; t++)
        for (int c = 0; w->part->tensors[t].source != NO_TENSOR && c < w->part->n_sizes; c++)
            mark_traffic(w, &w->traffic[t][c], talks);
    for (int g = 0; g < w->part->n_groups; g++) {
        const struct plan_layer *layer = &w->plan->layers[w->part->groups[g].first_node];
        for (int i = 0; hands_out_statistics(w, g) && i < layer->n_pieces; i++)
            talks[layer->workers[i]] = true;
    }
}

/* ---- workers with the same work ---- */

/* Of loop 0, the batch, parts may begin elsewhere, but at the same distance in all micro-batches:
 * then the samples of a step lie as close together, too. */
static bool same_parts(const struct partition *part, const struct plan_cut *cut, int a, int b)
{
    if (cut->loop != 0 || a == b)
        return a == b;
    int64_t distance = 0;
    for (int c = 0; c < part->n_sizes; c++) {
        struct range x = plan_part(cut, a, part->samples_of_size[c]);
        struct range y = plan_part(cut, b, part->samples_of_size[c]);
        if (c == 0)
            distance = y.begin - x.begin;
        if (y.begin - x.begin != distance || y.end - x.end != distance)
            return false;
    }
    return true;
}

static bool same_pieces(const struct analysis *w, int node, int x, int y)
{
    const struct plan_layer *layer = &w->plan->layers[node];
    int a = w->part->piece_of[node][x], b = w->part->piece_of[node][y];
    if (a == NO_PIECE || b == NO_PIECE)
        return a == b;
    for (int i = layer->n_cuts - 1; i >= 0; i--) {
        int n = layer->cut[i].n_parts;
        if (!same_parts(w->part, &layer->cut[i], a % n, b % n))
            return false;
        a /= n;
        b /= n;
    }
    return true;
}

/* Where a worker's part of a view begins in what it holds of the source. */
static int64_t first_in_source(const struct partition *part, int view, int size, int worker)
{
    const struct part_tensor *t = &part->tensors[view];
    return t->at[size][worker].axis[0].begin -
           part->tensors[t->source].at[size][worker].axis[0].begin;
}

static bool same_views(const struct analysis *w, int x, int y)
{
    const struct partition *part = w->part;
    for (int t = 0; t < part->n_tensors; t++)
        for (int c = 0; part->tensors[t].source != NO_TENSOR && c < part->n_sizes; c++)
            if (first_in_source(part, t, c, x) != first_in_source(part, t, c, y))
                return false;
    return true;
}

static bool same_work(const struct analysis *w, int x, int y)
{
    for (int i = 1; i < w->graph->n_nodes; i++)
        if (!same_pieces(w, i, x, y))
            return false;
    return same_views(w, x, y);
}

enum status analysis_find_twins(const struct analysis *w, int *twin_of)
{
    size_t n = (size_t)w->plan->n_workers;
    int *firsts, n_firsts = 0; /* the lowest of each set of twins */
    bool *talks;
    TRY(arena_alloc_array(w->memory, n, sizeof *firsts, &firsts));
    TRY(arena_alloc_array(w->memory, n, sizeof *talks, &talks));
    find_talkers(w, talks);
    for (int i = 0; i < w->plan->n_workers; i++) {
        twin_of[i] = i;
        if (talks[i])
            continue;
        for (int k = 0; twin_of[i] == i && k < n_firsts; k++)
            if (same_work(w, i, firsts[k]))
                twin_of[i] = firsts[k];
        if (twin_of[i] == i)
            firsts[n_firsts++] = i;
    }
    return STATUS_OK;
}
