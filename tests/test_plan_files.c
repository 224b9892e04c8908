/* Reading plan files: defaults are resolved, and every mistake is refused with its line.
 */
#include "odd_axes.h"
#include "plans.h"

/* ---- reading ---- */

static struct plan *parse(const struct graph *g, const char *text)
{
    struct plan *p;
    assert_ok(plan_parse(text, strlen(text), "text", g, &p));
    return p;
}

#define HEAD "{\"cleave_plan\": 1, \"workers\": 4,"
#define ONE "\"stages\": [{\"workers\": [0, 1, 2, 3]}]"

static void test_defaults_are_resolved(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p = parse(g, HEAD ONE ", \"default\": {\"cut\": {\"channels\": 4}}}");
    assert_string_equal(p->name, "unnamed");
    assert_string_equal(cuts_text(p, g, "conv1"), "k 4");
    assert_string_equal(cuts_text(p, g, "relu1"), "c 4");
    assert_string_equal(cuts_text(p, g, "fc1"), "o 4");
    assert_string_equal(cuts_text(p, g, "loss"), "");
    assert_int_equal(p->layers[find_node(g, "loss")].n_pieces, 1);
    assert_int_equal(p->layers[0].n_pieces, 0);
    plan_destroy(p);

    /* pool2 is 5 x 5: it has room for 4 rows; fc1 has none, and no height */
    p = parse(g, HEAD ONE ", \"default\": {\"cut\": {\"height\": 4, \"q\": 1}},"
                          "\"layers\": {\"fc1\": {\"workers\": [2]},"
                          "\"fc2\": {\"cut\": {\"o\": [40, 44]}, \"workers\": [3, 1]}}}");
    assert_string_equal(cuts_text(p, g, "conv1"), "p 4");
    assert_string_equal(cuts_text(p, g, "relu2"), "h 4");
    assert_string_equal(cuts_text(p, g, "pool2"), "p 4");
    assert_string_equal(cuts_text(p, g, "flatten"), "");
    assert_int_equal(p->layers[find_node(g, "fc1")].workers[0], 2);
    const struct plan_layer *fc2 = &p->layers[find_node(g, "fc2")];
    assert_int_equal(fc2->cut[0].sizes[1], 44);
    assert_int_equal(fc2->workers[0], 3);
    check_round_trip(p, g);
    plan_destroy(p);

    /* too many parts for the loop: dropped */
    p = parse(g, "{\"cleave_plan\": 1, \"workers\": 7, \"stages\": [{\"workers\": "
                 "[6, 5, 4, 3, 2, 1, 0]}], \"default\": {\"cut\": {\"k\": 7, \"o\": [1, 1]}},"
                 "\"layers\": {\"fc1\": {\"cut\": {}}, \"fc2\": {\"cut\": {}}, \"fc3\": {\"cut\": "
                 "{\"n\": [2, 1]}}}}");
    assert_string_equal(cuts_text(p, g, "conv1"), "");
    assert_string_equal(cuts_text(p, g, "conv2"), "k 7");
    assert_int_equal(p->layers[find_node(g, "fc3")].workers[1], 5);
    check_round_trip(p, g);
    plan_destroy(p);
    graph_destroy(g);
}

