#include "search/choices.h"

#include "base/array.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CHOICES = 400, ANY_PARTS = 8, LEAST_PART = 2, MAX_COUNTS = 64, MAX_PLACEMENTS = 128 };

/* Sizes of the batch's parts are proportions; they are written in so many parts of the whole. */
static const int64_t BATCH_UNITS = 1000000;

/* ---- layers ---- */

/* Whether the output has the axes of the input, each indexed by one loop that may be cut. */
static bool passes_on(const struct op_case *op)
{
    struct loop_nest nest;
    if (op->n_inputs != 1 || op->input[0].rank != op->output.rank)
        return false;
    op_get_loops(op, &nest);
    for (int a = 0; a < nest.output.rank; a++) {
        const struct axis_map *in = &nest.input[0].axis[a], *out = &nest.output.axis[a];
        bool same = in->kind == AXIS_AFFINE && in->n_terms == 1 && out->n_terms == 1 &&
                    in->term[0].loop == out->term[0].loop && in->term[0].scale == 1 &&
                    in->offset == 0 && in->extent == out->extent &&
                    nest.loop[out->term[0].loop].cut != CUT_NEVER;
        if (!same)
            return false;
    }
    return true;
}

static enum status count_readers(const struct graph *graph, arena *memory, int **out)
{
    TRY(arena_alloc_array(memory, (size_t)graph->n_nodes, sizeof **out, out));
    for (int i = 0; i < graph->n_nodes; i++)
        for (int k = 0; k < graph->nodes[i].op.n_inputs; k++)
            (*out)[graph->nodes[i].input[k]]++;
    return STATUS_OK;
}

enum status choice_find_layers(const struct graph *graph, arena *memory,
                               struct choice_layer **layers, int *n_layers, int **layer_of)
{
    size_t n = (size_t)graph->n_nodes;
    int *readers;
    TRY(count_readers(graph, memory, &readers));
    TRY(arena_alloc_array(memory, n, sizeof **layers, layers));
    TRY(arena_alloc_array(memory, n, sizeof **layer_of, layer_of));
    *n_layers = 0;
    (*layer_of)[0] = -1;
    for (int i = 1; i < graph->n_nodes; i++) {
        int before = graph->nodes[i].input[0], at = (*layer_of)[before];
        bool follows = at >= 0 && readers[before] == 1 && passes_on(&graph->nodes[i].op) &&
                       (*layers)[at].n_nodes <= LAYER_MAX_FOLLOWERS;
        if (!follows)
            at = (*n_layers)++;
        struct choice_layer *layer = &(*layers)[at];
        layer->node[layer->n_nodes++] = i;
        (*layer_of)[i] = at;
    }
    return STATUS_OK;
}

/* ---- which loops ---- */

/* The loops that are cut, in the order of the mesh: those over a use that index the output, and
 * one that is summed. */
enum slot { SLOT_BATCH, SLOT_ROWS, SLOT_COLUMNS, SLOT_CHANNELS, SLOT_SUM, SLOT_COUNT };
static const enum loop_use use_of_slot[SLOT_SUM] = {USE_BATCH, USE_ROW, USE_COLUMN, USE_CHANNEL};

struct lister {
    const struct choice_request *request;
    arena *memory;
    struct loop_nest nest;
    int64_t channels; /* of the output */
    bool followed;
    int loop[SLOT_COUNT]; /* -1: none that can be cut */
    int n_counts;
    int count[MAX_COUNTS]; /* numbers of parts that are tried */
    int max_choices, n, capacity;
    struct choice *choices;
    /* Workers of so many pieces, by place; made once. */
    struct placement {
        int n_pieces;
        enum choice_place place;
        const int *workers;
    } placements[MAX_PLACEMENTS];
    int n_placements;
};

/* A window's loop shares an axis of the input with the loop of its places. */
static bool is_window(const struct loop_nest *nest, int loop)
{
    for (int a = 0; a < nest->input[0].rank; a++) {
        const struct axis_map *map = &nest->input[0].axis[a];
        bool has = false, shares = false;
        for (int i = 0; i < map->n_terms; i++) {
            has |= map->term[i].loop == loop;
            shares |= map->term[i].loop != loop && nest->loop[map->term[i].loop].extent > 1;
        }
        if (has && shares)
            return true;
    }
    return false;
}

