#include "random_plans.h"

/* ---- plans, in a form that can be changed piece by piece ---- */

/* ---- drawing one ---- */

/* Deals the workers out in any order, the last ones as servers; every stage gets at least one. */
static void draw_workers(struct draw *d, struct sketch *s)
{
    int order[MAX_WORKERS];
    for (int i = 0; i < s->n_workers; i++)
        order[i] = i;
    if (draw_chance(d, 50))
        draw_shuffle(d, s->n_workers, order);
    int n_computing = s->n_workers - s->n_servers;
    for (int i = n_computing; i < s->n_workers; i++)
        s->servers[i - n_computing] = order[i];
    for (int i = 0; i < n_computing; i++) {
        int stage = i < s->n_stages ? i : draw_number(d, 0, s->n_stages - 1);
        s->stages[stage].workers[s->stages[stage].n_workers++] = order[i];
    }
}

/* Runs of nodes, or any stages that no edge leaves backwards. The second may leave a stage empty.
 */
static void deal_stages(struct draw *d, const struct graph *g, struct sketch *s, bool runs)
{
    for (int i = 1; i < g->n_nodes; i++) {
        int least = runs ? s->layers[i - 1].stage : 0, left = g->n_nodes - i;
        for (int k = 0; k < g->nodes[i].op.n_inputs; k++) {
            int before = s->layers[g->nodes[i].input[k]].stage;
            least = before > least ? before : least;
        }
        int more = s->n_stages - 1 - least;
        bool next = more > 0 && i > 1 && (left <= more || draw_number(d, 1, left) <= more);
        s->layers[i].stage = least + next;
    }
    s->layers[g->n_nodes - 1].stage = s->n_stages - 1;
}

static bool every_stage_is_used(const struct sketch *s)
{
    bool used[MAX_STAGES] = {false};
    for (int i = 1; i < s->n_layers; i++)
        used[s->layers[i].stage] = true;
    for (int i = 0; i < s->n_stages; i++)
        if (!used[i])
            return false;
    return true;
}

static void draw_stages(struct draw *d, const struct graph *g, struct sketch *s)
{
    bool runs = draw_chance(d, 70);
    deal_stages(d, g, s, runs);
    if (!every_stage_is_used(s))
        deal_stages(d, g, s, true);
}

/* So that each part has at least one of the iterations; a batch's sizes are only proportions. */
static void draw_sizes(struct draw *d, const struct loop *loop, bool batch, struct sketch_cut *cut)
{
    int left = (int)loop->extent;
    cut->sized = true;
    for (int i = 0; i < cut->n_parts; i++) {
        int behind = cut->n_parts - 1 - i;
        cut->size[i] = batch    ? draw_number(d, 1, 5)
                       : behind ? draw_number(d, 1, left - behind)
                                : left;
        left -= cut->size[i];
    }
}

static void draw_cuts(struct draw *d, const struct op_case *op, int n_workers,
                      struct sketch_layer *layer)
{
    struct loop_nest nest;
    int order[OP_MAX_LOOPS], room = n_workers;
    op_get_loops(op, &nest);
    for (int i = 0; i < nest.n_loops; i++)
        order[i] = i;
    draw_shuffle(d, nest.n_loops, order);
    for (int i = 0; i < nest.n_loops && room > 1; i++) {
        const struct loop *loop = &nest.loop[order[i]];
        bool batch = loop->use == USE_BATCH;
        int most = batch || loop->extent > room ? room : (int)loop->extent;
        if (loop->cut == CUT_NEVER || most < 2 || !draw_chance(d, 60))
            continue;
        struct sketch_cut *cut = &layer->cut[layer->n_cuts++];
        *cut = (struct sketch_cut){.loop = order[i], .n_parts = draw_number(d, 2, most)};
        if (draw_chance(d, 40))
            draw_sizes(d, loop, batch, cut);
        room /= cut->n_parts;
    }
}

int count_pieces(const struct sketch_layer *layer)
{
    int n = 1;
    for (int i = 0; i < layer->n_cuts; i++)
        n *= layer->cut[i].n_parts;
    return n;
}

static void draw_layer(struct draw *d, const struct graph_node *node, const struct sketch *s,
                       struct sketch_layer *layer)
{
    int n = s->stages[layer->stage].n_workers, order[MAX_WORKERS];
    layer->recompute = draw_chance(d, 15);
    layer->named = draw_chance(d, 80);
    if (!layer->named)
        return;
    draw_cuts(d, &node->op, n, layer);
    if (!draw_chance(d, 40))
        return;
    memcpy(order, s->stages[layer->stage].workers, sizeof order);
    draw_shuffle(d, n, order);
    layer->n_workers = count_pieces(layer);
    memcpy(layer->workers, order, sizeof layer->workers);
}