/* What a plan was made for goes into its file and comes back; without it files are as before. */
static void test_made_for(void **state)
{
    (void)state;
    struct graph *g = build(0), *larger;
    char digest[PLAN_DIGEST_BYTES], other[PLAN_DIGEST_BYTES], path[PATH_MAX], *text;
    struct plan *p = parse(g, HEAD ONE ", \"model\": \"lenet5\"}"), *back;
    struct plan_made_for made = {.data = "synthetic:1x28x28/10",
                                 .precision = "float",
                                 .optimizer = "adamw",
                                 .machine = "a \"file\".json",
                                 .machine_digest = "0011223344556677",
                                 .calibrate = 184.25,
                                 .calibrate_batch = 32};
    assert_string_equal(p->made_for.model, "lenet5"); /* all that version 1 says */
    assert_null(p->made_for.data);
    assert_ok(plan_set_made_for(p, g, &made));
    assert_ok(plan_write(p, g, test_path(path, "made.json")));
    assert_ok(plan_read(path, g, &back));
    assert_ok(plan_read_made_for(path, back->memory, &made));
    assert_string_equal(made.model, "lenet5");
    assert_string_equal(made.data, "synthetic:1x28x28/10");
    assert_true(shape_equal(&made.input, &((struct shape){3, {1, 28, 28}})));
    assert_true(made.classes == 10 && made.batch == g->batch);
    assert_string_equal(made.precision, "float");
    assert_string_equal(made.optimizer, "adamw");
    assert_string_equal(made.machine, "a \"file\".json");
    assert_string_equal(made.machine_digest, "0011223344556677");
    assert_true(made.calibrate == 184.25 && made.calibrate_batch == 32);
    assert_string_equal(made.digest, plan_digest(g, digest));
    assert_string_equal(back->made_for.digest, digest);
    plan_destroy(p);
    check_round_trip(back, g);

    /* another batch has the same layers, other images have not */
    assert_ok(graph_resize(g, 2 * g->batch, &larger));
    assert_string_equal(plan_digest(larger, other), digest);
    assert_ok(plan_print(back, g, &text));
    assert_ok(plan_parse(text, strlen(text), "larger", larger, &p));
    plan_destroy(p);
    graph_destroy(larger);
    const struct graph_variant wide = {
        .batch = 8, .channels = 3, .height = 32, .width = 32, .classes = 10, .small_form = true};
    assert_ok(network_build("LeNet5", &wide, &larger));
    assert_string_equal(larger->name, "lenet5");
    assert_true(strcmp(plan_digest(larger, other), digest) != 0);
    assert_ok(plan_parse(text, strlen(text), "wide", larger, &p)); /* other data were asked for */
    plan_destroy(p);
    graph_destroy(larger);
    free(text);
    plan_destroy(back);
    graph_destroy(g);
}

/* Whatever the rank of the input, and wherever the batch is in it. */
static void test_made_for_odd_axes(void **state)
{
    (void)state;
    struct graph *g = odd_graph(8), *larger = odd_graph(16), *longer = odd_graph(8);
    char digest[PLAN_DIGEST_BYTES], other[PLAN_DIGEST_BYTES], path[PATH_MAX];
    struct plan *p, *back;
    assert_string_equal(plan_digest(larger, other), plan_digest(g, digest));
    for (int i = 0; i < longer->n_nodes; i++)
        longer->nodes[i].op = op_resize(&longer->nodes[i].op, USE_TOKEN, ODD_TOKENS + 1);
    assert_true(strcmp(plan_digest(longer, other), digest) != 0);
    assert_ok(plan_build("serial", g, &(struct plan_request){.n_workers = 1}, &p));
    assert_ok(plan_set_made_for(p, g, &(struct plan_made_for){.data = "tokens"}));
    assert_ok(plan_write(p, g, test_path(path, "odd.json")));
    assert_ok(plan_read(path, g, &back));
    const struct shape sample = {4, {ODD_TOKENS, ODD_CHANNELS, ODD_ROWS, ODD_COLUMNS}};
    assert_true(shape_equal(&back->made_for.input, &sample));
    plan_destroy(back);
    assert_ok(plan_read(path, larger, &back));
    plan_destroy(back);
    assert_ok(plan_read(path, longer, &back)); /* other data were asked for */
    plan_destroy(back);
    plan_destroy(p);

    /* lists of other lengths come back as they were */
    static const char *const lists[] = {"[768]", "[12, 64]", "[2, 3, 4, 5, 6, 7]"};
    for (int i = 0; i < 3; i++) {
        char text[256];
        char *printed;
        (void)snprintf(text, sizeof text,
                       "{\"cleave_plan\": 2, \"made_for\": {\"model\": \"odd\", \"input\": %s},"
                       "\"workers\": 1, \"stages\": [{\"workers\": [0]}]}",
                       lists[i]);
        p = parse(g, text);
        assert_ok(plan_print(p, g, &printed));
        assert_non_null(strstr(printed, lists[i]));
        free(printed);
        plan_destroy(p);
    }
    graph_destroy(longer);
    graph_destroy(larger);
    graph_destroy(g);
}