static int find_summed_loop(const struct loop_nest *nest)
{
    for (int i = 0; i < nest->n_loops; i++)
        if (nest->loop[i].role == LOOP_SUMMED && nest->loop[i].cut == CUT_PARTIAL &&
            nest->loop[i].extent > 1 && !is_window(nest, i))
            return i;
    return -1;
}

static void find_loops(struct lister *l)
{
    const struct loop_nest *nest = &l->nest;
    for (int s = 0; s < SLOT_SUM; s++) {
        int loop = loop_nest_find(nest, use_of_slot[s]);
        bool can = loop >= 0 && nest->loop[loop].cut != CUT_NEVER &&
                   (s == SLOT_BATCH || nest->loop[loop].extent > 1);
        l->loop[s] = can ? loop : -1;
    }
    l->loop[SLOT_SUM] = find_summed_loop(nest);
}

static void find_counts(struct lister *l)
{
    int n = l->request->n_workers;
    for (int i = 1; i <= n && l->n_counts < MAX_COUNTS; i++)
        if (n <= ANY_PARTS || n % i == 0 || (i & (i - 1)) == 0)
            l->count[l->n_counts++] = i;
}

/* ---- workers ---- */

static int compare_speed(const struct choice_request *w, int a, int b)
{
    if (w->speed[a] != w->speed[b])
        return w->speed[a] > w->speed[b] ? -1 : 1;
    return a - b;
}

/* The n fastest, in the order of their numbers. */
static void take_fastest(const struct choice_request *w, int n, int *workers)
{
    int kept = 0;
    for (int i = 0; i < w->n_workers; i++) {
        int faster = 0;
        for (int k = 0; k < w->n_workers; k++)
            faster += k != i && compare_speed(w, k, i) < 0;
        if (faster < n)
            workers[kept++] = i;
    }
}

static enum status find_workers(struct lister *l, int n_pieces, enum choice_place place,
                                const int **out)
{
    const struct choice_request *w = l->request;
    for (int i = 0; i < l->n_placements; i++)
        if (l->placements[i].n_pieces == n_pieces && l->placements[i].place == place) {
            *out = l->placements[i].workers;
            return STATUS_OK;
        }
    int *workers;
    TRY(arena_alloc_array(l->memory, (size_t)n_pieces, sizeof *workers, &workers));
    for (int i = 0; i < n_pieces; i++)
        workers[i] = place == PLACE_SPREAD ? (int)((int64_t)i * w->n_workers / n_pieces) : i;
    if (place == PLACE_FAST)
        take_fastest(w, n_pieces, workers);
    if (l->n_placements < MAX_PLACEMENTS)
        l->placements[l->n_placements++] = (struct placement){n_pieces, place, workers};
    *out = workers;
    return STATUS_OK;
}

/* ---- uneven parts ---- */

/* Whole sizes in proportion to `share`, each at least 1, that sum to `extent` >= n. */
static void round_sizes(const double *share, int n, int64_t extent, int64_t *sizes)
{
    double sum = 0, before = 0;
    int64_t begin = 0;
    for (int i = 0; i < n; i++)
        sum += share[i];
    for (int i = 0; i < n; i++) {
        before += share[i];
        int64_t end = i + 1 == n ? extent : llround((double)extent * before / sum);
        int64_t least = begin + 1, most = extent - (n - 1 - i);
        end = end < least ? least : end > most ? most : end;
        sizes[i] = end - begin;
        begin = end;
    }
}

/* A part is as fast as the slowest worker that has a piece of it. */
static bool find_shares(const struct choice_request *w, const struct choice *c, int number,
                        double *share)
{
    int inner = 1, n_parts = c->cut[number].n_parts;
    bool differ = false;
    for (int i = number + 1; i < c->n_cuts; i++)
        inner *= c->cut[i].n_parts > 1 ? c->cut[i].n_parts : 1;
    if (n_parts < 1)
        return false;
    for (int i = 0; i < n_parts; i++)
        share[i] = INFINITY;
    for (int i = 0; i < c->n_pieces; i++) {
        int part = i / inner % n_parts;
        share[part] = fmin(share[part], w->speed[c->workers[i]]);
    }
    for (int i = 1; i < n_parts; i++)
        differ |= share[i] != share[0];
    return differ;
}

