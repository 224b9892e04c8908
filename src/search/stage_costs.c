#include "search/stage_costs.h"

#include "base/numbers.h"

#include <math.h>
#include <string.h>

enum { FEWEST_BLOCKS = 6, MOST_BLOCKS = 64 };

/* ---- blocks ---- */

/* passing[l]: how many tensors are made before layer l and read by it or behind; bytes[l]: their
 * size for one sample. */
static enum status count_passing(const struct pricing *p, arena *memory, int *passing,
                                 double *bytes)
{
    int *last;
    double *size;
    TRY(arena_alloc_array(memory, (size_t)p->n_layers, sizeof *last, &last));
    TRY(arena_alloc_array(memory, (size_t)p->n_layers, sizeof *size, &size));
    for (int i = 0; i < p->n_edges; i++) {
        const struct pricing_edge *e = &p->edges[i];
        last[e->from] = e->to > last[e->from] ? e->to : last[e->from];
        size[e->from] = e->tensor_bytes / (double)p->request.samples;
    }
    for (int i = 0; i < p->n_layers; i++)
        for (int l = i + 1; l <= last[i]; l++) {
            passing[l]++;
            bytes[l] += size[i];
        }
    return STATUS_OK;
}

static int choose_ends(const int *passing, int n_layers, int most_passing, int *first)
{
    int n = 1;
    first[0] = 0;
    for (int l = 1; l < n_layers; l++)
        if (passing[l] <= most_passing)
            first[n++] = l;
    first[n] = n_layers;
    return n;
}

/* Every so many-th end is kept. */
static int thin_out(int *first, int n)
{
    int kept = 0;
    for (int b = 0; b < MOST_BLOCKS; b++)
        first[kept++] = first[b * n / MOST_BLOCKS];
    first[kept] = first[n];
    return kept;
}

enum status stage_find_blocks(const struct pricing *p, arena *memory, struct stage_blocks *out)
{
    size_t n = (size_t)p->n_layers + 1;
    int *passing;
    double *bytes;
    TRY(arena_alloc_array(memory, n, sizeof *passing, &passing));
    TRY(arena_alloc_array(memory, n, sizeof *bytes, &bytes));
    TRY(arena_alloc_array(memory, n, sizeof *out->first, &out->first));
    TRY(count_passing(p, memory, passing, bytes));
    out->n = choose_ends(passing, p->n_layers, 1, out->first);
    if (out->n < FEWEST_BLOCKS)
        out->n = choose_ends(passing, p->n_layers, p->n_layers, out->first);
    if (out->n > MOST_BLOCKS)
        out->n = thin_out(out->first, out->n);
    TRY(arena_alloc_array(memory, (size_t)out->n + 1, sizeof *out->sample_bytes,
                          &out->sample_bytes));
    for (int b = 0; b < out->n; b++)
        out->sample_bytes[b] = bytes[out->first[b]];
    return STATUS_OK;
}

/* ---- settings ---- */

static void sum_layers(struct stage_setting *s)
{
    const struct pricing *p = s->pricing;
    for (int i = 0; i < p->n_layers; i++) {
        const struct pricing_cost *c = &p->layers[i].costs[s->choice[i]];
        double forward_s = c->forward_s + (c->statistics_s + c->inside_s) / 2;
        double backward_s = c->backward_s + (c->statistics_s + c->inside_s) / 2;
        s->time_s[i + 1] = s->time_s[i] + forward_s + backward_s;
        s->forward_s[i + 1] = s->forward_s[i] + forward_s;
        s->step_s[i + 1] = s->step_s[i] + c->update_s + (1 - p->request.hidden_sync) * c->sync_s;
        s->weight_bytes[i + 1] = s->weight_bytes[i] + c->weight_bytes;
        s->kept_bytes[i + 1] = s->kept_bytes[i] + c->kept_bytes;
    }
}

static void sum_moves(struct stage_setting *s, const struct stage_blocks *blocks)
{
    const struct pricing *p = s->pricing;
    int width = blocks->n + 1;
    for (int k = 0; k < p->n_edges; k++) {
        const struct pricing_edge *e = &p->edges[k];
        double move_s =
            e->table[(int64_t)s->choice[e->from] * p->layers[e->to].n_choices + s->choice[e->to]];
        for (int i = 0; move_s > 0 && i < blocks->n && blocks->first[i] <= e->from; i++)
            for (int j = blocks->n; j > i && blocks->first[j] > e->to; j--)
                s->moves_s[i * width + j] += move_s;
    }
}

