#include "search/explain.h"

#include <stdio.h>
#include <string.h>

struct explainer {
    const struct predict_request *request;
    const struct candidate *candidate;
    const struct graph *graph;
    struct explanation *to;
    struct priced_node *priced; /* by node */
};

/* ---- layers ---- */

static void append(char *text, size_t size, const char *part)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s%s", used ? " " : "", part);
}

/* By its use, because its name differs from op to op; a summed one by its name. */
static const char *name_of_loop(const struct loop *loop)
{
    static const char *const words[LOOP_USE_COUNT] = {
        [USE_CHANNEL] = "channels", [USE_ROW] = "height", [USE_COLUMN] = "width"};
    bool has_word = loop->role != LOOP_SUMMED && words[loop->use];
    return has_word ? words[loop->use] : loop->name;
}

static void describe_cut(const struct explainer *e, int node, char text[EXPLAIN_TEXT_BYTES])
{
    const struct plan *plan = e->candidate->plan;
    const struct plan_layer *layer = &plan->layers[node];
    struct loop_nest nest;
    char part[32];
    op_get_loops(&e->graph->nodes[node].op, &nest);
    text[0] = '\0';
    for (int i = 0; i < layer->n_cuts; i++) {
        const struct plan_cut *cut = &layer->cut[i];
        (void)snprintf(part, sizeof part, "%s=%d%s", name_of_loop(&nest.loop[cut->loop]),
                       cut->n_parts, cut->sizes ? " uneven" : "");
        append(text, EXPLAIN_TEXT_BYTES, part);
    }
    if (layer->n_cuts == 0)
        append(text, EXPLAIN_TEXT_BYTES, "whole");
    if (layer->n_pieces > 1 && layer->n_pieces < plan->stages[layer->stage].n_workers) {
        (void)snprintf(part, sizeof part, "on %d", layer->n_pieces);
        append(text, EXPLAIN_TEXT_BYTES, part);
    }
}

/* The first node of a layer of the search stands for all of it. */
static void add_price(struct explained_layers *row, const struct priced_node *priced)
{
    if (!priced->known)
        return;
    row->seconds = (row->seconds < 0 ? 0 : row->seconds) + priced->seconds;
    if (priced->other[0] && (!row->other[0] || priced->other_s < row->other_s)) {
        memcpy(row->other, priced->other, sizeof row->other);
        row->other_s = priced->other_s;
    }
}

static bool continues(const struct explained_layers *last, const struct explained_layers *row)
{
    return last->stage == row->stage && strcmp(last->cut, row->cut) == 0;
}

/* Layers behind one another that are cut alike are one row. */
static void add_layer(struct explainer *e, int node)
{
    struct explanation *to = e->to;
    const struct graph_node *n = &e->graph->nodes[node];
    struct explained_layers row = {.first = n->name,
                                   .n_layers = 0,
                                   .stage = e->candidate->plan->layers[node].stage,
                                   .seconds = -1};
    describe_cut(e, node, row.cut);
    if (to->n_layers == 0 || !continues(&to->layers[to->n_layers - 1], &row))
        to->layers[to->n_layers++] = row;
    struct explained_layers *last = &to->layers[to->n_layers - 1];
    last->last = n->name;
    last->n_layers++;
    add_price(last, &e->priced[node]);
}

static enum status explain_layers(struct explainer *e, const struct prediction *p)
{
    size_t n = (size_t)e->graph->n_nodes;
    TRY(arena_alloc_array(e->to->memory, n, sizeof *e->to->layers, &e->to->layers));
    TRY(arena_alloc_array(e->to->memory, n, sizeof *e->priced, &e->priced));
    TRY(explain_price_layers(e->request, p, e->candidate->plan, e->priced));
    for (int i = 1; i < e->graph->n_nodes; i++)
        add_layer(e, i);
    return STATUS_OK;
}

/* ---- limits ---- */

static void find_busiest_worker(const struct prediction *p, struct explained_limits *to)
{
    int n_steps = p->programs[0]->n_steps;
    for (int i = 0; i < p->n_workers; i++) {
        double compute_s = p->clock.workers[i].compute_s / n_steps;
        if (i > 0 && compute_s <= to->compute_s)
            continue;
        to->worker = i;
        to->compute_s = compute_s;
        to->wait_s = p->clock.workers[i].wait_s / n_steps;
    }
}

static enum status find_longest_layer(struct explainer *e, const struct prediction *p)
{
    struct explained_limits *to = &e->to->limits;
    const struct program *program = p->programs[to->worker];
    double *seconds; /* by node */
    TRY(arena_alloc_array(e->to->memory, (size_t)e->graph->n_nodes, sizeof *seconds, &seconds));
    for (int i = 0; i < program->n_instrs; i++) {
        const struct instr *instr = &program->instrs[i];
        if (instr->stream != STREAM_COMPUTE || instr->kind != INSTR_RUN)
            continue;
        int node = program->groups[instr->group].first_node;
        seconds[node] += p->costs[to->worker][i].busy_s / program->n_steps;
        if (seconds[node] > to->layer_s) {
            to->layer_s = seconds[node];
            to->layer = e->graph->nodes[node].name;
        }
    }
    return STATUS_OK;
}

static enum status find_busiest_link(struct explainer *e, const struct prediction *p)
{
    const struct machine *m = e->request->machine;
    struct explained_limits *to = &e->to->limits;
    for (int i = 0; i < m->n_links; i++) {
        double share = p->clock.link_bytes[i] / m->links[i].bytes_per_s / p->clock.step_s;
        if (share > to->link_share) {
            to->link_share = share;
            to->link = m->links[i].name;
        }
    }
    return to->link ? arena_copy_text(e->to->memory, to->link, &to->link) : STATUS_OK;
}

static enum status find_limits(struct explainer *e, struct prediction *p)
{
    struct explained_limits *to = &e->to->limits;
    e->to->step_s = p->clock.step_s;
    find_busiest_worker(p, to);
    TRY(find_longest_layer(e, p));
    TRY(find_busiest_link(e, p));
    to->needed_bytes = e->candidate->needed_bytes; /* of the whole run */
    to->limit_bytes = p->tight_worker < 0 ? 0 : e->candidate->limit_bytes;
    to->tight_worker = p->tight_worker;
    return prediction_free_communication(e->request, p, &to->free_s);
}

static enum status explain_all(struct explainer *e)
{
    struct prediction *p;
    struct predict_request r = *e->request;
    r.measure.look_only = true; /* it was measured when it was chosen, or is not to be */
    r.n_others = 0;
    TRY(predict_plan(&r, &p));
    enum status st = explain_layers(e, p);
    if (st == STATUS_OK)
        st = find_limits(e, p);
    prediction_destroy(p);
    return st;
}

/* ---- all of it ---- */

enum status explain_plan(const struct predict_request *request, const struct candidate *c,
                         struct explanation **out)
{
    struct explanation *to;
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = arena_alloc(memory, sizeof *to, &to);
    if (st != STATUS_OK) {
        arena_destroy(memory);
        return st;
    }
    to->memory = memory;
    struct explainer e = {.request = request, .candidate = c, .graph = request->graph, .to = to};
    st = explain_all(&e);
    if (st == STATUS_OK)
        *out = to;
    else
        explanation_destroy(to);
    return st;
}

void explanation_destroy(struct explanation *e)
{
    if (e)
        arena_destroy(e->memory);
}
