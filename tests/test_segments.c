/* Recomputation by segments: the layers that are kept, and what a step then takes. */
#include "described.h"
#include "plans.h"

static struct plan *make_segments(const struct graph *g, int n_segments)
{
    const struct plan_request request = {.n_workers = 1, .segments = n_segments};
    struct plan *p;
    assert_ok(plan_build("serial", g, &request, &p));
    return p;
}

/* The names of the layers that forward keeps, in their order. */
static char *kept_text(const struct plan *p, const struct graph *g, char text[1024])
{
    size_t n = 0;
    text[0] = '\0';
    for (int i = 1; i < g->n_nodes; i++)
        if (!p->layers[i].recompute)
            n += (size_t)snprintf(text + n, 1024 - n, "%s ", g->nodes[i].name);
    return text;
}

static struct graph *large_graph(const char *model, int64_t batch)
{
    struct graph_variant v = {batch, 3, 224, 224, 1000, false, -1};
    struct graph *g;
    assert_ok(network_build(model, &v, &g));
    return g;
}

/* A segment ends behind a residual block, with the activation that follows its sum. */
static void test_blocks_are_whole(void **state)
{
    (void)state;
    struct graph *g = large_graph("resnet18", 2);
    char text[1024];
    struct plan *p = make_segments(g, 1);
    assert_string_equal(kept_text(p, g, text), "loss ");
    plan_destroy(p);
    p = make_segments(g, 2);
    assert_string_equal(kept_text(p, g, text), "layer1.0.relu loss ");
    plan_destroy(p);
    p = make_segments(g, PLAN_MAX_SEGMENTS);
    for (int i = 1; i < g->n_nodes; i++) {
        const char *name = g->nodes[i].name;
        bool inside = strncmp(name, "layer", 5) == 0 && !strstr(name, ".relu");
        inside |= strstr(name, ".relu1") != NULL;
        assert_that(!inside || p->layers[i].recompute, "%s is kept", name);
    }
    plan_destroy(p);
    graph_destroy(g);
}

/* As in a file, and written back as the layers that it means. */
static void test_in_a_file(void **state)
{
    (void)state;
    struct graph *g = large_graph("resnet18", 2);
    static const struct {
        const char *json;
        int n_segments;
    } cases[] = {{"3", 3}, {"\"auto\"", PLAN_SEGMENTS_AUTO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        int n = snprintf(text, sizeof text,
                         "{\"cleave_plan\":1,\"name\":\"serial\",\"workers\":1,"
                         "\"stages\":[{\"workers\":[0]}],\"recompute\":%s}",
                         cases[i].json);
        struct plan *read, *made = make_segments(g, cases[i].n_segments);
        assert_ok(plan_parse(text, (size_t)n, "f", g, &read));
        assert_same_plan(read, made, g);
        plan_destroy(read);
        plan_destroy(made);
    }
    static const char *const wrong[] = {"0", "1.5", "\"all\"", "true"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[256];
        int n = snprintf(text, sizeof text,
                         "{\"cleave_plan\":1,\"workers\":1,"
                         "\"stages\":[{\"workers\":[0]}],\"recompute\":%s}",
                         wrong[i]);
        struct plan *read;
        assert_int_equal(plan_parse(text, (size_t)n, "f", g, &read), STATUS_FAILED);
        assert_that(strstr(status_message(), "recompute"), "%s", status_message());
        status_clear();
    }
    graph_destroy(g);
}

static int64_t activation_bytes(const struct graph *g, struct plan *p)
{
    struct program_options options = described_options(p);
    struct program *program;
    options.training = true;
    options.n_states = 1;
    assert_ok(program_create(g, &options, &program));
    int64_t n_bytes = program->slab_bytes[BUFFER_ACTIVATIONS];
    program_destroy(program);
    plan_destroy(p);
    return n_bytes;
}

/* On one worker, whose backward follows its forward at once. */
static void test_one_worker_saves_memory(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double most; /* of what keeping all takes */
    } cases[] = {{"resnet152", 0.25}, {"inceptionv3", 0.4}, {"mobilenetv2", 0.45}, {"vgg16", 0.8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph *g = large_graph(cases[i].model, 4);
        double all = (double)activation_bytes(g, make_segments(g, 0));
        double segments = (double)activation_bytes(g, make_segments(g, PLAN_SEGMENTS_AUTO));
        assert_that(segments < cases[i].most * all, "%s: %.0f of %.0f bytes", cases[i].model,
                    segments, all);
        graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_whole),
        cmocka_unit_test(test_in_a_file),
        cmocka_unit_test_setup_teardown(test_one_worker_saves_memory, described_open,
                                        described_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
