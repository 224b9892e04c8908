#include "lowered.h"

static struct graph_variant small_variant(const char *model, int64_t batch)
{
    struct graph_variant v = {batch, 3, 32, 32, 10, true, -1};
    if (strcmp(model, "alexnet") == 0 || strcmp(model, "googlenet") == 0) {
        v.height = v.width = 64;
        v.small_form = false;
    }
    return v;
}

static void team_lower(struct team *t, bool training)
{
    t->n = t->plan->n_workers;
    assert_true(t->n <= MAX_WORKERS);
    for (int w = 0; w < t->n; w++) {
        struct program_options options = described_options(t->plan);
        options.training = training;
        options.n_states = training ? 1 : 0;
        options.worker = w;
        assert_ok(program_create(t->graph, &options, &t->programs[w]));
    }
}

bool team_create(struct team *t, const char *model, const char *strategy,
                 const struct plan_request *request, bool training)
{
    struct graph_variant variant = small_variant(model, 8);
    *t = (struct team){0};
    (void)snprintf(t->name, sizeof t->name, "%s %s %d", model, strategy, request->n_workers);
    assert_ok(network_build(model, &variant, &t->graph));
    if (plan_build(strategy, t->graph, request, &t->plan) != STATUS_OK) {
        status_clear();
        graph_destroy(t->graph);
        return false;
    }
    team_lower(t, training);
    return true;
}

void team_create_from(struct team *t, const char *model, const char *plan, bool training)
{
    struct graph_variant variant = small_variant(model, 8);
    *t = (struct team){0};
    (void)snprintf(t->name, sizeof t->name, "%s written plan", model);
    assert_ok(network_build(model, &variant, &t->graph));
    assert_ok(plan_parse(plan, strlen(plan), "plan", t->graph, &t->plan));
    team_lower(t, training);
}

void team_destroy(struct team *t)
{
    for (int w = 0; w < t->n; w++)
        program_destroy(t->programs[w]);
    plan_destroy(t->plan);
    graph_destroy(t->graph);
}

enum status team_check(const struct team *t)
{
    const struct program *all[MAX_WORKERS];
    for (int w = 0; w < t->n; w++)
        all[w] = t->programs[w];
    return verify_programs(all, t->n);
}

/* ---- plans written by hand ---- */

const struct written_plan written[] = {
    /* partial sums, uneven cuts, idle workers */
    {"lenet5", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":3,\"stages\":[{\"workers\":[0,1,2]}],"
               "\"default\":{\"cut\":{\"n\":[1,5,2]}},"
               "\"layers\":{\"conv2\":{\"cut\":{\"c\":3}},\"fc1\":{\"cut\":{\"i\":3}},"
               "\"fc2\":{\"cut\":{\"o\":[50,20,14]}},\"fc3\":{\"cut\":{},\"workers\":[1]}},"
               "\"micro_batches\":1}"},
    /* a pipeline of replicas that computes forward again */
    {"lenet5", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":4,"
               "\"stages\":[{\"workers\":[0,1,2],\"cut\":{\"n\":3}},{\"workers\":[3]}],"
               "\"layers\":{\"fc1\":{\"stage\":1}},\"recompute\":[\"conv1\",\"pool1\"],"
               "\"micro_batches\":3,\"schedule\":\"gpipe\"}"},
    /* parts of parameters with one holder and with two beside a server that keeps the others */
    {"lenet5", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":5,"
               "\"stages\":[{\"workers\":[0,3,2,1],\"cut\":{\"n\":4}}],"
               "\"layers\":{\"fc1\":{\"cut\":{\"n\":2,\"o\":2}},\"fc2\":{\"cut\":{\"i\":3}},"
               "\"fc3\":{\"cut\":{\"o\":4}}},\"micro_batches\":2,"
               "\"sync\":{\"method\":\"server\",\"servers\":[4]}}"},
    /* meshes: samples, channels and rows at once */
    {"resnet18", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":4,"
                 "\"stages\":[{\"workers\":[0,1,2,3]}],"
                 "\"default\":{\"cut\":{\"channels\":2,\"height\":2}},\"micro_batches\":1}"},
    {"resnet18", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":6,"
                 "\"stages\":[{\"workers\":[0,1,2,3],\"cut\":{\"n\":2,\"channels\":2}},"
                 "{\"workers\":[5,4],\"cut\":{\"width\":2}}],"
                 "\"layers\":{\"layer3.0.conv1\":{\"stage\":1},\"layer1.0.conv1\":{\"cut\":{}}},"
                 "\"recompute\":[\"layer1.0.bn1\",\"layer2.1.bn1\",\"layer2.1.conv1\"],"
                 "\"micro_batches\":3}"},
    {"mobilenetv2", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":3,"
                    "\"stages\":[{\"workers\":[2,0,1]}],"
                    "\"default\":{\"cut\":{\"channels\":3}},\"micro_batches\":2}"},
    {"googlenet", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":4,"
                  "\"stages\":[{\"workers\":[0,1,2,3]}],"
                  "\"default\":{\"cut\":{\"height\":2,\"channels\":2}},\"micro_batches\":1}"},
    /* an asynchronous server of workers whose numbers do not ascend */
    {"lenet5", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":4,"
               "\"stages\":[{\"workers\":[2,0,1],\"cut\":{\"n\":3}}],"
               "\"sync\":{\"method\":\"server\",\"servers\":[3],\"asynchronous\":true}}"},
    /* nothing is left for the server */
    {"lenet5", "{\"cleave_plan\":1,\"name\":\"p\",\"workers\":3,\"stages\":[{\"workers\":[0,2],"
               "\"cut\":{\"channels\":2}}],\"sync\":{\"method\":\"server\",\"servers\":[1]}}"},
};

