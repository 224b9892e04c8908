#include "search/estimate.h"

#include "program/partition.h"

#include <math.h>
#include <stdlib.h>

static const double ELEMENT_BYTES = 4;
/* Of backward, behind which sums of gradients go on. */
static const double HIDING = 0.6;
/* Operations of what is folded into the layer before are counted, but may cost nothing. */
static const double BOUND_SLACK = 0.9;

struct stage_sum {
    double compute_s, move_s; /* of one micro-batch */
    double sync_s;            /* of a step */
};

/* Micro-batches of the same size; a batch that they do not divide has some of one sample less. */
struct micro_class {
    int64_t samples;
    int n;
    struct stage_sum *sums; /* by stage */
};

struct estimator {
    const struct graph *graph;
    const struct plan *plan;
    const struct machine *machine;
    struct cost_scales scales;
    struct micro_class classes[2]; /* the larger ones first */
    const struct micro_class *now; /* which is being looked at */
    double *least_s;               /* by worker: operations of a step */
    double *received_s;            /* by worker: sums of gradients */
};

/* ---- the machine ---- */

static const struct machine_device *device_of(const struct estimator *e, int worker)
{
    return &e->machine->devices[worker % e->machine->n_devices];
}

static const struct machine_kind *kind_of(const struct estimator *e, int worker)
{
    return &e->machine->kinds[device_of(e, worker)->kind];
}

static double link_speed(const struct machine *m, int link)
{
    return link < 0 ? INFINITY : m->links[link].bytes_per_s;
}

/* Into a worker's device. Hosts without ports copy in memory. */
static double port_speed(const struct estimator *e, int worker)
{
    int place = worker % e->machine->n_devices;
    double speed = link_speed(e->machine, e->machine->device_in[place]);
    double own = kind_of(e, worker)->reached_bytes_per_s / 2;
    return isfinite(speed) ? speed : own > 0 ? own : 4e9;
}

static double card_speed(const struct estimator *e, int worker)
{
    return link_speed(e->machine, e->machine->node_in[device_of(e, worker)->node]);
}

static double port_latency(const struct estimator *e, int worker)
{
    int link = e->machine->device_in[worker % e->machine->n_devices];
    return link < 0 ? 2e-6 : 2 * e->machine->links[link].latency_s;
}

static double card_latency(const struct estimator *e, int worker)
{
    int link = e->machine->node_in[device_of(e, worker)->node];
    return link < 0 ? 0 : 2 * e->machine->links[link].latency_s;
}

/* ---- computing ---- */

/* What is folded into the layer before costs no memory traffic of its own. */
static bool is_folded(const struct op_case *op)
{
    const struct op_info *info = op_get_info(op->op);
    return info->activation != ACTIVATION_NONE ||
           (info->flags & (OP_PASSES_GRADIENT | OP_IDENTITY_IN_EVALUATION));
}

static double pass_seconds(const struct machine_kind *kind, double flops, int64_t elements)
{
    double compute_s = flops / kind->reached_flops_per_s;
    double memory_s = (double)elements * ELEMENT_BYTES / kind->reached_bytes_per_s;
    return kind->launch_s + fmax(compute_s, memory_s);
}

static double piece_seconds(const struct machine_kind *kind, const struct op_cost *c)
{
    return pass_seconds(kind, c->forward_flops, c->forward_elements) +
           pass_seconds(kind, c->data_gradient_flops, c->data_gradient_elements) +
           pass_seconds(kind, c->weight_gradient_flops, c->weight_gradient_elements);
}

static double scale_of(const struct estimator *e, const struct op_case *op)
{
    double scale = op->op == OP_CONV2D ? e->scales.convolutions : e->scales.others;
    return scale > 0 ? scale : 1;
}

