#include "search/sharding.h"

#include <string.h>

/* fmax is a call, for the sake of numbers that are none. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

void sharding_maker_forget(struct sharding_maker *m)
{
    m->n_ranges = m->n_inverses = 0;
}

/* ---- making ---- */

static enum status find_inverse(struct sharding_maker *m, const struct plan_layer *layer)
{
    enum { ROOM = sizeof m->inverses / sizeof *m->inverses };
    for (int i = 0; i < m->n_inverses; i++)
        if (m->inverses[i].workers == layer->workers) {
            m->piece_of = m->inverses[i].piece_of;
            return STATUS_OK;
        }
    int *piece_of;
    TRY(arena_alloc_array(m->memory, (size_t)m->topology->n_workers, sizeof *piece_of, &piece_of));
    for (int w = 0; w < m->topology->n_workers; w++)
        piece_of[w] = -1;
    for (int i = 0; i < layer->n_pieces; i++)
        piece_of[layer->workers[i]] = i;
    if (m->n_inverses < ROOM)
        m->inverses[m->n_inverses++] = (struct sharding_inverse){layer->workers, piece_of};
    m->piece_of = piece_of;
    return STATUS_OK;
}

/* NULL if the parts tile the axis. */
static enum status find_covers(arena *memory, const struct range *ranges, int n, int64_t extent,
                               const int64_t **out)
{
    bool tiles = ranges[0].begin == 0 && ranges[n - 1].end == extent;
    for (int i = 1; i < n; i++)
        tiles &= ranges[i].begin == ranges[i - 1].end;
    *out = NULL;
    if (tiles)
        return STATUS_OK;
    int64_t *covers;
    TRY(arena_alloc_array(memory, (size_t)extent + 2, sizeof *covers, &covers));
    for (int i = 0; i < n; i++) { /* covers[x + 1]: how many parts have x */
        covers[ranges[i].begin + 1]++;
        covers[ranges[i].end + 1]--;
    }
    for (int64_t x = 1; x <= extent; x++)
        covers[x] += covers[x - 1];
    for (int64_t x = 1; x <= extent; x++)
        covers[x] += covers[x - 1];
    *out = covers;
    return STATUS_OK;
}

static enum status count_parts(arena *memory, const struct range *ranges, int n, int64_t extent,
                               struct sharding_axis *out)
{
    int32_t *begun, *ended;
    TRY(arena_alloc_array(memory, (size_t)extent + 2, sizeof *begun, &begun));
    TRY(arena_alloc_array(memory, (size_t)extent + 2, sizeof *ended, &ended));
    for (int i = 0; i < n; i++) {
        begun[ranges[i].begin + 1]++;
        ended[ranges[i].end]++;
    }
    for (int64_t x = 1; x <= extent; x++) {
        begun[x] += begun[x - 1];
        ended[x] += ended[x - 1];
    }
    out->begun = begun;
    out->ended = ended;
    return STATUS_OK;
}

static enum status find_ranges(struct sharding_maker *m, const struct loop_nest *nest,
                               const struct tensor_map *map, int axis, const struct plan_cut *cut,
                               struct sharding_ranges *out)
{
    enum { ROOM = sizeof m->ranges / sizeof *m->ranges };
    for (int i = 0; i < m->n_ranges; i++) {
        const struct sharding_ranges *r = &m->ranges[i];
        if (r->loop == cut->loop && r->n_parts == cut->n_parts && r->axis == axis &&
            r->sizes == cut->sizes && r->map == map) {
            *out = *r;
            return STATUS_OK;
        }
    }
    struct range *ranges;
    struct box box;
    TRY(arena_alloc_array(m->memory, (size_t)cut->n_parts, sizeof *ranges, &ranges));
    loop_nest_whole(nest, &box);
    for (int i = 0; i < cut->n_parts; i++) {
        struct range region[SHAPE_MAX_RANK];
        box.range[cut->loop] = plan_part(cut, i, nest->loop[cut->loop].extent);
        op_get_piece_region(nest, map, &box, region);
        ranges[i] = region[axis];
    }
    *out = (struct sharding_ranges){map,        axis,   cut->loop,         cut->n_parts,
                                    cut->sizes, ranges, {NULL, NULL, NULL}};
    int64_t extent = map->axis[axis].extent;
    TRY(find_covers(m->memory, ranges, cut->n_parts, extent, &out->known.covers));
    if (m->topology->on_cpu)
        TRY(count_parts(m->memory, ranges, cut->n_parts, extent, &out->known));
    if (m->n_ranges < ROOM)
        m->ranges[m->n_ranges++] = *out;
    return STATUS_OK;
}