static void test_stages_are_resolved(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p =
        parse(g, HEAD "\"stages\": [{\"workers\": [0, 1, 2], \"cut\": {\"n\": 3}}, "
                      "{\"workers\": [3]}], \"default\": {\"cut\": {\"n\": 1}},"
                      "\"layers\": {\"conv2\": {\"stage\": 1}}, \"schedule\": \"pipedream\","
                      "\"name\": \"a \\\"b\\\" \\u00e4\", \"recompute\": [\"relu1\"]}");
    assert_string_equal(p->name, "a \"b\" \xc3\xa4");
    assert_int_equal(p->layers[find_node(g, "pool1")].stage, 0);
    assert_int_equal(p->layers[find_node(g, "pool1")].n_pieces, 3);
    assert_int_equal(p->layers[find_node(g, "conv2")].stage, 1);
    assert_int_equal(p->layers[find_node(g, "loss")].stage, 1);
    assert_int_equal(p->layers[find_node(g, "loss")].workers[0], 3);
    assert_true(p->layers[find_node(g, "relu1")].recompute);
    assert_false(p->layers[find_node(g, "relu2")].recompute);
    assert_int_equal(p->window, 8);
    check_round_trip(p, g);
    plan_destroy(p);
    graph_destroy(g);

    /* a branch whose input is in stage 0, but which comes after a layer written into stage 1 */
    g = build(5);
    p = parse(g, HEAD "\"stages\": [{\"workers\": [0, 1]}, {\"workers\": [2, 3]}],"
                      "\"layers\": {\"inception3a.branch1.conv\": {\"stage\": 1}}}");
    assert_int_equal(p->layers[find_node(g, "maxpool2")].stage, 0);
    assert_int_equal(p->layers[find_node(g, "inception3a.branch2.0.conv")].stage, 1);
    plan_destroy(p);
    graph_destroy(g);
}

/* ---- mistakes ---- */

struct mistake {
    const char *text;    /* of the plan */
    const char *message; /* begins with the place */
};

static void check_mistakes(const struct graph *g, const struct mistake *mistakes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct plan *p;
        enum status st = plan_parse(mistakes[i].text, strlen(mistakes[i].text), "f", g, &p);
        assert_that(st == STATUS_FAILED, "%s: status %d", mistakes[i].text, (int)st);
        const char *expected = mistakes[i].message;
        assert_that(!strncmp(status_message(), expected, strlen(expected)),
                    "%s\n  gives    %s\n  expected %s", mistakes[i].text, status_message(),
                    expected);
        status_clear();
    }
}

#define CHECK_MISTAKES(g, mistakes) \
    check_mistakes(g, mistakes, sizeof(mistakes) / sizeof *(mistakes))

/* A plan with these layers in line 2. */
#define LAYERS(layers) HEAD ONE ",\n\"layers\": {" layers "}}"
/* A plan with these stages from line 2 on. */
#define STAGES(stages) HEAD "\n\"stages\": [" stages "]}"
#define WITH(members) HEAD ONE ",\n" members "}"

