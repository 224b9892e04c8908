#include "fuzz.h"

#include "model/graph.h"
#include "plan/plan.h"

/* Two convolutions, one of them grouped, and a linear layer: every kind of loop. */
static struct graph *build(void)
{
    struct graph_variant v = {
        .batch = 4, .channels = 4, .height = 8, .width = 8, .classes = 10, .drop_probability = -1};
    graph_builder *b;
    struct graph *g;
    enum status st = graph_builder_create("tiny", &v, &b);
    assert(st == STATUS_OK);
    int x = graph_add_conv(b, "conv1", 0, 8, (struct graph_window){3, 1, 1}, 1, true);
    x = graph_add_batch_norm(b, "bn", x, 1e-5);
    x = graph_add_conv(b, "conv2", x, 8, (struct graph_window){3, 2, 1}, 2, true);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_linear(b, "fc", x, v.classes);
    st = graph_builder_finish(b, x, &g);
    assert(st == STATUS_OK);
    return g;
}

/* An accepted plan can run, and comes back from its own text. */
static void use(const struct plan *p, const struct graph *g)
{
    struct plan *back = NULL;
    char *text = NULL;
    enum status st = plan_check(p, g);
    assert(st == STATUS_OK);
    st = plan_print(p, g, &text);
    assert(st == STATUS_OK);
    st = plan_parse(text, strlen(text), "again", g, &back);
    assert(st == STATUS_OK);
    for (int i = 1; i < g->n_nodes; i++) {
        size_t n_bytes = (size_t)p->layers[i].n_pieces * sizeof *p->layers[i].workers;
        assert(back->layers[i].n_pieces == p->layers[i].n_pieces);
        assert(!memcmp(back->layers[i].workers, p->layers[i].workers, n_bytes));
    }
    plan_destroy(back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static struct graph *g; /* lives as long as the program */
    struct plan *p = NULL;
    if (!g)
        g = build();
    if (plan_parse((const char *)bytes, n_bytes, "input", g, &p) == STATUS_OK)
        use(p, g);
    else
        assert(!strncmp(status_message(), "input:", 6));
    status_clear();
    plan_destroy(p);
    return 0;
}

int fuzz_seeds(struct file_bytes seeds[FUZZ_SEEDS_MAX])
{
    seeds[0] = fuzz_text("{\"cleave_plan\": 1, \"workers\": 1, \"stages\": [{\"workers\": [0]}]}");
    seeds[1] =
        fuzz_text("{\"cleave_plan\": 1, \"name\": \"a\", \"model\": \"tiny\", \"workers\": 4,"
                  "\n\"stages\": [{\"workers\": [0, 1, 2, 3]}],\n\"default\": {\"cut\": "
                  "{\"n\": 2, \"channels\": 2}}, \"layers\": {\"fc\": {\"cut\": {\"o\": [3, "
                  "7]}, \"workers\": [2, 0]}, \"conv1\": {\"cut\": {\"c\": 2, \"r\": 2}}},"
                  "\"recompute\": [\"bn\"], \"micro_batches\": 2}");
    seeds[2] = fuzz_text("{\"cleave_plan\": 1, \"workers\": 3, \"stages\": [{\"workers\": [0, 2],"
                         "\"cut\": {\"height\": 2}}, {\"workers\": [1]}], \"layers\": {\"flatten\":"
                         "{\"stage\": 1}}, \"schedule\": \"pipedream\", \"window\": 6,"
                         "\"sync\": {\"method\": \"tree\", \"bucket_bytes\": 1000}}");
    seeds[3] = fuzz_text("{\"cleave_plan\": 1, \"workers\": 3, \"stages\": [{\"workers\": [0, 1]}],"
                         "\"default\": {\"cut\": {\"n\": [1, 3]}}, \"sync\": {\"method\": "
                         "\"server\", \"servers\": [2], \"asynchronous\": true}}");
    return 4;
}