/* The time of piece i, and its operations alone added to its worker's. */
static double add_piece(struct estimator *e, const struct plan_layer *layer,
                        const struct op_cost *cost, double scale, int i, bool folded)
{
    const struct machine_kind *kind = kind_of(e, layer->workers[i]);
    /* not all that may be computed again has to be */
    double flops = cost->forward_flops + cost->data_gradient_flops + cost->weight_gradient_flops;
    e->least_s[layer->workers[i]] += e->now->n * scale * flops / kind->reached_flops_per_s;
    double again = layer->recompute ? 4.0 / 3 : 1;
    return folded ? 0 : again * scale * piece_seconds(kind, cost);
}

static bool find_piece_cost(const struct plan_layer *layer, const struct op_case *op,
                            const struct loop_nest *nest, int i, struct op_cost *cost)
{
    struct box box;
    struct op_piece piece;
    plan_piece_box(layer, nest, i, &box);
    if (op_get_piece(op, &box, &piece) != STATUS_OK) {
        status_clear();
        return false;
    }
    if (!piece.empty)
        op_get_cost(&piece.op, cost);
    return !piece.empty;
}

/* Even parts are of two lengths, so pieces of few cuts come in few sizes. */
enum { MOST_SIZED_CUTS = 3 };

static bool is_uneven(const struct plan_layer *layer)
{
    for (int i = 0; i < layer->n_cuts; i++)
        if (layer->cut[i].sizes)
            return true;
    return false;
}

/* Of the cuts of a layer those that piece i has a longer part of: a bit each. */
static unsigned find_longer(const struct plan_layer *layer, const struct loop_nest *nest, int i)
{
    unsigned longer = 0;
    for (int c = layer->n_cuts - 1; c >= 0; c--) {
        const struct plan_cut *cut = &layer->cut[c];
        int64_t extent = nest->loop[cut->loop].extent;
        struct range part = plan_part(cut, i % cut->n_parts, extent);
        longer = 2 * longer + (part.end - part.begin > extent / cut->n_parts);
        i /= cut->n_parts;
    }
    return longer;
}

static bool divides_all(const struct plan_layer *layer, const struct loop_nest *nest)
{
    for (int i = 0; i < layer->n_cuts; i++)
        if (nest->loop[layer->cut[i].loop].extent % layer->cut[i].n_parts != 0)
            return false;
    return true;
}

static void add_compute(struct estimator *e, int node, const struct op_case *op,
                        const struct loop_nest *nest)
{
    const struct plan_layer *layer = &e->plan->layers[node];
    struct op_cost cost[1 << MOST_SIZED_CUTS];
    bool there[1 << MOST_SIZED_CUTS] = {false}; /* of some sizes all are empty */
    bool few = !is_uneven(layer) && layer->n_cuts <= MOST_SIZED_CUTS;
    bool folded = is_folded(op), alike = divides_all(layer, nest);
    double most_s = 0, scale = scale_of(e, op);
    for (int i = 0; i < layer->n_pieces; i++) {
        unsigned k = few && !alike ? find_longer(layer, nest, i) : 0;
        if (!few || !there[k])
            there[k] = find_piece_cost(layer, op, nest, i, &cost[k]);
        if (there[k])
            most_s = fmax(most_s, add_piece(e, layer, &cost[k], scale, i, folded));
    }
    e->now->sums[layer->stage].compute_s += most_s;
}

enum extreme { SMALLEST, LARGEST };

/* The piece with the shortest or longest part of every cut. Of even parts the first is never longer
 * than the others, and the last never shorter. */
static int find_piece(const struct plan_layer *layer, const struct loop_nest *nest,
                      enum extreme which)
{
    int piece = 0;
    for (int c = 0; c < layer->n_cuts; c++) {
        const struct plan_cut *cut = &layer->cut[c];
        bool divides = nest->loop[cut->loop].extent % cut->n_parts == 0;
        int part = cut->sizes || divides || which == SMALLEST ? 0 : cut->n_parts - 1;
        for (int i = 1; cut->sizes && i < cut->n_parts; i++) {
            int64_t longer = cut->sizes[i] - cut->sizes[part];
            part = (which == LARGEST ? longer : -longer) > 0 ? i : part;
        }
        piece = piece * cut->n_parts + part;
    }
    return piece;
}