static void test_mistakes_in_the_top(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {"", "f:1: column"},
        {"{\n\"cleave_plan\": 1,\n\"workers\" 4}", "f:3: column 11: ':' expected near '4'"},
        {"{\"cleave_plan\": 1,\n\"workers\": 1,\n\"workers\": 2}", "f:3: column 9: duplicate"},
        {"[1]", "f:1: a plan must be an object"},
        {"\n{}", "f:2: this is no plan"},
        {"{\n\"cleave_plan\": 3, \"new\": 3}",
         "f:2: the plan is of another version: this program reads versions 1 to 2"},
        {WITH("\"model\": \"lenet5\", \"made_for\": {\"model\": \"lenet5\"}"),
         "f:2: \"made_for\" names the model: leave one of both out"},
        {WITH("\"made_for\": {\"modle\": \"lenet5\"}"),
         "f:2: unknown key 'modle': did you mean 'model'?"},
        {WITH("\"made_for\": {\"input\": []}"), "f:2: made_for/input must be a list of 1 to 6"},
        {WITH("\"made_for\": {\"input\": [1, 2, 3, 4, 5, 6, 7]}"),
         "f:2: made_for/input must be a list of 1 to 6"},
        {"{\n\"cleave_plan\": \"1\"}", "f:2: the plan is of another version"},
        {"{\"cleave_plan\": 1,\n\"worker\": 2}",
         "f:2: unknown key 'worker': did you mean 'workers'?"},
        {"{\n\"cleave_plan\": 1}", "f:2: the plan does not say its \"workers\""},
        {"{\"cleave_plan\": 1, \"workers\": 1}", "f:1: the plan does not say its \"stages\""},
        {"{\"cleave_plan\": 1,\n\"workers\": 1.5, \"stages\": []}",
         "f:2: workers must be a whole number from 1 to 4096"},
        {"{\"cleave_plan\": 1,\n\"workers\": 5000, \"stages\": []}",
         "f:2: workers must be a whole number from 1 to 4096"},
        {WITH("\"name\": 1"), "f:2: name must be text"},
        {WITH("\"layers\": []"), "f:2: layers must be an object"},
        {WITH("\"default\": {\"cuts\": {}}"), "f:2: unknown key 'cuts': did you mean 'cut'?"},
        {WITH("\"default\": {\n\"cut\": {\n\"height\": 1, \"z\": 2}}"),
         "f:4: unknown loop 'z': did you mean 'n'?"},
        {WITH("\"default\": {\n\"cut\": {\n\"k\": [3, 5]}}"),
         "f:4: layer 'conv1': the sizes of loop k sum to 8, but it has 6 iterations"},
        {WITH("\"default\": {\n\"cut\": {\"k\": 2,\n\"channels\": 2}}"),
         "f:4: layer 'conv1': 'k' and 'channels' cut the same loop"},
        {WITH("\"default\": {\"cut\":\n{\"n\": 8}}"),
         "f:2: layer 'conv1' is cut into 8 pieces, but stage 0 has 4 workers"},
        {WITH("\"micro_batches\": 9"),
         "f:2: 9 micro-batches: a batch of 8 can be split into 1 to 8"},
        {WITH("\"micro_batches\": 0"), "f:2: micro_batches must be a whole number from 1"},
        {WITH("\"schedule\": \"1f1f\""), "f:2: unknown schedule '1f1f': did you mean '1f1b'?"},
        {WITH("\"window\": 3"), "f:2: only the schedule pipedream has a window"},
        {WITH("\"schedule\": \"pipedream\",\n\"window\": 2147483647"),
         "f:3: a window of 2147483647 steps: 1 to 65536 are allowed"},
        {WITH("\"schedule\": \"pipedream\",\n\"micro_batches\": 2"),
         "f:3: the schedule pipedream has one micro-batch a step, not 2"},
        {WITH("\"recompute\": [\n\"relu1\",\n\"rleu2\"]"),
         "f:4: unknown layer 'rleu2': did you mean 'relu2'?"},
        {WITH("\"recompute\": [\n\"relu1\",\n7]"), "f:4: recompute/1 must be text"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    static const char other[] = "{\"cleave_plan\": 1,\n\"model\": \"alexnet\"}";
    struct plan *p; /* a sound file, but of another network */
    assert_fails(plan_parse(other, strlen(other), "f", g, &p), STATUS_USAGE,
                 "f:2: the plan is for alexnet, not for lenet5");
    const char *const changed =
        "{\"cleave_plan\": 2, \"made_for\": {\"model\": \"lenet5\", \"input\": [1, 28, 28],\n"
        "\"classes\": 10, \"digest\": \"0123456789abcdef\"}}";
    assert_fails(plan_parse(changed, strlen(changed), "f", g, &p), STATUS_USAGE,
                 "f:2: the layers of this lenet5 are not those that the plan was made for: ");
    const char *const elsewhere =
        "{\"cleave_plan\": 2, \"made_for\": {\"model\": \"lenet5\", \"input\": [3, 32, 32],\n"
        "\"classes\": 10}, \"layers\": {\n\"avgpool\": {}}}";
    assert_fails(plan_parse(elsewhere, strlen(elsewhere), "f", g, &p), STATUS_USAGE,
                 "f:3: unknown layer 'avgpool': for these data lenet5 has other layers");
    graph_destroy(g);
}

static void test_mistakes_in_stages(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {HEAD "\n\"stages\": {}}", "f:2: stages must be a list of 1 to 4"},
        {STAGES(""), "f:2: stages must be a list of 1 to 4"},
        {STAGES("\n7"), "f:3: stages/0 must be an object"},
        {STAGES("\n{}"), "f:3: stage 0 does not say its \"workers\""},
        {STAGES("\n{\"worker\": [0]}"), "f:3: unknown key 'worker': did you mean 'workers'?"},
        {STAGES("\n{\"workers\":\n[]}"), "f:3: stages/0/workers must be a list of 1 to 4096"},
        {STAGES("{\"workers\":\n[0,\n\"1\"]}"), "f:4: stages/0/workers/1 must be a whole number"},
        {STAGES("\n{\"workers\": [0, 1, 2, 4]}"),
         "f:3: worker 4 is out of range: the plan has workers 0 to 3"},
        {STAGES("\n{\"workers\": [0, 1, 2]},\n{\"workers\": [3, 1]}"),
         "f:4: worker 1 is used twice: it is in stage 0 already"},
        {STAGES("{\"workers\": [0, 1, 2]}"), "f:2: worker 3 is in no stage"},
        {STAGES("{\"workers\": [0, 1, 2]},\n{\"workers\": [3]}"), "f:3: stage 1 has no layer"},
        {STAGES("{\"workers\": [0, 1, 2, 3],\n\"cut\": {\"chanels\": 3}}"),
         "f:3: unknown loop 'chanels': did you mean 'channels'?"},
        {STAGES("{\"workers\": [0, 1, 2, 3],\n\"cut\": {\"n\": 2,\n\"k\": 3}}"),
         "f:3: layer 'conv1' is cut into 6 pieces, but stage 0 has 4 workers"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}, {\"workers\": [3]}], \"layers\": {\n"
              "\"conv2\": {\"stage\": 1},\n\"pool2\": {\n\"stage\": 0}}}",
         "f:4: layer 'pool2' is in stage 0, but its input 'relu2' is in the later stage 1"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}, {\"workers\": [3]}], \"layers\": {\n"
              "\"conv2\": {\"stage\": 2}}}",
         "f:2: layer 'conv2': there is no stage 2 (stages: 0 to 1)"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    graph_destroy(g);
}

static void test_mistakes_in_layers(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {LAYERS("\n\"cnv1\": {}"), "f:3: unknown layer 'cnv1': did you mean 'conv1'?"},
        {LAYERS("\"input\": {}"), "f:2: unknown layer 'input'"},
        {LAYERS("\n\"conv1\": 4"), "f:3: layers/conv1 must be an object"},
        {LAYERS("\"conv1\": {\n\"workrs\": [1]}"),
         "f:3: unknown key 'workrs': did you mean 'workers'?"},
        {LAYERS("\"conv1\": {\n\"cut\": 2}"), "f:3: layers/conv1/cut must be an object"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"o\": 2}}"),
         "f:3: unknown loop of layer 'conv1' 'o': did you mean 'n'? (allowed: n, g, k"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"channels\": 2}}"),
         "f:3: unknown loop of layer 'conv1' 'channels'"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": \"2\"}}"),
         "f:3: layers/conv1/cut/k must be a whole number from 1 to 4096"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": 0}}"), "f:3: layers/conv1/cut/k must be"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": [6]}}"),
         "f:3: layers/conv1/cut/k must be a list of 2 to 4096"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": [3,\n0]}}"),
         "f:4: layers/conv1/cut/k/1 must be a whole number from 1"},
        {LAYERS("\"conv1\": {\"cut\": {\"n\": 2,\n\"k\": 7}}"),
         "f:3: layer 'conv1': loop k has 6 iterations, too few for 7 parts"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"k\": [3, 2]}}"),
         "f:3: layer 'conv1': the sizes of loop k sum to 5, but it has 6 iterations"},
        {LAYERS("\"conv1\": {\"cut\": {\n\"n\": [1000000000, 1]}}"),
         "f:3: layer 'conv1': the sizes of loop n sum to over"},
        {LAYERS("\"pool1\": {\"cut\": {\n\"r\": 2}}"),
         "f:3: layer 'pool1': loop r of this max_pool may not be cut"},
        {LAYERS("\"loss\": {\"cut\": {\n\"k\": 2}}"),
         "f:3: layer 'loss': loop k of this softmax_cross_entropy may not be cut"},
        {LAYERS("\"conv1\": {\n\"cut\": {\n\"n\": 2,\n\"k\": 3}}"),
         "f:3: layer 'conv1' is cut into 6 pieces, but stage 0 has 4 workers"},
        {LAYERS("\"fc1\": {\n\"cut\": {\"n\": 4096, \"o\": 64, \"i\": 256}}"),
         "f:3: layer 'fc1' is cut into at least"},
        {LAYERS("\"conv1\": {\"cut\": {\"k\": 2},\n\"workers\": [0, 1, 2]}"),
         "f:3: layer 'conv1' names 3 workers, but is cut into 2 pieces"},
        {LAYERS("\"conv1\": {\"cut\": {\"k\": 2},\n\"workers\": [1, 1]}"),
         "f:3: layer 'conv1': worker 1 is used twice"},
        {LAYERS("\"conv1\": {\"cut\": {\"k\": 2},\n\"workers\": [1, 4]}"),
         "f:3: layer 'conv1': worker 4 is not in the layer's stage 0"},
        {LAYERS("\"conv1\": {\n\"stage\": -1}"), "f:3: layers/conv1/stage must be a whole number"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    graph_destroy(g);
}