struct sketch draw_sketch(struct draw *d, const struct graph *g)
{
    static const char *const uses[] = {"n", "channels", "height", "width"};
    static const char *const syncs[] = {"ring", "tree", "hierarchical"};
    struct sketch s = {
        .n_workers = draw_number(d, 2, MAX_WORKERS), .n_layers = g->n_nodes, .n_steps = MAX_STEPS};
    assert_true(g->n_nodes <= MAX_LAYERS);
    s.sync = syncs[draw_number(d, 0, 2)];
    if (s.n_workers > 2 && draw_chance(d, 15)) {
        s.sync = "server";
        s.n_servers = draw_number(d, 1, s.n_workers > 3 ? 2 : 1);
    }
    int most = s.n_workers - s.n_servers < MAX_STAGES ? s.n_workers - s.n_servers : MAX_STAGES;
    s.n_stages = draw_number(d, 1, g->n_nodes - 1 < most ? g->n_nodes - 1 : most);
    draw_workers(d, &s);
    draw_stages(d, g, &s);
    int fewest = s.n_workers;
    for (int i = 0; i < s.n_stages; i++)
        fewest = s.stages[i].n_workers < fewest ? s.stages[i].n_workers : fewest;
    if (fewest > 1 && draw_chance(d, 60)) {
        s.default_use = uses[draw_number(d, 0, 3)];
        s.default_parts = draw_number(d, 2, fewest);
    }
    for (int i = 1; i < g->n_nodes; i++)
        draw_layer(d, &g->nodes[i], &s, &s.layers[i]);
    s.micro_batches = draw_chance(d, 40) ? 1 : draw_number(d, 1, 4);
    s.schedule = draw_chance(d, 50) ? "gpipe" : "1f1b";
    s.workers_per_node = draw_number(d, 1, 4);
    s.bucket_bytes = draw_chance(d, 30) ? 1 << 20 : 64LL << draw_number(d, 0, 6);
    s.norms_by_worker = draw_chance(d, 30);
    s.segments = draw_chance(d, 20) ? draw_number(d, 1, 6) : 0;
    return s;
}

/* ---- as JSON ---- */

static void write_numbers(FILE *f, const char *key, int n, const int *numbers)
{
    (void)fprintf(f, "\"%s\": [", key);
    for (int i = 0; i < n; i++)
        (void)fprintf(f, "%s%d", i ? ", " : "", numbers[i]);
    (void)fprintf(f, "]");
}

static void write_layer(FILE *f, const struct graph_node *node, const struct sketch_layer *layer)
{
    struct loop_nest nest;
    op_get_loops(&node->op, &nest);
    (void)fprintf(f, "    \"%s\": {\"stage\": %d", node->name, layer->stage);
    if (layer->named) {
        (void)fprintf(f, ", \"cut\": {");
        for (int i = 0; i < layer->n_cuts; i++) {
            const struct sketch_cut *cut = &layer->cut[i];
            const char *loop = nest.loop[cut->loop].name;
            (void)fprintf(f, "%s", i ? ", " : "");
            if (cut->sized)
                write_numbers(f, loop, cut->n_parts, cut->size);
            else
                (void)fprintf(f, "\"%s\": %d", loop, cut->n_parts);
        }
        (void)fprintf(f, "}");
    }
    if (layer->n_workers) {
        (void)fprintf(f, ", ");
        write_numbers(f, "workers", layer->n_workers, layer->workers);
    }
    (void)fprintf(f, "}");
}

static void write_recomputed(FILE *f, const struct graph *g, const struct sketch *s)
{
    const char *comma = "";
    if (s->segments) {
        (void)fprintf(f, "  \"recompute\": %d,\n", s->segments);
        return;
    }
    (void)fprintf(f, "  \"recompute\": [");
    for (int i = 1; i < s->n_layers; i++)
        if (s->layers[i].recompute) {
            (void)fprintf(f, "%s\"%s\"", comma, g->nodes[i].name);
            comma = ", ";
        }
    (void)fprintf(f, "],\n");
}

char *write_sketch(const struct graph *g, const struct sketch *s)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&text, &n_bytes);
    assert_non_null(f);
    (void)fprintf(f, "{\n  \"cleave_plan\": 1,\n  \"name\": \"random\",\n  \"workers\": %d,\n",
                  s->n_workers);
    (void)fprintf(f, "  \"stages\": [");
    for (int i = 0; i < s->n_stages; i++) {
        (void)fprintf(f, "%s{", i ? ", " : "");
        write_numbers(f, "workers", s->stages[i].n_workers, s->stages[i].workers);
        (void)fprintf(f, "}");
    }
    (void)fprintf(f, "],\n");
    if (s->default_use)
        (void)fprintf(f, "  \"default\": {\"cut\": {\"%s\": %d}},\n", s->default_use,
                      s->default_parts);
    (void)fprintf(f, "  \"layers\": {\n");
    for (int i = 1; i < s->n_layers; i++) {
        write_layer(f, &g->nodes[i], &s->layers[i]);
        (void)fprintf(f, "%s\n", i + 1 < s->n_layers ? "," : "");
    }
    (void)fprintf(f, "  },\n");
    write_recomputed(f, g, s);
    if (s->norms_by_worker)
        (void)fprintf(f, "  \"batch_norm\": \"worker\",\n");
    (void)fprintf(f, "  \"micro_batches\": %d,\n  \"schedule\": \"%s\",\n", s->micro_batches,
                  s->schedule);
    (void)fprintf(f,
                  "  \"sync\": {\"method\": \"%s\", \"bucket_bytes\": %lld, "
                  "\"workers_per_node\": %d",
                  s->sync, s->bucket_bytes, s->workers_per_node);
    if (s->n_servers) {
        (void)fprintf(f, ", ");
        write_numbers(f, "servers", s->n_servers, s->servers);
    }
    (void)fprintf(f, "}\n}\n");
    assert_int_equal(fclose(f), 0);
    return text;
}