/* ---- gradients ---- */

static bool indexes_params(const struct loop_nest *nest, int loop)
{
    for (int p = 0; p < nest->n_params; p++)
        for (int a = 0; a < nest->param[p].rank; a++)
            for (int t = 0; t < nest->param[p].axis[a].n_terms; t++)
                if (nest->param[p].axis[a].term[t].loop == loop)
                    return true;
    return false;
}

static double region_elements(const struct range *region, int rank)
{
    double n = 1;
    for (int a = 0; a < rank; a++)
        n *= region[a].end > region[a].begin ? (double)(region[a].end - region[a].begin) : 0;
    return n;
}

/* Who shares something with piece 0 of a layer: how many, on how many nodes. */
struct holders {
    int n, nodes;
};

typedef bool loop_test(const struct loop_nest *nest, int loop);

static bool is_no_statistic(const struct loop_nest *nest, int loop)
{
    return nest->loop[loop].cut != CUT_STATISTICS;
}

/* Pieces whose part of every loop that `apart` holds for is the first. */
static struct holders find_holders(const struct estimator *e, const struct plan_layer *layer,
                                   const struct loop_nest *nest, loop_test *apart)
{
    struct holders h = {0};
    int last_node = -1;
    for (int i = 0; i < layer->n_pieces; i++) {
        int rest = i, node = device_of(e, layer->workers[i])->node;
        bool same = true;
        for (int c = layer->n_cuts - 1; c >= 0; c--) {
            int part = rest % layer->cut[c].n_parts;
            rest /= layer->cut[c].n_parts;
            same = same && (part == 0 || !apart(nest, layer->cut[c].loop));
        }
        h.n += same;
        h.nodes += same && node != last_node;
        last_node = same ? node : last_node;
    }
    return h;
}

/* Of a sum over the holders, of which `groups` go on at the same time (docs/cost-model.md). */
static double sum_seconds(const struct estimator *e, int worker, struct holders h, double groups,
                          double bytes)
{
    double port = port_speed(e, worker), card = card_speed(e, worker);
    double latency = port_latency(e, worker), speed = port;
    if (h.n < 2)
        return 0;
    if (h.nodes > 1) {
        speed = fmin(port, card / groups);
        latency += card_latency(e, worker);
    }
    if (e->plan->sync == PLAN_TREE)
        return 2 * ceil(log2(h.n)) * (latency + bytes / speed);
    if (e->plan->sync == PLAN_HIERARCHICAL && h.nodes > 1) {
        double within = ceil((double)h.n / h.nodes), ring = 2.0 * (h.nodes - 1);
        return 2 * (port_latency(e, worker) + (within - 1) * bytes / port) + ring * latency +
               ring / h.nodes * bytes / speed;
    }
    return 2.0 * (h.n - 1) * (latency + bytes / h.n / speed);
}

static double param_bytes(const struct plan_layer *layer, const struct loop_nest *nest, int piece)
{
    struct box box;
    struct range region[OP_MAX_PARAMS][SHAPE_MAX_RANK];
    double n = 0;
    plan_piece_box(layer, nest, piece, &box);
    int n_params = op_get_piece_params(nest, &box, region);
    for (int p = 0; p < n_params; p++)
        n += region_elements(region[p], nest->param[p].rank);
    return n * ELEMENT_BYTES;
}

/* Every worker sends its gradients to the servers and gets the weights back. */
static double server_seconds(const struct estimator *e, const struct plan_layer *layer,
                             double bytes)
{
    const struct plan *plan = e->plan;
    int server = plan->servers[0], node = device_of(e, server)->node;
    double all = bytes / plan->n_servers, outside = 0;
    for (int i = 0; i < layer->n_pieces; i++)
        outside += device_of(e, layer->workers[i])->node != node;
    int on_card = 0;
    for (int i = 0; i < plan->n_servers; i++)
        on_card += device_of(e, plan->servers[i])->node == node;
    double port_s = all * layer->n_pieces / port_speed(e, server);
    return 2 * fmax(port_s, all * outside * on_card / card_speed(e, server));
}