#define SYNC(sync) HEAD ONE ",\n\"sync\": {" sync "}}"
#define SERVED(layers)                                                                             \
    HEAD "\"stages\": [{\"workers\": [0, 1, 2], \"cut\": {\"n\": 3}}],\n\"layers\": {" layers "}," \
         "\"sync\": {\"method\": \"server\", \"servers\": [3],\n\"asynchronous\": true}}"

static void test_mistakes_in_sync(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {SYNC("\n\"methd\": \"ring\""), "f:3: unknown key 'methd': did you mean 'method'?"},
        {SYNC("\n\"method\": \"rign\""), "f:3: unknown method 'rign': did you mean 'ring'?"},
        {SYNC("\n\"bucket_bytes\": 0"), "f:3: sync/bucket_bytes must be a whole number from 1"},
        {SYNC("\n\"workers_per_node\": true"), "f:3: sync/workers_per_node must be a whole number"},
        {SYNC("\n\"asynchronous\": 1"), "f:3: sync/asynchronous must be true or false"},
        {SYNC("\n\"asynchronous\": true"), "f:3: asynchronous goes with the method server"},
        {SYNC("\n\"method\": \"server\""), "f:3: the method server needs workers"},
        {SYNC("\"method\": \"server\",\n\"servers\": [3]"),
         "f:3: worker 3 cannot be a server: it is in stage 0"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}], \"sync\": {\n\"servers\": [3]}}",
         "f:2: servers go with the method server, not ring"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2]}], \"sync\": {\"method\": \"server\",\n"
              "\"servers\": [3]},\n\"schedule\": \"pipedream\"}",
         "f:3: the schedule pipedream does not go with a server"},
        {SERVED("\"fc1\": {\n\"cut\": {\"o\": 3}}"), "f:3: layer 'fc1': with an asynchronous"},
        {SERVED("\"fc1\": {\n\"cut\": {\"n\": 2}}"), "f:3: layer 'fc1': with an asynchronous"},
        {SERVED("\"fc1\": {\n\"cut\": {\"n\": [1, 1, 2]}}"),
         "f:3: layer 'fc1': with an asynchronous server every worker has the same samples"},
        {SERVED("\"fc1\": {\"cut\": {\"n\": 3},\n\"workers\": [1, 0, 2]}"),
         "f:3: layer 'fc1': with an asynchronous server every worker has the same samples"},
        {HEAD "\"stages\": [{\"workers\": [0, 1]}, {\"workers\": [2]}], \"layers\": {\"fc1\": "
              "{\"stage\": 1}}, \"sync\": {\"method\": \"server\", \"servers\": [3],\n"
              "\"asynchronous\": true}}",
         "f:2: an asynchronous server needs one stage, not 2"},
        {HEAD "\"stages\": [{\"workers\": [0, 1, 2], \"cut\": {\"n\": 3}}],\n\"micro_batches\": 2, "
              "\"sync\": {\"method\": \"server\", \"servers\": [3],\n\"asynchronous\": true}}",
         "f:2: an asynchronous server goes with one micro-batch a step, not 2"},
    };
    struct graph *g = build(0);
    CHECK_MISTAKES(g, mistakes);
    struct plan *p = parse(g, SERVED(""));
    assert_true(p->asynchronous);
    plan_destroy(p);
    graph_destroy(g);
}