static enum status size_parts(struct lister *l, struct choice *c)
{
    for (int i = 0; l->request->speed && i < c->n_cuts; i++) {
        struct plan_cut *cut = &c->cut[i];
        double *share;
        int64_t *sizes, extent = l->nest.loop[cut->loop].extent;
        if (cut->loop == l->loop[SLOT_BATCH])
            extent = BATCH_UNITS;
        TRY(arena_alloc_array(l->memory, (size_t)cut->n_parts, sizeof *share, &share));
        if (!find_shares(l->request, c, i, share))
            continue;
        TRY(arena_alloc_array(l->memory, (size_t)cut->n_parts, sizeof *sizes, &sizes));
        round_sizes(share, cut->n_parts, extent, sizes);
        cut->sizes = sizes;
    }
    return STATUS_OK;
}

/* ---- legal cuts ---- */

/* Whether some part of an image's rows or columns would read nothing but padding. */
static bool reads_padding(const struct lister *l, const struct plan_cut *cut)
{
    const struct loop_nest *nest = &l->nest;
    struct box box;
    struct range region[SHAPE_MAX_RANK];
    loop_nest_whole(nest, &box);
    for (int i = 0; i < cut->n_parts; i++) {
        box.range[cut->loop] = plan_part(cut, i, nest->loop[cut->loop].extent);
        op_get_piece_region(nest, &nest->input[0], &box, region);
        for (int a = 0; a < nest->input[0].rank; a++) {
            enum loop_use use = nest->input[0].axis[a].use;
            if ((use == USE_ROW || use == USE_COLUMN) && region[a].end <= region[a].begin)
                return true;
        }
    }
    return false;
}

static bool has_room(const struct lister *l, enum slot slot, int n_parts)
{
    int loop = l->loop[slot];
    if (n_parts == 1)
        return true;
    if (loop < 0)
        return false;
    if (slot == SLOT_BATCH)
        return n_parts <= l->request->samples;
    if ((int64_t)n_parts * LEAST_PART > l->nest.loop[loop].extent)
        return false;
    if (slot == SLOT_SUM)
        return !l->followed || (int64_t)n_parts * LEAST_PART <= l->channels;
    struct plan_cut cut = {loop, n_parts, NULL};
    return slot == SLOT_CHANNELS || !reads_padding(l, &cut);
}

static bool is_sensible(const struct lister *l, const int parts[SLOT_COUNT], int n_cuts,
                        int64_t n_pieces)
{
    int height = parts[SLOT_ROWS], width = parts[SLOT_COLUMNS];
    if (n_pieces > l->request->n_workers || n_cuts > CHOICE_MAX_CUTS)
        return false;
    if (width > height || (width > 1 && height > 2 * width))
        return false;
    if (parts[SLOT_SUM] > 1 && n_cuts - (parts[SLOT_BATCH] > 1) > 1)
        return false;
    if (l->request->only_batch) /* over as many as can be, or not at all */
        return n_pieces == parts[SLOT_BATCH] &&
               (n_pieces == 1 || n_pieces == l->request->n_workers ||
                l->request->samples < l->request->n_workers);
    return n_pieces == l->request->n_workers || n_cuts <= 2;
}

/* ---- the list ---- */

static enum status add_choice(struct lister *l, const struct choice *c)
{
    TRY(array_reserve(l->memory, &l->choices, l->n + 1, &l->capacity, sizeof *c));
    l->choices[l->n++] = *c;
    return STATUS_OK;
}

static enum status add_placed(struct lister *l, struct choice c, enum choice_place place)
{
    c.place = place;
    TRY(find_workers(l, c.n_pieces, place, &c.workers));
    TRY(size_parts(l, &c));
    for (int i = 0; i < c.n_cuts; i++)
        if (c.cut[i].sizes && c.cut[i].loop != l->loop[SLOT_BATCH] && reads_padding(l, &c.cut[i]))
            return STATUS_OK;
    return add_choice(l, &c);
}

static bool spans_nodes(const struct choice_request *w)
{
    const struct machine *m = w->machine;
    int first = w->first_device % m->n_devices;
    int last = (w->first_device + w->n_workers - 1) % m->n_devices;
    return m->devices[first].node != m->devices[last].node;
}

static enum status add_everywhere(struct lister *l, const struct choice *c)
{
    TRY(add_placed(l, *c, PLACE_SPREAD));
    if (c->n_pieces == l->request->n_workers)
        return STATUS_OK;
    if (spans_nodes(l->request) && c->n_pieces > 1)
        TRY(add_placed(l, *c, PLACE_PACKED));
    if (l->request->speed)
        TRY(add_placed(l, *c, PLACE_FAST));
    return STATUS_OK;
}

