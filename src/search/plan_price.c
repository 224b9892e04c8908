#include "search/plan_price.h"

#include "base/numbers.h"
#include "search/pricing_layer.h"
#include "search/stage_costs.h"

#include <math.h>
#include <string.h>

/* Of backward, behind which sums of gradients go on. */
static const double HIDING = 0.8;

/* Of one micro-batch, but sync_s and update_s, which are of a step. */
struct stage_sum {
    double forward_s, backward_s, moves_s, update_s, sync_s;
    double flops_s; /* arithmetic of the whole batch by one operation a second */
};

struct plan_pricer {
    const struct graph *graph;
    const struct plan *plan;
    const struct machine *machine;
    enum precision precision;
    struct cost_scales scales;
    arena *memory;
    struct topology whole; /* all workers */
    struct layer_readers readers;
    struct choice_layer *layers;
    int n_layers;
    double full;            /* micro-batches of readers.samples that a batch would be */
    struct stage_sum *sums; /* by stage */
    double *server_bytes;   /* by server: gradients that it receives in a step */
    /* Of the stage at hand; its workers are numbered from 0 on. */
    struct pricing_request request;
    struct topology topology;
    struct sharding_maker shardings;
    struct layer_pricer pricer;
    int stage, *own_number; /* by worker */
};

/* ---- layers ---- */

/* The plan's cut of a node, on the stage's own numbers of workers. */
static enum status take_cut(const struct plan_pricer *p, int node, struct plan_layer *out)
{
    int *workers;
    *out = p->plan->layers[node];
    TRY(arena_alloc_array(p->memory, (size_t)out->n_pieces, sizeof *workers, &workers));
    for (int i = 0; i < out->n_pieces; i++)
        workers[i] = p->own_number[out->workers[i]];
    out->workers = workers;
    return STATUS_OK;
}

static bool same_mesh(const struct plan_layer *a, const struct plan_layer *b)
{
    if (a->stage != b->stage || a->n_pieces != b->n_pieces || a->n_cuts != b->n_cuts)
        return false;
    for (int i = 0; i < a->n_cuts; i++)
        if (a->cut[i].n_parts != b->cut[i].n_parts)
            return false;
    return memcmp(a->workers, b->workers, (size_t)a->n_pieces * sizeof *a->workers) == 0;
}

/* Only nodes that are cut alike are folded: a layer of the search is divided where the cuts differ.
 */
static enum status divide_layers(struct plan_pricer *p)
{
    struct choice_layer *found;
    int n, *layer_of;
    TRY(choice_find_layers(p->graph, p->memory, &found, &n, &layer_of));
    TRY(arena_alloc_array(p->memory, (size_t)p->graph->n_nodes, sizeof *p->layers, &p->layers));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < found[i].n_nodes; k++) {
            const struct plan_layer *all = p->plan->layers;
            const int *node = found[i].node;
            if (k == 0 || !same_mesh(&all[node[k - 1]], &all[node[k]]))
                p->n_layers++;
            struct choice_layer *to = &p->layers[p->n_layers - 1];
            to->node[to->n_nodes++] = node[k];
        }
    return STATUS_OK;
}

/* Operations that every plan does, in seconds of a device that does one a second. The data gradient
 * of the first layer is never computed. */
static double count_flops(const struct plan_pricer *p, int node)
{
    const struct graph_node *n = &p->graph->nodes[node];
    struct op_cost cost;
    if (!(op_get_info(n->op.op)->flags & OP_SPLIT_GRADIENT))
        return 0;
    op_get_cost(&n->op, &cost);
    double flops = cost.forward_flops;
    if (graph_node_learns(p->graph, n))
        flops += cost.weight_gradient_flops;
    if (p->readers.needs_gradient[n->input[0]])
        flops += cost.data_gradient_flops;
    double scale = n->op.op == OP_CONV2D ? p->scales.convolutions : p->scales.others;
    return flops * (scale > 0 ? scale : 1);
}

/* A server that keeps the weights of a layer gets a gradient of every piece. */
static bool add_to_server(struct plan_pricer *p, int node, int n_pieces, double n_bytes)
{
    const struct graph_node *n = &p->graph->nodes[node];
    int server = n->n_params > 0 ? plan_server_of(p->plan, p->graph, n->first_param) : -1;
    for (int i = 0; i < p->plan->n_servers; i++) /* they take turns, parameter by parameter */
        if (server >= 0)
            p->server_bytes[i] += n_pieces * n_bytes / p->plan->n_servers;
    return server >= 0;
}