/* A grouped convolution, a norm over channels, and a convolution whose padding is wider than its
 * window. */
static struct graph *build_padded(void)
{
    struct graph_variant v = {
        .batch = 2, .channels = 4, .height = 4, .width = 4, .classes = 3, .drop_probability = -1};
    graph_builder *b;
    struct graph *g;
    assert_ok(graph_builder_create("padded", &v, &b));
    int x = graph_add_conv(b, "grouped", 0, 8, (struct graph_window){3, 1, 1}, 2, true);
    x = graph_add_simple(b, "relu", OP_RELU, x);
    struct op_attrs lrn = {.lrn_size = 3, .lrn_alpha = 1e-4, .lrn_beta = 0.75, .lrn_k = 1};
    x = graph_add(b, "lrn", OP_LOCAL_RESPONSE_NORM, &lrn, 1, &x);
    x = graph_add_simple(b, "tanh", OP_TANH, x);
    x = graph_add_conv(b, "wide", x, 2, (struct graph_window){2, 1, 3}, 1, true);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_linear(b, "fc", x, 3);
    assert_ok(graph_builder_finish(b, x, &g));
    return g;
}

static void test_padding_and_groups(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {LAYERS("\"wide\": {\n\"cut\": {\"p\": [2, 3, 4]}}"),
         "f:3: layer 'wide': piece 0 would read nothing but padding"},
        {LAYERS("\"grouped\": {\"cut\": {\n\"k\": 2}}"),
         "f:3: layer 'grouped': loop k of this conv2d may not be cut"},
    };
    struct graph *g = build_padded();
    CHECK_MISTAKES(g, mistakes);
    struct plan *p = parse(g, HEAD ONE ", \"default\": {\"cut\": {\"channels\": 2}}}");
    assert_string_equal(cuts_text(p, g, "grouped"), "g 2");
    plan_destroy(p);
    /* 9 rows, of which the first 2 and the last 2 see no image: 4 parts would be too many */
    p = make(g, "spatial", 5);
    assert_string_equal(cuts_text(p, g, "grouped"), "p 4");
    assert_string_equal(cuts_text(p, g, "wide"), "p 3");
    plan_destroy(p);
    p = make(g, "model", 4);
    assert_string_equal(cuts_text(p, g, "grouped"), "g 2");
    assert_string_equal(cuts_text(p, g, "relu"), "c 2"); /* as its input is cut, not c 4 */
    assert_string_equal(cuts_text(p, g, "lrn"), "n 4");
    assert_string_equal(cuts_text(p, g, "tanh"), "n 4");
    assert_string_equal(cuts_text(p, g, "wide"), "k 2");
    assert_string_equal(cuts_text(p, g, "flatten"), "c 2");
    plan_destroy(p);
    graph_destroy(g);
}