enum status stage_setting_create(const struct pricing_request *request,
                                 const struct search_options *options,
                                 const struct stage_blocks *blocks, arena *memory,
                                 struct stage_setting *out)
{
    struct search_answer answer;
    *out = (struct stage_setting){.first_worker = request->first_device,
                                  .n_workers = request->n_workers,
                                  .only_batch = request->only_batch};
    TRY(pricing_create(request, options, &out->pricing));
    size_t n = (size_t)out->pricing->n_layers + 1, width = (size_t)blocks->n + 1;
    double **sums[] = {&out->time_s, &out->forward_s, &out->step_s, &out->weight_bytes,
                       &out->kept_bytes};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        TRY(arena_alloc_array(memory, n, sizeof(double), sums[i]));
    TRY(arena_alloc_array(memory, n, sizeof *out->choice, &out->choice));
    TRY(arena_alloc_array(memory, width * width, sizeof *out->moves_s, &out->moves_s));
    TRY(search_solve(&out->pricing->problem, NULL, out->choice, &answer));
    sum_layers(out);
    sum_moves(out, blocks);
    return STATUS_OK;
}

struct stage_cost stage_cost_of(const struct stage_setting *s, const struct stage_blocks *blocks,
                                int first, int end)
{
    int a = blocks->first[first], b = blocks->first[end];
    double moves_s = s->moves_s[first * (blocks->n + 1) + end];
    double samples = (double)s->pricing->request.samples;
    return (struct stage_cost){.time_s = s->time_s[b] - s->time_s[a] + moves_s,
                               .forward_s = s->forward_s[b] - s->forward_s[a] + moves_s / 2,
                               .step_s = s->step_s[b] - s->step_s[a],
                               .weight_bytes = s->weight_bytes[b] - s->weight_bytes[a],
                               .kept_bytes = s->kept_bytes[b] - s->kept_bytes[a],
                               .input_bytes = blocks->sample_bytes[first] * samples / s->n_workers};
}

/* ---- from stage to stage ---- */

/* How many of n workers from `first` on are on a node. */
static int count_on(const struct topology_node *node, int first, int n)
{
    int begin = first > node->first ? first : node->first;
    int end = first + n < node->first + node->n ? first + n : node->first + node->n;
    return end > begin ? end - begin : 0;
}

/* The least of n workers from `first` on. */
static double slowest_port(const struct topology *t, const double *bytes_per_s, int first, int n)
{
    double least = bytes_per_s[first];
    for (int i = first + 1; !t->ports_alike && i < first + n; i++)
        least = bytes_per_s[i] < least ? bytes_per_s[i] : least;
    return least;
}

/* Every worker sends, or gets, an even share. */
double stage_cross_s(const struct topology *t, int first_worker, int n, int next, int next_n,
                     double n_bytes)
{
    int first_node = t->node_of[int_min(first_worker, next)];
    int last_node = t->node_of[int_max(first_worker + n, next + next_n) - 1];
    double slowest = 0;
    bool far = false;
    if (n_bytes <= 0)
        return 0;
    if (t->on_cpu && first_node == last_node) {
        int more = int_max(n, next_n), less = int_min(n, next_n);
        return ceil((double)more / less) * topology_host_message_s(t, n_bytes / more);
    }
    for (int g = first_node; g <= last_node; g++) {
        const struct topology_node *node = &t->nodes[g];
        double from = (double)count_on(node, first_worker, n) / n;
        double to = (double)count_on(node, next, next_n) / next_n;
        slowest = fmax(slowest, n_bytes * from * (1 - to) / node->out_bytes_per_s);
        slowest = fmax(slowest, n_bytes * to * (1 - from) / node->in_bytes_per_s);
        far |= from * (1 - to) > 0 || to * (1 - from) > 0;
    }
    slowest = fmax(slowest, n_bytes / n / slowest_port(t, t->out_bytes_per_s, first_worker, n));
    slowest = fmax(slowest, n_bytes / next_n / slowest_port(t, t->in_bytes_per_s, next, next_n));
    return slowest + (far ? t->far_s : t->near_s);
}