static enum status price_layer(struct plan_pricer *p, const struct choice_layer *layer)
{
    struct plan_layer cuts[1 + LAYER_MAX_FOLLOWERS] = {{0}};
    struct stage_sum *sum = &p->sums[p->stage];
    struct pricing_cost cost;
    struct layer_case c;
    layer_case_fill(&p->readers, layer, &c);
    for (int i = 0; i < c.n_nodes; i++) {
        op_get_loops(&c.op[i], &c.nest[i]);
        TRY(take_cut(p, layer->node[i], &cuts[i]));
        sum->flops_s += count_flops(p, layer->node[i]);
    }
    sharding_maker_forget(&p->shardings);
    TRY(layer_price_cuts(&p->pricer, &c, cuts, &cost));
    sum->forward_s += cost.forward_s;
    sum->backward_s += cost.backward_s + (cuts[0].recompute ? cost.forward_s : 0);
    sum->moves_s += cost.statistics_s + cost.inside_s;
    sum->update_s += cost.update_s;
    if (!add_to_server(p, layer->node[0], cuts[0].n_pieces, cost.weight_bytes))
        sum->sync_s += cost.sync_s;
    return STATUS_OK;
}

/* ---- edges ---- */

static enum status find_sharding(struct plan_pricer *p, int node, int input, struct sharding *out)
{
    struct op_case op = op_resize(&p->graph->nodes[node].op, USE_BATCH, p->readers.samples);
    struct plan_layer cut;
    struct loop_nest nest;
    op_get_loops(&op, &nest);
    TRY(take_cut(p, node, &cut));
    sharding_maker_forget(&p->shardings);
    return sharding_make(&p->shardings, &nest, input < 0 ? &nest.output : &nest.input[input], &cut,
                         out);
}

/* The move of one input of node number `to`, and of its gradient back. */
static enum status price_edge(struct plan_pricer *p, int to, int input)
{
    int from = p->graph->nodes[to].input[input];
    const struct plan_layer *maker = &p->plan->layers[from], *reader = &p->plan->layers[to];
    double each = (double)element_bytes(precision_get_info(p->precision)->activation);
    struct sharding own, read;
    if (from == 0) /* the images: every worker loads what it reads */
        return STATUS_OK;
    if (maker->stage == reader->stage) {
        TRY(find_sharding(p, from, -1, &own));
        TRY(find_sharding(p, to, input, &read));
        p->sums[p->stage].moves_s += sharding_move_s(&p->topology, &own, &read, each);
        return STATUS_OK;
    }
    const struct plan_stage *a = &p->plan->stages[maker->stage];
    const struct plan_stage *b = &p->plan->stages[reader->stage];
    struct op_case op = op_resize(&p->graph->nodes[to].op, USE_BATCH, p->readers.samples);
    double n_bytes = (double)shape_elements(&op.input[input]) * each;
    p->sums[p->stage].moves_s += 2 * stage_cross_s(&p->whole, a->workers[0], a->n_workers,
                                                   b->workers[0], b->n_workers, n_bytes);
    return STATUS_OK;
}

/* ---- stages ---- */

static enum status price_stage(struct plan_pricer *p, int stage)
{
    const struct plan_stage *at = &p->plan->stages[stage];
    p->stage = stage;
    p->request.first_device = at->workers[0];
    p->request.n_workers = at->n_workers;
    TRY(topology_create(p->machine, p->request.transport, at->workers[0], at->n_workers, p->memory,
                        &p->topology));
    for (int i = 0; i < at->n_workers; i++)
        p->own_number[at->workers[i]] = i;
    for (int i = 0; i < p->n_layers; i++) {
        const struct choice_layer *layer = &p->layers[i];
        if (p->plan->layers[layer->node[0]].stage != stage)
            continue;
        TRY(price_layer(p, layer));
        int first = layer->node[0]; /* its followers read from their own worker */
        for (int input = 0; input < p->graph->nodes[first].op.n_inputs; input++)
            TRY(price_edge(p, first, input));
    }
    return STATUS_OK;
}

/* Servers get all gradients and send the weights back. */
static double server_s(const struct plan_pricer *p, int number)
{
    const struct machine *m = p->machine;
    int server = p->plan->servers[number], outside = 0, n = 0;
    const struct topology_node *node = &p->whole.nodes[p->whole.node_of[server]];
    for (int s = 0; s < p->plan->n_stages; s++)
        for (int i = 0; i < p->plan->stages[s].n_workers; i++, n++)
            outside += p->whole.node_of[p->plan->stages[s].workers[i]] != p->whole.node_of[server];
    int on_card = 0;
    for (int i = 0; i < p->plan->n_servers; i++)
        on_card += p->whole.node_of[p->plan->servers[i]] == p->whole.node_of[server];
    double port = p->whole.in_bytes_per_s[server];
    port = isfinite(port)
               ? port
               : m->kinds[m->devices[p->whole.device[server]].kind].reached_bytes_per_s / 2;
    double far = p->server_bytes[number] * outside / n * on_card;
    return 2 * fmax(p->server_bytes[number] / port, far / node->in_bytes_per_s);
}