/* Sums of small arrays would each pay for their messages: buckets do not. */
static double bucket_share(const struct estimator *e, double bytes)
{
    return fmin(1, bytes / (double)e->plan->bucket_bytes);
}

/* A sum goes on as fast as the slowest port lets it. */
static int find_slowest_port(const struct estimator *e, const struct plan_layer *layer)
{
    int slowest = layer->workers[0];
    for (int i = 1; i < layer->n_pieces; i++)
        if (port_speed(e, layer->workers[i]) < port_speed(e, slowest))
            slowest = layer->workers[i];
    return slowest;
}

static void add_sync(struct estimator *e, int node, const struct loop_nest *nest)
{
    const struct plan_layer *layer = &e->plan->layers[node];
    if (nest->n_params == 0)
        return;
    double bytes = param_bytes(layer, nest, find_piece(layer, nest, LARGEST)), seconds;
    int slowest = find_slowest_port(e, layer);
    struct holders h = find_holders(e, layer, nest, indexes_params);
    if (plan_server_of(e->plan, e->graph, e->graph->nodes[node].first_param) >= 0) {
        seconds = server_seconds(e, layer, bytes);
    } else {
        double groups = (double)layer->n_pieces / h.n;
        double fixed_s = sum_seconds(e, slowest, h, groups, 0);
        seconds = sum_seconds(e, slowest, h, groups, bytes) - fixed_s;
        seconds += bucket_share(e, bytes) * fixed_s;
        double least = param_bytes(layer, nest, find_piece(layer, nest, SMALLEST));
        for (int i = 0; h.n > 1 && i < layer->n_pieces; i++) /* everybody receives the sum */
            e->received_s[layer->workers[i]] += least / port_speed(e, layer->workers[i]);
    }
    e->now->sums[layer->stage].sync_s += seconds;
}

/* Two sums per channel, in double. */
static double statistic_bytes(const struct plan_layer *layer, const struct loop_nest *nest)
{
    struct box box;
    struct range region[SHAPE_MAX_RANK];
    plan_piece_box(layer, nest, find_piece(layer, nest, LARGEST), &box);
    op_get_piece_region(nest, &nest->output, &box, region);
    return 16 * (double)(region[1].end - region[1].begin);
}

/* Everybody sends its part to everybody. */
static double gather_seconds(const struct estimator *e, int worker, struct holders h, double bytes)
{
    double here = (double)h.n / h.nodes, outside = h.n - here;
    double port_s = bytes * (h.n - 1) / port_speed(e, worker);
    double card_s = bytes * outside * here / card_speed(e, worker);
    return port_latency(e, worker) + (h.nodes > 1 ? card_latency(e, worker) : 0) +
           fmax(port_s, card_s);
}

/* Forward and backward wait for the sums of statistics. */
static void add_statistics(struct estimator *e, int node, const struct loop_nest *nest)
{
    const struct plan_layer *layer = &e->plan->layers[node];
    bool shared = false;
    for (int c = 0; c < layer->n_cuts; c++)
        shared |= nest->loop[layer->cut[c].loop].cut == CUT_STATISTICS;
    if (!shared)
        return;
    struct holders h = find_holders(e, layer, nest, is_no_statistic);
    e->now->sums[layer->stage].move_s +=
        2 * gather_seconds(e, layer->workers[0], h, statistic_bytes(layer, nest));
}

/* ---- moves ---- */

struct side {
    const struct plan_layer *layer;
    const struct loop_nest *nest;
    const struct tensor_map *map;
};

static void find_region(const struct side *s, int piece, struct region *out)
{
    struct box box;
    plan_piece_box(s->layer, s->nest, piece, &box);
    op_get_piece_region(s->nest, s->map, &box, out->axis);
}

