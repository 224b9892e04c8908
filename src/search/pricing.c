/* The terms of equation 1 of Jia et al. 2018 (see eliminate.c): for each layer and choice its t(i,
 * c), for each edge and pair of choices its t(i, j, c, d).
 *
 *     layers of the network   conv1  conv2  conv3  fc1       conv2 and conv3 are alike: one
 *     different layers          0      1      1     2        distinct_layer, priced once
 *     edges                       0->1   1->1   1->2         by distinct layers, too
 *
 * Of every choice the regions that workers own of the output and read of the inputs (sharding.h)
 * are made once, so that an entry of an edge's table is a comparison of two shardings. */
#include "search/pricing.h"

#include "search/pricing_layer.h"

#include <math.h>
#include <string.h>

double pricing_total(const struct pricing_request *request, const struct pricing_cost *cost)
{
    return cost->forward_s + cost->backward_s + cost->update_s + cost->statistics_s +
           cost->inside_s + (1 - request->hidden_sync) * cost->sync_s;
}

double pricing_bytes(const struct pricing_request *request, const struct pricing_cost *cost)
{
    return pricing_weights_bytes(request, cost->weight_bytes, 0) + cost->kept_bytes;
}

double pricing_weights_bytes(const struct pricing_request *request, double weight_bytes,
                             int versions)
{
    const struct precision_info *types = precision_get_info(request->precision);
    int64_t weight = element_bytes(types->weight), master = element_bytes(types->master);
    int64_t gradient = element_bytes(types->gradient);
    int64_t each = (1 + versions) * weight + (master > weight ? master : 0) + gradient +
                   request->n_states * master;
    return weight_bytes / (double)gradient * (double)each;
}

static double activation_bytes(const struct pricing_request *request)
{
    return (double)element_bytes(precision_get_info(request->precision)->activation);
}

/* ---- different layers ---- */

/* A layer that others may be equal to, with the shardings of its tensors by choice. */
struct distinct_layer {
    struct layer_case its;
    struct pricing_layer priced;
    struct sharding *own;                  /* [n_choices] */
    struct sharding *reads[OP_MAX_INPUTS]; /* [n_choices] each; made when asked for */
};

struct builder {
    struct pricing *p;
    struct topology topology;
    struct sharding_maker shardings;
    struct layer_pricer pricer;
    struct choice_request choices;
    const struct search_options *options;
    struct layer_readers readers;
    int n_distinct;
    struct distinct_layer **distinct;
    int *distinct_of; /* by layer */
};

static bool equal_cases(const struct layer_case *a, const struct layer_case *b)
{
    bool same = a->n_nodes == b->n_nodes && a->input_gradient == b->input_gradient &&
                a->folded_sum == b->folded_sum && a->n_readers == b->n_readers;
    for (int i = 0; same && i < a->n_nodes; i++)
        same = op_equal(&a->op[i], &b->op[i]) && a->learns[i] == b->learns[i];
    return same;
}

static enum status price_choices(struct builder *m, struct distinct_layer *s)
{
    struct plan_layer cuts[1 + LAYER_MAX_FOLLOWERS] = {{0}};
    struct pricing_cost *costs;
    double *totals;
    size_t n = (size_t)s->priced.n_choices;
    int last = s->its.n_nodes - 1;
    TRY(arena_alloc_array(m->p->memory, n, sizeof *costs, &costs));
    TRY(arena_alloc_array(m->p->memory, n, sizeof *totals, &totals));
    TRY(arena_alloc_array(m->p->memory, n, sizeof *s->own, &s->own));
    for (int k = 0; k < s->its.op[0].n_inputs; k++)
        TRY(arena_alloc_array(m->p->memory, n, sizeof *s->reads[k], &s->reads[k]));
    sharding_maker_forget(&m->shardings);
    for (int x = 0; x < s->priced.n_choices; x++) {
        TRY(layer_price(&m->pricer, &s->its, &s->priced.choices[x], cuts, &costs[x]));
        totals[x] = pricing_total(&m->p->request, &costs[x]);
        TRY(sharding_make(&m->shardings, &s->its.nest[last], &s->its.nest[last].output, &cuts[last],
                          &s->own[x]));
        for (int k = 0; k < s->its.op[0].n_inputs; k++)
            TRY(sharding_make(&m->shardings, &s->its.nest[0], &s->its.nest[0].input[k], &cuts[0],
                              &s->reads[k][x]));
    }
    s->priced.costs = costs;
    s->priced.totals = totals;
    return STATUS_OK;
}