/* ---- flattens that have no instruction ---- */

/* A tensor that is flattened twice, read by others in both shapes, and whose gradient is the sum of
 * the gradients of all these readers:
 *
 *     conv1 - relu - drop --- conv2 --- sum --- flat1 --- fc1 --- concat --- fc2
 *                       \______________/   \      \_______________/
 *                                           \---- flat2 ___________/                            */
static struct graph *build_flattened(void)
{
    struct graph_variant variant = {8, 3, 8, 6, 10, true, -1};
    struct graph_window window = {3, 1, 1};
    graph_builder *b;
    struct graph *g;
    assert_ok(graph_builder_create("flattened", &variant, &b));
    int x = graph_add_conv(b, "conv1", 0, 4, window, 1, true);
    x = graph_add_simple(b, "relu", OP_RELU, x);
    x = graph_add_dropout(b, "drop", x, 0.5);
    int conv2 = graph_add_conv(b, "conv2", x, 4, window, 1, true);
    int sum = graph_add_sum(b, "sum", conv2, x);
    int flat1 = graph_add_simple(b, "flat1", OP_FLATTEN, sum);
    int flat2 = graph_add_simple(b, "flat2", OP_FLATTEN, sum);
    int fc1 = graph_add_linear(b, "fc1", flat1, 5);
    x = graph_add_concat(b, "concat", 3, (int[]){flat1, fc1, flat2});
    x = graph_add_linear(b, "fc2", x, 10);
    assert_ok(graph_builder_finish(b, x, &g));
    return g;
}

static const char *const flattened[N_FLATTENED] = {
    "{\"cleave_plan\":1,\"workers\":1,\"stages\":[{\"workers\":[0]}]}",
    "{\"cleave_plan\":1,\"workers\":2,\"stages\":[{\"workers\":[0]},{\"workers\":[1]}],"
    "\"layers\":{\"flat1\":{\"stage\":1},\"flat2\":{\"stage\":1}},\"micro_batches\":2}",
    "{\"cleave_plan\":1,\"workers\":3,\"stages\":[{\"workers\":[0,1,2]}],\"layers\":{"
    "\"conv2\":{\"cut\":{\"p\":3}},\"flat1\":{\"cut\":{\"c\":[1,3]}},"
    "\"flat2\":{\"cut\":{\"c\":2,\"n\":1},\"workers\":[2,0]},\"fc1\":{\"cut\":{\"i\":[50,100,42]}},"
    "\"fc2\":{\"cut\":{\"n\":3}}}}"};

void team_create_flattened(struct team *t, int i, bool training)
{
    *t = (struct team){.graph = build_flattened()};
    (void)snprintf(t->name, sizeof t->name, "flattened, plan %d", i);
    assert_ok(plan_parse(flattened[i], strlen(flattened[i]), "plan", t->graph, &t->plan));
    team_lower(t, training);
}