static double common_elements(const struct region *a, const struct region *b, int rank)
{
    struct region both;
    return region_intersect(a, b, rank, &both) ? region_elements(both.axis, rank) : 0;
}

/* What one worker reads. */
struct intake {
    double inner, outer; /* elements, of its node and of others */
    int n_messages;
};

static struct intake find_intake(const struct estimator *e, const struct side *from,
                                 const struct side *to, int piece)
{
    struct intake in = {0};
    struct region wanted, owned;
    int worker = to->layer->workers[piece], rank = from->map->rank;
    find_region(to, piece, &wanted);
    for (int i = 0; i < from->layer->n_pieces; i++) {
        int peer = from->layer->workers[i];
        find_region(from, i, &owned);
        double n = peer == worker ? 0 : common_elements(&wanted, &owned, rank);
        if (n <= 0)
            continue;
        in.n_messages++;
        if (device_of(e, peer)->node == device_of(e, worker)->node)
            in.inner += n;
        else
            in.outer += n;
    }
    return in;
}

static double intake_seconds(const struct estimator *e, const struct plan_layer *to, int worker,
                             const struct intake *in)
{
    double here = 0; /* workers that share the card */
    for (int i = 0; i < to->n_pieces; i++)
        here += device_of(e, to->workers[i])->node == device_of(e, worker)->node;
    double port_s = (in->inner + in->outer) * ELEMENT_BYTES / port_speed(e, worker);
    double card_s = in->outer > 0 ? in->outer * ELEMENT_BYTES * here / card_speed(e, worker) : 0;
    return 2 * (fmax(port_s, card_s) + in->n_messages * port_latency(e, worker));
}

/* Both cut the batch alone, over the same workers: nothing moves. */
static bool is_aligned(const struct plan_layer *a, const struct plan_layer *b)
{
    if (a->stage != b->stage || a->n_cuts != b->n_cuts || a->n_pieces != b->n_pieces)
        return false;
    for (int i = 0; i < a->n_cuts; i++)
        if (a->cut[i].loop != 0 || b->cut[i].loop != 0 || a->cut[i].sizes != b->cut[i].sizes)
            return false;
    for (int i = 0; i < a->n_pieces; i++)
        if (a->workers[i] != b->workers[i])
            return false;
    return true;
}

static void add_moves(struct estimator *e, int node, const struct loop_nest *nest)
{
    const struct graph_node *n = &e->graph->nodes[node];
    const struct plan_layer *layer = &e->plan->layers[node];
    for (int k = 0; k < n->op.n_inputs; k++) {
        const struct plan_layer *feeder = &e->plan->layers[n->input[k]];
        if (n->input[k] == 0 || is_aligned(feeder, layer))
            continue;
        struct loop_nest source;
        struct op_case op = op_resize(&e->graph->nodes[n->input[k]].op, e->now->samples);
        op_get_loops(&op, &source);
        struct side from = {feeder, &source, &source.output}, to = {layer, nest, &nest->input[k]};
        int largest = is_uneven(layer) ? find_piece(layer, nest, LARGEST) : 0;
        const int pieces[] = {0, layer->n_pieces / 2, largest};
        double most_s = 0;
        for (int j = 0; j < 3; j++) {
            if (j > 0 && (pieces[j] == 0 || pieces[j] == pieces[j - 1]))
                continue;
            struct intake in = find_intake(e, &from, &to, pieces[j]);
            most_s = fmax(most_s, intake_seconds(e, layer, layer->workers[pieces[j]], &in));
        }
        e->now->sums[layer->stage].move_s += most_s;
    }
}

/* ---- all of it ---- */