static enum status add_distinct(struct builder *m, const struct layer_case *its)
{
    struct distinct_layer *s;
    TRY(arena_alloc(m->p->memory, sizeof *s, &s));
    m->distinct[m->n_distinct++] = s;
    s->its = *its;
    for (int i = 0; i < its->n_nodes; i++)
        op_get_loops(&its->op[i], &s->its.nest[i]);
    TRY(choice_list(&m->choices, its->layer, m->p->memory, &s->priced.choices,
                    &s->priced.n_choices));
    return price_choices(m, s);
}

static bool is_stopped(const struct builder *m)
{
    const struct search_options *o = m->options;
    return o && o->stop && o->stop(o->user, INFINITY, 0);
}

static enum status price_layers(struct builder *m, const struct choice_layer *layers)
{
    struct pricing *p = m->p;
    size_t n = (size_t)p->n_layers;
    struct layer_case *its;
    TRY(arena_alloc(p->memory, sizeof *its, &its));
    TRY(arena_alloc_array(p->memory, n, sizeof *m->distinct, &m->distinct));
    TRY(arena_alloc_array(p->memory, n, sizeof *m->distinct_of, &m->distinct_of));
    TRY(arena_alloc_array(p->memory, n, sizeof *p->layers, &p->layers));
    for (int i = 0; i < p->n_layers; i++) {
        int k = 0;
        layer_case_fill(&m->readers, &layers[i], its);
        while (k < m->n_distinct && !equal_cases(&m->distinct[k]->its, its))
            k++;
        if (k == m->n_distinct && is_stopped(m))
            return status_fail(STATUS_STOPPED, "stopped before anything was priced");
        if (k == m->n_distinct)
            TRY(add_distinct(m, its));
        m->distinct_of[i] = k;
        p->layers[i] = m->distinct[k]->priced;
        p->layers[i].nodes = layers[i];
    }
    p->n_priced_layers = m->n_distinct;
    return STATUS_OK;
}

/* ---- edges ---- */

static enum status price_edge(struct builder *m, const struct distinct_layer *from,
                              const struct distinct_layer *to, int input, const double **out)
{
    double *table;
    int rows = from->priced.n_choices, columns = to->priced.n_choices;
    TRY(arena_alloc_array(m->p->memory, (size_t)rows * (size_t)columns, sizeof *table, &table));
    *out = table;
    for (int x = 0; x < rows; x++)
        for (int y = 0; y < columns; y++)
            *table++ = sharding_move_s(&m->topology, &from->own[x], &to->reads[input][y],
                                       activation_bytes(&m->p->request));
    return STATUS_OK;
}

static const double *find_equal_edge(const struct builder *m, const struct pricing_edge *e)
{
    const struct pricing *p = m->p;
    for (int i = 0; i < p->n_edges; i++)
        if (p->edges[i].input == e->input &&
            m->distinct_of[p->edges[i].from] == m->distinct_of[e->from] &&
            m->distinct_of[p->edges[i].to] == m->distinct_of[e->to])
            return p->edges[i].table;
    return NULL;
}

static enum status add_edge(struct builder *m, int to, int input)
{
    struct pricing *p = m->p;
    int node = p->layers[to].nodes.node[0];
    const struct graph_node *reader = &p->request.graph->nodes[node];
    int from = p->layer_of[reader->input[input]];
    if (from < 0) /* the images: every worker loads what it reads */
        return STATUS_OK;
    struct pricing_edge e = {.from = from, .to = to, .node = node, .input = input};
    struct op_case op = op_resize(&reader->op, USE_BATCH, m->choices.samples);
    e.tensor_bytes = (double)shape_elements(&op.input[input]) * activation_bytes(&p->request);
    e.table = find_equal_edge(m, &e);
    if (!e.table) {
        if (is_stopped(m))
            return status_fail(STATUS_STOPPED, "stopped before everything was priced");
        TRY(price_edge(m, m->distinct[m->distinct_of[from]], m->distinct[m->distinct_of[to]], input,
                       &e.table));
        p->n_priced_edges++;
    }
    p->edges[p->n_edges++] = e;
    return STATUS_OK;
}

static enum status price_edges(struct builder *m)
{
    struct pricing *p = m->p;
    size_t n = 0;
    for (int i = 0; i < p->n_layers; i++)
        n += (size_t)p->request.graph->nodes[p->layers[i].nodes.node[0]].op.n_inputs;
    TRY(arena_alloc_array(p->memory, n, sizeof *p->edges, &p->edges));
    for (int i = 0; i < p->n_layers; i++)
        for (int k = 0; k < p->request.graph->nodes[p->layers[i].nodes.node[0]].op.n_inputs; k++)
            TRY(add_edge(m, i, k));
    return STATUS_OK;
}