/* How one axis depends on the number of the piece: part (piece / divisor) % n_parts. */
struct axis_parts {
    const struct range *ranges; /* NULL: whole */
    int divisor, n_parts;
    int64_t extent;
};

static const struct plan_cut *find_cut(const struct axis_map *map, const struct plan_layer *layer,
                                       int *divisor)
{
    *divisor = 1;
    for (int c = layer->n_cuts - 1; c >= 0; c--) {
        for (int i = 0; i < map->n_terms; i++)
            if (map->term[i].loop == layer->cut[c].loop)
                return &layer->cut[c];
        *divisor *= layer->cut[c].n_parts;
    }
    return NULL;
}

static struct range find_range(const struct axis_parts *axis, int piece)
{
    if (piece < 0)
        return (struct range){0, 0};
    if (!axis->ranges)
        return (struct range){0, axis->extent};
    return axis->ranges[piece / axis->divisor % axis->n_parts];
}

static bool regions_alike(const struct sharding_regions *r, int i, int k)
{
    for (int a = 0; a < r->n_axes; a++)
        if (r->begin[a][i] != r->begin[a][k] || r->end[a][i] != r->end[a][k])
            return false;
    return true;
}

static enum status find_runs(const struct sharding_maker *m, struct sharding_regions *at)
{
    const struct topology *t = m->topology;
    int *run;
    TRY(arena_alloc_array(m->memory, (size_t)t->n_sampled, sizeof *run, &run));
    for (int i = t->n_sampled - 1; i >= 0; i--) {
        bool last =
            i + 1 == t->n_sampled || t->node_of[t->sampled[i]] != t->node_of[t->sampled[i + 1]];
        run[i] = last || !regions_alike(at, i, i + 1) ? 1 : 1 + run[i + 1];
    }
    at->run = run;
    return STATUS_OK;
}

static enum status fill_regions(const struct sharding_maker *m, const struct axis_parts *axes,
                                struct sharding *out)
{
    const struct topology *t = m->topology;
    size_t n = (size_t)t->n_sampled;
    float *ends;
    double *volume;
    TRY(arena_alloc_array(m->memory, 2 * (size_t)out->at.n_axes * n, sizeof *ends, &ends));
    TRY(arena_alloc_array(m->memory, n, sizeof *volume, &volume));
    for (size_t i = 0; i < n; i++)
        volume[i] = 1;
    for (int a = 0; a < out->at.n_axes; a++) {
        out->at.begin[a] = ends;
        out->at.end[a] = ends + n;
        for (size_t i = 0; i < n; i++) {
            struct range range = find_range(&axes[a], m->piece_of[t->sampled[i]]);
            ends[i] = (float)range.begin;
            ends[n + i] = (float)range.end;
            volume[i] *= (double)(range.end - range.begin);
        }
        ends += 2 * n;
    }
    for (size_t i = 0; i < n; i++)
        out->copy_s = larger(out->copy_s, volume[i] / t->copy_bytes_per_s[t->sampled[i]]);
    out->at.volume = volume;
    return t->n_nodes > 1 ? find_runs(m, &out->at) : STATUS_OK;
}

enum status sharding_make(struct sharding_maker *m, const struct loop_nest *nest,
                          const struct tensor_map *map, const struct plan_layer *layer,
                          struct sharding *out)
{
    struct axis_parts axes[SHAPE_MAX_RANK];
    int distinct = 1;
    *out = (struct sharding){.copies = 1, .tiles = true};
    out->at.n_axes = map->rank > SHARDING_USUAL_AXES ? map->rank : SHARDING_USUAL_AXES;
    for (int a = 0; a < SHAPE_MAX_RANK; a++)
        axes[a] = (struct axis_parts){.extent = 1};
    for (int a = 0; a < map->rank; a++) {
        const struct plan_cut *cut = find_cut(&map->axis[a], layer, &axes[a].divisor);
        struct sharding_ranges found = {0};
        axes[a].extent = map->axis[a].extent;
        if (!cut)
            continue;
        TRY(find_ranges(m, nest, map, a, cut, &found));
        axes[a].ranges = found.ranges;
        axes[a].n_parts = cut->n_parts;
        out->axis[a] = found.known;
        out->tiles &= !found.known.covers;
        distinct *= cut->n_parts;
    }
    out->repeats = (double)layer->n_pieces / distinct;
    for (int c = 0; c < layer->n_cuts; c++)
        if (nest->loop[layer->cut[c].loop].role == LOOP_SUMMED)
            out->copies *= layer->cut[c].n_parts;
    TRY(find_inverse(m, layer));
    return fill_regions(m, axes, out);
}