/* Outermost is the batch, so that the samples of a part stay on neighbours. Where the machine has
 * several nodes, channels go outermost as well: weights then differ from node to node, and are
 * summed inside. */
static enum status add_orders(struct lister *l, struct choice c)
{
    TRY(add_everywhere(l, &c));
    bool swaps = c.n_cuts == 2 && c.cut[0].loop == l->loop[SLOT_BATCH] && l->nest.n_params > 0 &&
                 spans_nodes(l->request) && !c.partial && c.n_pieces == l->request->n_workers;
    if (!swaps)
        return STATUS_OK;
    struct plan_cut first = c.cut[0];
    c.cut[0] = c.cut[1];
    c.cut[1] = first;
    return add_everywhere(l, &c);
}

static enum status add_parts(struct lister *l, const int parts[SLOT_COUNT])
{
    struct choice c = {.n_pieces = 1, .partial = parts[SLOT_SUM] > 1};
    int n_cuts = 0;
    for (int s = 0; s < SLOT_COUNT; s++)
        n_cuts += parts[s] > 1;
    int64_t n_pieces = 1;
    for (int s = 0; s < SLOT_COUNT; s++)
        n_pieces *= parts[s];
    if (!is_sensible(l, parts, n_cuts, n_pieces))
        return STATUS_OK;
    for (int s = 0; s < SLOT_COUNT; s++)
        if (parts[s] > 1)
            c.cut[c.n_cuts++] = (struct plan_cut){l->loop[s], parts[s], NULL};
    c.n_pieces = (int)n_pieces;
    return add_orders(l, c);
}

/* All products of counts up to the workers. */
static enum status list_from(struct lister *l, int slot, int parts[SLOT_COUNT], int64_t n_pieces)
{
    if (slot == SLOT_COUNT)
        return add_parts(l, parts);
    for (int i = 0; i < l->n_counts && n_pieces * l->count[i] <= l->request->n_workers; i++) {
        if (!has_room(l, (enum slot)slot, l->count[i]))
            continue;
        parts[slot] = l->count[i];
        TRY(list_from(l, slot + 1, parts, n_pieces * l->count[i]));
    }
    return STATUS_OK;
}

/* The order in which choices are kept if there are too many: the whole, all workers, few cuts; then
 * many pieces. */
static int64_t rank_choice(const struct choice *c, int n_workers)
{
    if (c->n_pieces == 1 && c->place == PLACE_SPREAD)
        return 0;
    return 1 + 2 * (int64_t)c->n_cuts * n_workers + (c->n_pieces == n_workers ? 0 : n_workers) -
           c->n_pieces;
}

/* Keeps the max_choices of the lowest rank in their order. */
static enum status drop_surplus(struct lister *l)
{
    int n_workers = l->request->n_workers;
    int64_t low = 0, high = 16 * (int64_t)n_workers;
    if (l->n <= l->max_choices)
        return STATUS_OK;
    while (low < high) { /* the highest rank of which all can be kept */
        int64_t middle = (low + high + 1) / 2;
        int n = 0;
        for (int i = 0; i < l->n; i++)
            n += rank_choice(&l->choices[i], n_workers) <= middle;
        if (n <= l->max_choices)
            low = middle;
        else
            high = middle - 1;
    }
    int kept = 0;
    for (int i = 0; i < l->n; i++)
        if (rank_choice(&l->choices[i], n_workers) <= low)
            l->choices[kept++] = l->choices[i];
    l->n = kept;
    return STATUS_OK;
}

enum status choice_list(const struct choice_request *request, const struct choice_layer *layer,
                        arena *memory, const struct choice **choices, int *n_choices)
{
    struct lister *l;
    int parts[SLOT_COUNT];
    TRY(arena_alloc(memory, sizeof *l, &l));
    struct op_case op =
        op_resize(&request->graph->nodes[layer->node[0]].op, USE_BATCH, request->samples);
    l->request = request;
    l->memory = memory;
    l->max_choices = request->max_choices ? request->max_choices : MAX_CHOICES;
    l->followed = layer->n_nodes > 1;
    l->channels = op_extent(&op, USE_CHANNEL);
    op_get_loops(&op, &l->nest);
    find_loops(l);
    find_counts(l);
    TRY(list_from(l, 0, parts, 1));
    TRY(drop_surplus(l));
    *choices = l->choices;
    *n_choices = l->n;
    return STATUS_OK;
}