static enum status state_problem(struct pricing *p)
{
    struct search_node *nodes;
    struct search_edge *edges;
    TRY(arena_alloc_array(p->memory, (size_t)p->n_layers, sizeof *nodes, &nodes));
    TRY(arena_alloc_array(p->memory, (size_t)p->n_edges, sizeof *edges, &edges));
    for (int i = 0; i < p->n_layers; i++)
        nodes[i] = (struct search_node){p->layers[i].n_choices, p->layers[i].totals};
    for (int i = 0; i < p->n_edges; i++)
        edges[i] = (struct search_edge){p->edges[i].from, p->edges[i].to, p->edges[i].table};
    p->problem = (struct search_problem){p->n_layers, nodes, p->n_edges, edges};
    return STATUS_OK;
}

/* ---- the whole ---- */

/* NULL if all workers are alike. */
static enum status find_speeds(const struct builder *m, const double **out)
{
    const struct pricing_request *r = &m->p->request;
    enum arithmetic products = precision_get_info(r->precision)->products;
    double *speed;
    bool differ = false;
    TRY(arena_alloc_array(m->p->memory, (size_t)r->n_workers, sizeof *speed, &speed));
    for (int i = 0; i < r->n_workers; i++) {
        int kind = r->machine->devices[m->topology.device[i]].kind;
        speed[i] = machine_kind_rate(&r->machine->kinds[kind], products).reached;
        differ |= speed[i] != speed[0];
    }
    *out = differ ? speed : NULL;
    return STATUS_OK;
}

static enum status fill(struct builder *m)
{
    struct pricing *p = m->p;
    struct pricing_request *r = &p->request;
    struct choice_layer *layers;
    r->samples = r->samples ? r->samples : r->graph->batch;
    TRY(topology_create(r->machine, r->transport, r->first_device, r->n_workers, p->memory,
                        &m->topology));
    m->shardings = (struct sharding_maker){.topology = &m->topology, .memory = p->memory};
    m->pricer = (struct layer_pricer){r, &m->topology, p->memory, &m->shardings, NULL};
    TRY(arena_alloc_array(p->memory, (size_t)r->n_workers, sizeof(int), &m->pricer.members));
    m->choices = (struct choice_request){.graph = r->graph,
                                         .samples = r->samples,
                                         .machine = r->machine,
                                         .first_device = r->first_device,
                                         .n_workers = r->n_workers,
                                         .max_choices = r->max_choices,
                                         .only_batch = r->only_batch};
    TRY(find_speeds(m, &m->choices.speed));
    TRY(layer_readers_find(r->graph, r->samples, p->memory, &m->readers));
    TRY(choice_find_layers(r->graph, p->memory, &layers, &p->n_layers, &p->layer_of));
    TRY(price_layers(m, layers));
    TRY(price_edges(m));
    return state_problem(p);
}

static enum status check_request(const struct pricing_request *r)
{
    if (r->n_workers < 1)
        return status_fail(STATUS_USAGE, "a search for %d workers: at least 1", r->n_workers);
    if (r->n_workers > PLAN_MAX_WORKERS)
        return status_fail(STATUS_USAGE, "a search for %d workers: at most %d", r->n_workers,
                           PLAN_MAX_WORKERS);
    return STATUS_OK;
}

enum status pricing_create(const struct pricing_request *request,
                           const struct search_options *options, struct pricing **out)
{
    struct builder *m;
    arena *memory;
    TRY(check_request(request));
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, arena_alloc(memory, sizeof *m, &m), failed);
    TRY_GOTO(st, arena_alloc(memory, sizeof *m->p, &m->p), failed);
    m->p->memory = memory;
    m->p->request = *request;
    m->options = options;
    TRY_GOTO(st, fill(m), failed);
    *out = m->p;
    return STATUS_OK;
failed:
    arena_destroy(memory);
    return st;
}

void pricing_hide_sync(struct pricing *p, double hidden_sync)
{
    p->request.hidden_sync = hidden_sync;
    for (int i = 0; i < p->n_layers; i++) /* equal layers share theirs: again, to the same */
        for (int x = 0; x < p->layers[i].n_choices; x++)
            p->layers[i].totals[x] = pricing_total(&p->request, &p->layers[i].costs[x]);
}

void pricing_destroy(struct pricing *p)
{
    if (p)
        arena_destroy(p->memory);
}