/* A stage cannot do its arithmetic faster than all of its devices together. */
static double bound_stage(const struct plan_pricer *p, int stage)
{
    const struct plan_stage *at = &p->plan->stages[stage];
    enum arithmetic products = precision_get_info(p->precision)->products;
    double rate = 0;
    for (int i = 0; i < at->n_workers; i++) {
        const struct machine_device *d = &p->machine->devices[p->whole.device[at->workers[i]]];
        rate += machine_kind_rate(&p->machine->kinds[d->kind], products).reached;
    }
    return p->sums[stage].flops_s / rate;
}

static void sum_up(const struct plan_pricer *p, struct plan_price *out)
{
    double sum_s = 0, longest_s = 0, others_s = 0, served_s = 0;
    bool streams = p->plan->schedule == PLAN_PIPEDREAM; /* every micro-batch is a step */
    for (int i = 0; i < p->plan->n_servers; i++)
        served_s = fmax(served_s, server_s(p, i));
    for (int s = 0; s < p->plan->n_stages; s++) {
        const struct stage_sum *at = &p->sums[s];
        double compute_s = at->forward_s + at->backward_s, sync_s = at->sync_s + served_s;
        double exposed_s = streams ? sync_s : fmax(0, sync_s - HIDING * at->backward_s);
        double each_s = compute_s + at->moves_s, once_s = at->update_s + exposed_s;
        sum_s += each_s + (streams ? once_s : 0);
        longest_s = fmax(longest_s, each_s + once_s);
        others_s = fmax(others_s, (p->full - 1) * each_s + once_s);
        out->compute_s = fmax(out->compute_s, p->full * compute_s);
        out->sync_s = fmax(out->sync_s, sync_s);
        out->bound_s = fmax(out->bound_s, bound_stage(p, s));
    }
    out->step_s =
        streams ? (sum_s + (p->plan->window - 1) * longest_s) / p->plan->window : sum_s + others_s;
}

static enum status price(struct plan_pricer *p, struct plan_price *out)
{
    const struct plan *plan = p->plan;
    int64_t micros = plan->micro_batches, rest = p->graph->batch % micros;
    int64_t samples = p->graph->batch / micros + (2 * rest > micros); /* as most of them have */
    struct cost_source *sources;
    TRY(arena_alloc_array(p->memory, (size_t)p->machine->n_kinds, sizeof *sources, &sources));
    for (int k = 0; k < p->machine->n_kinds; k++)
        sources[k] = (struct cost_source){.kind = &p->machine->kinds[k], .scales = p->scales};
    p->request = (struct pricing_request){.graph = p->graph,
                                          .machine = p->machine,
                                          .transport = "threads",
                                          .sources = sources,
                                          .precision = p->precision,
                                          .samples = samples,
                                          .n_states = 1,
                                          .bucket_bytes = plan->bucket_bytes,
                                          .sync = plan->sync,
                                          .norms_by_worker = plan_norms_by_worker(plan),
                                          .node_size = plan->workers_per_node};
    p->full = (double)p->graph->batch / (double)samples;
    p->shardings = (struct sharding_maker){.topology = &p->topology, .memory = p->memory};
    p->pricer = (struct layer_pricer){&p->request, &p->topology, p->memory, &p->shardings, NULL};
    size_t n = (size_t)plan->n_workers;
    TRY(arena_alloc_array(p->memory, n, sizeof(int), &p->pricer.members));
    TRY(arena_alloc_array(p->memory, n, sizeof *p->own_number, &p->own_number));
    TRY(arena_alloc_array(p->memory, (size_t)plan->n_stages, sizeof *p->sums, &p->sums));
    TRY(arena_alloc_array(p->memory, n, sizeof *p->server_bytes, &p->server_bytes));
    TRY(topology_create(p->machine, "threads", 0, plan->n_workers, p->memory, &p->whole));
    TRY(layer_readers_find(p->graph, samples, p->memory, &p->readers));
    TRY(divide_layers(p));
    for (int s = 0; s < plan->n_stages; s++)
        TRY(price_stage(p, s));
    sum_up(p, out);
    return STATUS_OK;
}

enum status plan_price(const struct graph *graph, const struct plan *plan,
                       const struct machine *machine, enum precision precision,
                       struct cost_scales scales, struct plan_price *out)
{
    struct plan_pricer *p;
    arena *memory;
    TRY(arena_create(&memory));
    *out = (struct plan_price){0};
    enum status st = arena_alloc(memory, sizeof *p, &p);
    if (st == STATUS_OK) {
        p->graph = graph;
        p->plan = plan;
        p->machine = machine;
        p->precision = precision;
        p->scales = scales;
        p->memory = memory;
        st = price(p, out);
    }
    arena_destroy(memory);
    return st;
}