/* plan_check does not rely on the reader: a plan spoiled in memory is refused, too. */
static void test_check_refuses_spoiled_plans(void **state)
{
    (void)state;
    struct graph *g = build(0);
    struct plan *p = make(g, "data", 4);
    struct plan_layer *conv = &p->layers[1];
    const struct plan_layer good = *conv;
#define SPOIL(what, message)                                   \
    do {                                                       \
        what;                                                  \
        assert_fails(plan_check(p, g), STATUS_USAGE, message); \
        *conv = good;                                          \
        assert_ok(plan_check(p, g));                           \
    } while (0)
    SPOIL(conv->stage = 1, "no stage 1");
    SPOIL(conv->n_pieces = 3, "its cuts make 4");
    SPOIL(conv->cut[0].loop = 8, "no loop");
    SPOIL(conv->cut[0].n_parts = 1, "one part");
    SPOIL((conv->n_cuts = 2, conv->cut[1] = conv->cut[0]), "cut twice");
#undef SPOIL
    p->n_layers--;
    assert_fails(plan_check(p, g), STATUS_USAGE, "13 layers, lenet5 has 14");
    plan_destroy(p);
    graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_resolved),
        cmocka_unit_test(test_made_for),
        cmocka_unit_test(test_made_for_odd_axes),
        cmocka_unit_test(test_stages_are_resolved),
        cmocka_unit_test(test_mistakes_in_the_top),
        cmocka_unit_test(test_mistakes_in_stages),
        cmocka_unit_test(test_mistakes_in_layers),
        cmocka_unit_test(test_mistakes_in_sync),
        cmocka_unit_test(test_padding_and_groups),
        cmocka_unit_test(test_check_refuses_spoiled_plans),
    };
    return test_run(tests);
}