/* Of one class of micro-batches; weights do not depend on it. */
static void add_layers(struct estimator *e)
{
    for (int i = 1; i < e->graph->n_nodes; i++) {
        struct op_case op = op_resize(&e->graph->nodes[i].op, e->now->samples);
        struct loop_nest nest;
        op_get_loops(&op, &nest);
        add_compute(e, i, &op, &nest);
        add_statistics(e, i, &nest);
        add_moves(e, i, &nest);
        if (e->now == e->classes)
            add_sync(e, i, &nest);
    }
}

/* Of one micro-batch of a class. */
static double stage_seconds(const struct estimator *e, int class, int s)
{
    const struct stage_sum *sum = &e->classes[class].sums[s];
    double sync_s = e->plan->schedule == PLAN_PIPEDREAM ? sum->sync_s : 0;
    return sum->compute_s + sum->move_s + sync_s;
}

static double bound_worker(const struct estimator *e, int worker)
{
    double sums_s = e->plan->n_stages == 1 ? e->received_s[worker] : 0;
    return BOUND_SLACK * fmax(e->least_s[worker], sums_s);
}

static void sum_up(const struct estimator *e, struct plan_estimate *out)
{
    const struct plan *plan = e->plan;
    const struct micro_class *large = &e->classes[0], *small = &e->classes[1];
    double sum_s = 0, longest_s = 0, others_s = 0, exposed_s = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const struct stage_sum *stage = &large->sums[s];
        double large_s = stage_seconds(e, 0, s), small_s = stage_seconds(e, 1, s);
        sum_s += large_s;
        longest_s = fmax(longest_s, large_s);
        others_s = fmax(others_s, (large->n - 1) * large_s + small->n * small_s);
        double hidden_s = HIDING * stage->compute_s * 2 / 3; /* of the last micro-batch */
        exposed_s = fmax(exposed_s, stage->sync_s - hidden_s);
        out->compute_s =
            fmax(out->compute_s, stage->compute_s * large->n + small->sums[s].compute_s * small->n);
        out->move_s += stage->move_s * large->n + small->sums[s].move_s * small->n;
        out->sync_s = fmax(out->sync_s, stage->sync_s);
    }
    for (int w = 0; w < plan->n_workers; w++)
        out->bound_s = fmax(out->bound_s, bound_worker(e, w));
    if (plan->schedule == PLAN_PIPEDREAM)
        out->step_s = (sum_s + (plan->window - 1) * longest_s) / plan->window;
    else
        out->step_s = sum_s + others_s + exposed_s;
}

/* As partition.h cuts the batch. */
static enum status find_classes(struct estimator *e, arena *memory)
{
    int micros = e->plan->micro_batches, rest = (int)(e->graph->batch % micros);
    int64_t samples = e->graph->batch / micros;
    e->classes[0].samples = rest ? samples + 1 : samples;
    e->classes[0].n = rest ? rest : micros;
    e->classes[1].samples = samples;
    e->classes[1].n = micros - e->classes[0].n;
    for (int i = 0; i < 2; i++)
        TRY(arena_alloc_array(memory, (size_t)e->plan->n_stages, sizeof *e->classes[i].sums,
                              &e->classes[i].sums));
    return STATUS_OK;
}

static enum status run(struct estimator *e, arena *memory, struct plan_estimate *out)
{
    size_t n = (size_t)e->plan->n_workers;
    *out = (struct plan_estimate){0};
    TRY(arena_alloc_array(memory, n, sizeof *e->least_s, &e->least_s));
    TRY(arena_alloc_array(memory, n, sizeof *e->received_s, &e->received_s));
    TRY(find_classes(e, memory));
    for (int i = 0; i < 2 && e->classes[i].n > 0; i++) {
        e->now = &e->classes[i];
        add_layers(e);
    }
    sum_up(e, out);
    return STATUS_OK;
}

enum status estimate_plan(const struct graph *graph, const struct plan *plan,
                          const struct machine *machine, struct cost_scales scales,
                          struct plan_estimate *out)
{
    struct estimator e = {.graph = graph, .plan = plan, .machine = machine, .scales = scales};
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = run(&e, memory, out);
    arena_destroy(memory);
    return st;
}