/* ---- moving ---- */

static float length(float a_begin, float a_end, float b_begin, float b_end)
{
    float begin = a_begin > b_begin ? a_begin : b_begin, end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

static float overlap_along(const struct sharding_regions *x, int i,
                           const struct sharding_regions *y, int k, int axis)
{
    return length(x->begin[axis][i], x->end[axis][i], y->begin[axis][k], y->end[axis][k]);
}

/* Elements that region i of both has in common. */
static double overlap(const struct sharding_regions *x, const struct sharding_regions *y, int i)
{
    double both = (double)overlap_along(x, i, y, i, 0) * overlap_along(x, i, y, i, 1) *
                  ((double)overlap_along(x, i, y, i, 2) * overlap_along(x, i, y, i, 3));
    for (int a = SHARDING_USUAL_AXES; a < x->n_axes; a++)
        both *= overlap_along(x, i, y, i, a);
    return both;
}

/* Adds the overlap of region i with each of n others from `first` on, times weight[]; the
 * compiler takes several at once. Of further axes than the usual ones weight[] has the overlap. */
static void add_overlaps(const struct sharding_regions *x, int i,
                         const struct sharding_regions *others, int first, int n,
                         const float *weight, float *sums)
{
    const float *b0 = others->begin[0] + first, *e0 = others->end[0] + first;
    const float *b1 = others->begin[1] + first, *e1 = others->end[1] + first;
    const float *b2 = others->begin[2] + first, *e2 = others->end[2] + first;
    const float *b3 = others->begin[3] + first, *e3 = others->end[3] + first;
    float xb0 = x->begin[0][i], xe0 = x->end[0][i], xb1 = x->begin[1][i], xe1 = x->end[1][i];
    float xb2 = x->begin[2][i], xe2 = x->end[2][i], xb3 = x->begin[3][i], xe3 = x->end[3][i];
    for (int k = 0; k < n; k++)
        sums[k] += weight[k] * (length(xb0, xe0, b0[k], e0[k]) * length(xb1, xe1, b1[k], e1[k]) *
                                (length(xb2, xe2, b2[k], e2[k]) * length(xb3, xe3, b3[k], e3[k])));
}

/* Elements that all readers together read of the region that worker i owns. */
static double read_by_all(const struct sharding *read, const struct sharding_regions *own, int i)
{
    double volume = read->repeats;
    if (read->tiles)
        return volume * own->volume[i];
    for (int a = 0; a < own->n_axes; a++) {
        const int64_t *covers = read->axis[a].covers;
        volume *=
            covers ? (double)(covers[(int64_t)own->end[a][i]] - covers[(int64_t)own->begin[a][i]])
                   : (double)(own->end[a][i] - own->begin[a][i]);
    }
    return volume;
}

/* How many of a sharding's different regions meet region i of another. */
static double count_meeting(const struct sharding *p, const struct sharding_regions *with, int i)
{
    double n = 1;
    for (int a = 0; a < with->n_axes; a++)
        if (p->axis[a].begun)
            n *= p->axis[a].begun[(int64_t)with->end[a][i]] -
                 p->axis[a].ended[(int64_t)with->begin[a][i]];
    return n;
}

static bool same_regions(const struct topology *t, const struct sharding *own,
                         const struct sharding *read)
{
    size_t n_bytes = 2 * (size_t)own->at.n_axes * (size_t)t->n_sampled * sizeof(float);
    return own->copies == 1 && memcmp(own->at.begin[0], read->at.begin[0], n_bytes) == 0;
}

/* Of n_bytes in so many messages; most workers ask the same as the one before them. */
struct last_asked {
    double messages, n_bytes, seconds;
};

static double host_messages_s(const struct topology *t, double messages, double n_bytes,
                              struct last_asked *last)
{
    if (messages <= 0 || n_bytes <= 0)
        return 0;
    if (messages != last->messages || n_bytes != last->n_bytes)
        *last = (struct last_asked){messages, n_bytes,
                                    messages * topology_host_message_s(t, n_bytes / messages)};
    return last->seconds;
}

/* Elements that pass the ports of the workers of a node. */
struct flows {
    double in, out, in_near;
    double seconds; /* of the busiest worker */
};

static void flow_of_worker(const struct topology *t, int i, const struct sharding *own,
                           const struct sharding *read, double element_bytes,
                           struct last_asked last[2], struct flows *f)
{
    int w = t->sampled[i];
    double both = overlap(&read->at, &own->at, i);
    double in = own->copies * read->at.volume[i] - both;
    double out = own->at.volume[i] > 0 ? read_by_all(read, &own->at, i) - both : 0;
    double in_s = in * element_bytes * t->in_s_per_byte[w];
    double out_s = out * element_bytes * t->out_s_per_byte[w];
    f->in += in;
    f->out += out;
    f->seconds = larger(f->seconds, larger(in_s, out_s));
    if (!t->on_cpu)
        return;
    bool has = both > 0;
    double from = in > 0 ? own->copies * count_meeting(own, &read->at, i) - has : 0;
    double to = out > 0 ? read->repeats * count_meeting(read, &own->at, i) - has : 0;
    /* A core does one after the other. */
    f->seconds = larger(f->seconds, host_messages_s(t, from, in * element_bytes, &last[0]) +
                                        host_messages_s(t, to, out * element_bytes, &last[1]));
}

/* Elements that workers of a node read and others of the node own. Workers that read the same are
 * taken together; each has its own already. */
static double flow_within(const struct topology_node *node, const struct sharding *own,
                          const struct sharding *read)
{
    float sums[TOPOLOGY_MOST_SAMPLED], weight[TOPOLOGY_MOST_SAMPLED];
    const int *run = read->at.run + node->first_sampled;
    double sum = 0;
    for (int k = 0; k < node->n_sampled; k++)
        sums[k] = 0;
    for (int i = 0; i < node->n_sampled; i += run[i]) {
        for (int k = 0; k < node->n_sampled; k++)
            weight[k] = (float)(run[i] - (k >= i && k < i + run[i]));
        for (int a = SHARDING_USUAL_AXES; a < own->at.n_axes; a++)
            for (int k = 0; k < node->n_sampled; k++)
                weight[k] *= overlap_along(&read->at, node->first_sampled + i, &own->at,
                                           node->first_sampled + k, a);
        add_overlaps(&read->at, node->first_sampled + i, &own->at, node->first_sampled,
                     node->n_sampled, weight, sums);
    }
    for (int k = 0; k < node->n_sampled; k++)
        sum += sums[k];
    return sum * ((double)(node->n - 1) / (node->n_sampled > 1 ? node->n_sampled - 1 : 1));
}

/* The rest of all; sums in single precision have an error. */
static double without_noise(double all, double part)
{
    return all - part > 1e-6 * all ? all - part : 0;
}

/* One direction through one node: the busiest port, core or card. */
static double move_through(const struct topology *t, const struct topology_node *node,
                           const struct sharding *own, const struct sharding *read,
                           double element_bytes, bool *far)
{
    struct flows f = {0, 0, 0, 0};
    struct last_asked last[2] = {{0, 0, 0}, {0, 0, 0}};
    for (int i = 0; i < node->n_sampled; i++)
        flow_of_worker(t, node->first_sampled + i, own, read, element_bytes, last, &f);
    if (t->n_nodes == 1 || (f.in <= 0 && f.out <= 0))
        return f.seconds;
    f.in_near = flow_within(node, own, read);
    double in_far = without_noise(f.in, f.in_near), out_far = without_noise(f.out, f.in_near);
    double scale = (double)node->n / node->n_sampled * element_bytes;
    *far |= in_far > 0;
    return larger(f.seconds, larger(scale * in_far / node->in_bytes_per_s,
                                    scale * out_far / node->out_bytes_per_s));
}

/* Regions that travel are copied into place, and gradients added: five times their bytes pass the
 * memory there and back. */
static double copy_s(const struct topology *t, const struct sharding *read, double element_bytes)
{
    return 5 * element_bytes * read->copy_s + 4 * t->launch_s;
}

double sharding_move_s(const struct topology *t, const struct sharding *own,
                       const struct sharding *read, double element_bytes)
{
    double slowest = 0;
    bool far = false;
    if (same_regions(t, own, read))
        return 0;
    for (int g = 0; g < t->n_nodes; g++)
        if (t->nodes[g].n_sampled > 0)
            slowest =
                larger(slowest, move_through(t, &t->nodes[g], own, read, element_bytes, &far));
    double latency_s = t->on_cpu ? t->machine->wake_s : far ? t->far_s : t->near_s;
    return 2 * (slowest + (slowest > 0 ? latency_s : 0)) + copy_s(t, read, element_bytes);
}
