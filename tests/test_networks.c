/* The built-in networks against PyTorch: parameters, geometry, and refusals of small images. */
#include "model/network.h"
#include "testing.h"

#include <dirent.h>
#include <jansson.h>

static struct graph_variant make_variant(const int64_t image[3], int64_t classes, bool small_form)
{
    return (struct graph_variant){.batch = 1,
                                  .channels = image[0],
                                  .height = image[1],
                                  .width = image[2],
                                  .classes = classes,
                                  .small_form = small_form,
                                  .drop_probability = -1};
}

/* Parameters and forward multiply-adds of convolutions and linear layers, one image, as counted in
 * PyTorch with forward hooks on the networks of bench/peers/networks.py. The first follow from the
 * kernels and channels, the second from strides and padding as well. */
static const struct known {
    const char *name;
    int64_t image[3];
    int64_t classes;
    bool small_form;
    int64_t parameters, multiply_adds;
} known[] = {
    {"mlp", {1, 28, 28}, 10, true, 535818, 535040},
    {"mlp", {3, 32, 32}, 10, true, 1707274, 1706496},
    {"mlp", {3, 224, 224}, 1000, false, 77459176, 77457408},
    {"mlp", {3, 224, 224}, 21841, false, 82815313, 82792704},
    {"mlp", {3, 299, 299}, 1000, false, 137708776, 137707008},
    {"mlp", {3, 512, 512}, 1000, false, 403042024, 403040256},
    {"lenet5", {1, 28, 28}, 10, true, 61706, 416520},
    {"lenet5", {3, 32, 32}, 10, true, 83126, 886440},
    {"lenet5", {3, 224, 224}, 1000, false, 5696876, 56265600},
    {"lenet5", {3, 224, 224}, 21841, false, 7468361, 58016244},
    {"lenet5", {3, 299, 299}, 1000, false, 10051436, 100737810},
    {"lenet5", {3, 512, 512}, 1000, false, 30580076, 300950400},
    {"alexnet", {3, 75, 75}, 10, false, 57044810, 100997888},
    {"alexnet", {3, 224, 224}, 1000, false, 61100840, 714188480},
    {"alexnet", {3, 224, 224}, 21841, false, 146486417, 799553216},
    {"alexnet", {3, 299, 299}, 1000, false, 61100840, 1201885952},
    {"alexnet", {3, 512, 512}, 1000, false, 61100840, 3707333312},
    {"alexnet7", {3, 75, 75}, 10, false, 70676298, 114629376},
    {"alexnet7", {3, 224, 224}, 1000, false, 74732328, 727819968},
    {"alexnet7", {3, 224, 224}, 21841, false, 160117905, 813184704},
    {"alexnet7", {3, 299, 299}, 1000, false, 74732328, 1215517440},
    {"alexnet7", {3, 512, 512}, 1000, false, 74732328, 3720964800},
    {"vgg11", {1, 28, 28}, 10, true, 9224458, 94828544},
    {"vgg11", {3, 32, 32}, 10, true, 9225610, 152769536},
    {"vgg11", {3, 75, 75}, 10, false, 128807306, 879038656},
    {"vgg11", {3, 224, 224}, 1000, false, 132863336, 7609090048},
    {"vgg11", {3, 224, 224}, 21841, false, 218248913, 7694454784},
    {"vgg11", {3, 299, 299}, 1000, false, 132863336, 13133406400},
    {"vgg11", {3, 512, 512}, 1000, false, 132863336, 39231324160},
    {"vgg16", {1, 28, 28}, 10, true, 14718666, 205125632},
    {"vgg16", {3, 32, 32}, 10, true, 14719818, 313201664},
    {"vgg16", {3, 75, 75}, 10, false, 134301514, 1708220608},
    {"vgg16", {3, 224, 224}, 1000, false, 138357544, 15470264320},
    {"vgg16", {3, 224, 224}, 21841, false, 223743121, 15555629056},
    {"vgg16", {3, 299, 299}, 1000, false, 138357544, 26926919872},
    {"vgg16", {3, 512, 512}, 1000, false, 138357544, 80301948928},
    {"resnet18", {1, 28, 28}, 10, true, 11172810, 455800832},
    {"resnet18", {3, 32, 32}, 10, true, 11173962, 555422720},
    {"resnet18", {1, 28, 28}, 10, false, 11175370, 33010944},
    {"resnet18", {3, 75, 75}, 10, false, 11181642, 247176960},
    {"resnet18", {3, 224, 224}, 1000, false, 11689512, 1814073344},
    {"resnet18", {3, 224, 224}, 21841, false, 22380945, 1824743936},
    {"resnet18", {3, 299, 299}, 1000, false, 11689512, 3394636544},
    {"resnet18", {3, 512, 512}, 1000, false, 11689512, 9475444736},
    {"resnet50", {1, 28, 28}, 10, true, 23519690, 1046819840},
    {"resnet50", {3, 32, 32}, 10, true, 23520842, 1297829888},
    {"resnet50", {1, 28, 28}, 10, false, 23522250, 77951232},
    {"resnet50", {3, 75, 75}, 10, false, 23528522, 549935872},
    {"resnet50", {3, 224, 224}, 1000, false, 25557032, 4089184256},
    {"resnet50", {3, 224, 224}, 21841, false, 68260241, 4131866624},
    {"resnet50", {3, 299, 299}, 1000, false, 25557032, 7627668224},
    {"resnet50", {3, 512, 512}, 1000, false, 25557032, 21355249664},
    {"resnet101", {1, 28, 28}, 10, true, 42511818, 1974875136},
    {"resnet101", {3, 32, 32}, 10, true, 42512970, 2509983744},
    {"resnet101", {1, 28, 28}, 10, false, 42514378, 153710848},
    {"resnet101", {3, 75, 75}, 10, false, 42520650, 1023433472},
    {"resnet101", {3, 224, 224}, 1000, false, 44549160, 7801405440},
    {"resnet101", {3, 224, 224}, 21841, false, 87252369, 7844087808},
    {"resnet101", {3, 299, 299}, 1000, false, 44549160, 14464973568},
    {"resnet101", {3, 512, 512}, 1000, false, 44549160, 40749711360},
    {"resnet152", {1, 28, 28}, 10, true, 58155466, 2902930432},
    {"resnet152", {3, 32, 32}, 10, true, 58156618, 3722137600},
    {"resnet152", {1, 28, 28}, 10, false, 58158026, 229470464},
    {"resnet152", {3, 75, 75}, 10, false, 58164298, 1496931072},
    {"resnet152", {3, 224, 224}, 1000, false, 60192808, 11513626624},
    {"resnet152", {3, 224, 224}, 21841, false, 102896017, 11556308992},
    {"resnet152", {3, 299, 299}, 1000, false, 60192808, 21302278912},
    {"resnet152", {3, 512, 512}, 1000, false, 60192808, 60144173056},
    {"mobilenetv2", {1, 28, 28}, 10, true, 2296346, 75564160},
    {"mobilenetv2", {3, 32, 32}, 10, true, 2296922, 91154944},
    {"mobilenetv2", {1, 28, 28}, 10, false, 2236106, 5597552},
    {"mobilenetv2", {3, 75, 75}, 10, false, 2236682, 41558128},
    {"mobilenetv2", {3, 224, 224}, 1000, false, 3504872, 300774272},
    {"mobilenetv2", {3, 224, 224}, 21841, false, 30202193, 327450752},
    {"mobilenetv2", {3, 299, 299}, 1000, false, 3504872, 564405744},
    {"mobilenetv2", {3, 512, 512}, 1000, false, 3504872, 1565984768},
    {"googlenet", {1, 28, 28}, 10, false, 5603882, 15658496},
    {"googlenet", {3, 75, 75}, 10, false, 5610154, 146636032},
    {"googlenet", {3, 224, 224}, 1000, false, 6624904, 1498376192},
    {"googlenet", {3, 224, 224}, 21841, false, 27986929, 1519717376},
    {"googlenet", {3, 299, 299}, 1000, false, 6624904, 2579479808},
    {"googlenet", {3, 512, 512}, 1000, false, 6624904, 7823925248},
    {"inceptionv3", {3, 75, 75}, 10, false, 21806058, 201498208},
    {"inceptionv3", {3, 224, 224}, 1000, false, 23834568, 2837921120},
    {"inceptionv3", {3, 224, 224}, 21841, false, 66537777, 2880603488},
    {"inceptionv3", {3, 299, 299}, 1000, false, 23834568, 5713216096},
    {"inceptionv3", {3, 512, 512}, 1000, false, 23834568, 17521856864},
};

/* Every output element is a dot product with one row of the weight. */
static int64_t count_multiply_adds(const struct graph *g, int i)
{
    const struct op_case *c = &g->nodes[i].op;
    if (c->op != OP_CONV2D && c->op != OP_LINEAR)
        return 0;
    const struct shape *weight = &g->params[g->nodes[i].first_param].spec.shape;
    return shape_elements(&c->output) * (shape_elements(weight) / weight->dim[0]);
}

static void test_parameters_and_multiply_adds(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        struct graph_variant v =
            make_variant(known[k].image, known[k].classes, known[k].small_form);
        struct graph *g;
        assert_ok(network_build(known[k].name, &v, &g));
        assert_ok(graph_check(g));
        int64_t parameters = graph_count_parameters(g), multiply_adds = 0;
        double flops = 0;
        for (int i = 0; i < g->n_nodes; i++) {
            int64_t n = count_multiply_adds(g, i);
            struct op_cost cost = {0};
            op_get_cost(&g->nodes[i].op, &cost);
            multiply_adds += n;
            flops += n ? cost.forward_flops : 0;
        }
        assert_that(parameters == known[k].parameters, "%s, case %zu: %lld", known[k].name, k,
                    (long long)parameters);
        assert_that(multiply_adds == known[k].multiply_adds, "%s, case %zu: %lld", known[k].name, k,
                    (long long)multiply_adds);
        assert_near(flops, 2.0 * (double)multiply_adds, 0.01);
        graph_destroy(g);
    }
}

/* The least square image of 3 channels that each form takes. PyTorch takes the same ones, except
 * that its inceptionv3 begins at 75: ours keeps the size in the first layer below that. */
static const struct least {
    const char *name;
    int64_t large, small;
    const char *layer; /* where the large form fails, one pixel below */
} least[] = {
    {"mlp", 1, 1, NULL},
    {"lenet5", 12, 12, "pool2"},
    {"alexnet", 63, 63, "features.12"},
    {"alexnet7", 63, 63, "features.12"},
    {"vgg11", 32, 1, "features.20"},
    {"vgg16", 32, 1, "features.30"},
    {"resnet18", 1, 1, NULL},
    {"resnet50", 1, 1, NULL},
    {"resnet101", 1, 1, NULL},
    {"resnet152", 1, 1, NULL},
    {"mobilenetv2", 1, 1, NULL},
    {"googlenet", 15, 15, "maxpool3"},
    {"inceptionv3", 39, 39, "Mixed_7a.branch3x3_2.conv"},
};

static void build_at(const struct least *limits, int64_t size, bool small_form)
{
    struct graph_variant v = make_variant((int64_t[]){3, size, size}, 10, small_form);
    struct graph *g;
    if (size >= (small_form ? limits->small : limits->large)) {
        assert_ok(network_build(limits->name, &v, &g));
        assert_ok(graph_check(g));
        graph_destroy(g);
    } else {
        assert_fails(network_build(limits->name, &v, &g), STATUS_USAGE, limits->name);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[] = {28, 32, 64, 75, 224, 299, 512};
    for (size_t i = 0; i < sizeof least / sizeof *least; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            build_at(&least[i], sizes[k], false);
            build_at(&least[i], sizes[k], true);
        }
}

static void test_least_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
        build_at(&least[i], least[i].large, false);
        build_at(&least[i], least[i].small, true);
        if (!least[i].layer)
            continue;
        int64_t size = least[i].large - 1;
        struct graph_variant v = make_variant((int64_t[]){3, size, size}, 10, false);
        struct graph *g;
        char message[128];
        (void)snprintf(message, sizeof message, "%s layer '%s': ", least[i].name, least[i].layer);
        assert_fails(network_build(least[i].name, &v, &g), STATUS_USAGE, message);
    }
}

static void test_images_need_not_be_square(void **state)
{
    (void)state;
    for (const char *const *name = network_names(); *name; name++)
        for (int small_form = 0; small_form < 2; small_form++) {
            struct graph_variant v = make_variant((int64_t[]){2, 96, 131}, 7, small_form);
            v.batch = 3;
            struct graph *g;
            assert_ok(network_build(*name, &v, &g));
            assert_ok(graph_check(g));
            graph_destroy(g);
        }
}

/* ---- another batch size ---- */

static void check_same_graph(const struct graph *a, const struct graph *b)
{
    assert_string_equal(a->name, b->name);
    assert_true(a->batch == b->batch && a->classes == b->classes);
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_params, b->n_params);
    for (int i = 0; i < a->n_nodes; i++) {
        const struct graph_node *x = &a->nodes[i], *y = &b->nodes[i];
        assert_string_equal(x->name, y->name);
        assert_true(op_equal(&x->op, &y->op));
        assert_memory_equal(x->input, y->input, sizeof x->input);
        assert_true(x->first_param == y->first_param && x->n_params == y->n_params);
    }
    for (int i = 0; i < a->n_params; i++) {
        const struct graph_param *x = &a->params[i], *y = &b->params[i];
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->spec.name, y->spec.name);
        assert_int_equal(x->node, y->node);
        assert_true(shape_equal(&x->spec.shape, &y->spec.shape));
        assert_true(x->spec.trained == y->spec.trained && x->spec.init == y->spec.init &&
                    x->spec.fan == y->spec.fan);
    }
}

static const struct op_param *spec_of(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_params; i++)
        if (strcmp(g->params[i].name, name) == 0)
            return &g->params[i].spec;
    fail_msg("there is no %s", name);
    return NULL;
}

/* How torchvision 0.14 fills them. */
static void test_initialised_as_by_torchvision(void **state)
{
    (void)state;
    static const struct {
        const char *network, *param;
        enum op_init init;
        int64_t fan; /* 0: whichever */
        double deviation;
    } cases[] = {
        {"resnet18", "conv1.weight", INIT_KAIMING_NORMAL, 64 * 7 * 7, 0},
        {"resnet18", "layer2.0.conv1.weight", INIT_KAIMING_NORMAL, 128 * 3 * 3, 0},
        {"resnet18", "bn1.weight", INIT_ONE, 0, 0},
        {"resnet18", "fc.weight", INIT_KAIMING_UNIFORM, 512, 0},
        {"vgg11", "features.0.weight", INIT_KAIMING_NORMAL, 64 * 3 * 3, 0},
        {"vgg11", "features.0.bias", INIT_ZERO, 0, 0},
        {"vgg11", "classifier.0.weight", INIT_NORMAL, 0, 0.01},
        {"vgg11", "classifier.0.bias", INIT_ZERO, 0, 0},
        {"mobilenetv2", "features.1.conv.0.0.weight", INIT_KAIMING_NORMAL, 32 * 3 * 3, 0},
        {"mobilenetv2", "classifier.1.weight", INIT_NORMAL, 0, 0.01},
        {"alexnet", "features.0.weight", INIT_KAIMING_UNIFORM, 3 * 11 * 11, 0},
        {"alexnet", "features.0.bias", INIT_KAIMING_UNIFORM, 3 * 11 * 11, 0},
        {"googlenet", "conv1.conv.weight", INIT_NORMAL, 0, 0.01},
        {"googlenet", "fc.bias", INIT_KAIMING_UNIFORM, 1024, 0},
        {"inceptionv3", "Conv2d_1a_3x3.conv.weight", INIT_NORMAL, 0, 0.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph *g, *resized;
        const struct graph_variant v = {.batch = 2,
                                        .channels = 3,
                                        .height = 299,
                                        .width = 299,
                                        .classes = 1000,
                                        .drop_probability = -1};
        assert_ok(network_build(cases[i].network, &v, &g));
        assert_ok(graph_resize(g, 3, &resized));
        const struct op_param *p = spec_of(g, cases[i].param);
        const struct op_param *again = spec_of(resized, cases[i].param);
        assert_that(p->init == cases[i].init && (!cases[i].fan || p->fan == cases[i].fan) &&
                        (p->init != INIT_NORMAL || p->deviation == cases[i].deviation),
                    "%s %s: %d, fan %lld, deviation %g", cases[i].network, cases[i].param,
                    (int)p->init, (long long)p->fan, p->deviation);
        assert_true(again->init == p->init && again->fan == p->fan &&
                    again->deviation == p->deviation);
        graph_destroy(resized);
        graph_destroy(g);
    }
}

static void test_resized_is_built_at_that_batch(void **state)
{
    static const int64_t batches[] = {1, 5, 16};
    (void)state;
    for (const char *const *name = network_names(); *name; name++)
        for (int k = 0; k < 6; k++) {
            struct graph_variant v = make_variant((int64_t[]){3, 96, 96}, 7, k % 2);
            struct graph *first, *resized, *built;
            v.batch = 16;
            assert_ok(network_build(*name, &v, &first));
            v.batch = batches[k / 2];
            assert_ok(network_build(*name, &v, &built));
            assert_ok(graph_resize(first, v.batch, &resized));
            graph_destroy(first);
            assert_ok(graph_check(resized));
            check_same_graph(resized, built);
            graph_destroy(resized);
            graph_destroy(built);
        }
}

static void test_refuses_impossible_batches(void **state)
{
    struct graph_variant v = make_variant((int64_t[]){3, 96, 96}, 7, true);
    struct graph *g, *resized;
    (void)state;
    assert_ok(network_build("alexnet", &v, &g));
    assert_fails(graph_resize(g, 0, &resized), STATUS_USAGE, "alexnet: batch 0 must be at least 1");
    assert_fails(graph_resize(g, INT64_MAX / 64, &resized), STATUS_USAGE,
                 "the input would be 144115188075855871x3x96x96");
    graph_destroy(g);
}

/* So that a batch norm can take in the sum behind it. */
static void test_sums_follow_their_batch_norm(void **state)
{
    (void)state;
    static const char *const residual[] = {"resnet18", "resnet50", "resnet101", "resnet152",
                                           "mobilenetv2"};
    for (size_t k = 0; k < 2 * sizeof residual / sizeof *residual; k++) {
        struct graph_variant v = make_variant((int64_t[]){3, 64, 64}, 10, k % 2);
        struct graph *g;
        assert_ok(network_build(residual[k / 2], &v, &g));
        int n_sums = 0;
        for (int i = 1; i < g->n_nodes; i++) {
            if (g->nodes[i].op.op != OP_ADD)
                continue;
            n_sums++;
            assert_int_equal(g->nodes[i].input[0], i - 1);
            assert_int_equal(g->nodes[i - 1].op.op, OP_BATCH_NORM);
        }
        assert_true(n_sums >= 8);
        graph_destroy(g);
    }
}

/* Attributes that neither parameters nor shapes show. */
static void test_attributes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double epsilon, drop_probability; /* 0: there is none */
    } expected[] = {
        {"mlp", 0, 0},
        {"lenet5", 0, 0},
        {"alexnet", 0, 0.5},
        {"alexnet7", 0, 0.5},
        {"vgg11", 0, 0.5},
        {"vgg16", 0, 0.5},
        {"resnet18", 1e-5, 0},
        {"resnet152", 1e-5, 0},
        {"googlenet", 1e-3, 0.2},
        {"mobilenetv2", 1e-5, 0.2},
        {"inceptionv3", 1e-3, 0.5},
    };
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
        struct graph_variant v = make_variant((int64_t[]){3, 224, 224}, 1000, false);
        struct graph *g;
        assert_ok(network_build(expected[k].name, &v, &g));
        double epsilon = 0, drop_probability = 0;
        for (int i = 0; i < g->n_nodes; i++) {
            const struct op_case *c = &g->nodes[i].op;
            if (c->op == OP_BATCH_NORM) {
                epsilon = c->attrs.epsilon;
                assert_near(epsilon, expected[k].epsilon, 1e-9);
                assert_near(c->attrs.momentum, 0.1, 1e-9);
            } else if (c->op == OP_DROPOUT) {
                drop_probability = c->attrs.drop_probability;
                assert_near(drop_probability, expected[k].drop_probability, 1e-9);
            } else if (c->op == OP_AVERAGE_POOL) {
                assert_true(c->attrs.count_padding && c->attrs.pad_before[0] == 1);
            }
        }
        assert_near(epsilon, expected[k].epsilon, 1e-9);
        assert_near(drop_probability, expected[k].drop_probability, 1e-9);
        graph_destroy(g);
    }
}

static void test_names(void **state)
{
    (void)state;
    int n = 0;
    for (const char *const *name = network_names(); *name; name++, n++) {
        const struct network *network;
        assert_ok(network_find(*name, &network));
        assert_string_equal(network->name, *name);
        assert_true(strlen(network->about) > 10);
        assert_string_equal(least[n].name, *name);
    }
    assert_int_equal(n, 13);
    const struct network *network;
    assert_fails(network_find("resnt18", &network), STATUS_USAGE, "resnet18");
}

/* ---- parameter names and shapes against the fixtures that PyTorch wrote ---- */

static const struct graph_param *find_param(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_params; i++)
        if (strcmp(g->params[i].name, name) == 0)
            return &g->params[i];
    return NULL;
}

static int64_t get_integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_that(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

/* The listed tensors are in the graph with the listed shapes; returns how many there are. */
static int compare_params(const char *file, const json_t *list, const struct graph *g, bool trained)
{
    assert_that(json_is_array(list), "%s", file);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *dims = json_object_get(entry, "shape");
        const char *name = json_string_value(json_object_get(entry, "name"));
        assert_non_null(name);
        const struct graph_param *param = find_param(g, name);
        if (!param) {
            fail_msg("%s: %s is not in the graph", file, name);
            return 0;
        }
        assert_that(param->spec.trained == trained, "%s: %s", file, name);
        assert_that(json_array_size(dims) == (size_t)param->spec.shape.rank, "%s: %s", file, name);
        for (size_t d = 0; d < json_array_size(dims); d++)
            assert_that(json_integer_value(json_array_get(dims, d)) == param->spec.shape.dim[d],
                        "%s: %s, axis %zu", file, name, d);
    }
    return (int)json_array_size(list);
}

static void compare_fixture(const char *file)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, TESTS_DIR "/fixtures/%s", file);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    assert_that(root != NULL, "%s:%d: %s", path, error.line, error.text);

    int64_t image[3];
    for (size_t i = 0; i < 3; i++)
        image[i] = json_integer_value(json_array_get(json_object_get(root, "shape"), i));
    const char *form = json_string_value(json_object_get(root, "form"));
    const char *model = json_string_value(json_object_get(root, "model"));
    assert_that(form && model, "%s", file);
    struct graph_variant v =
        make_variant(image, get_integer(root, "classes"), strcmp(form, "small") == 0);
    struct graph *g;
    assert_ok(network_build(model, &v, &g));
    int n = compare_params(file, json_object_get(root, "parameters"), g, true);
    n += compare_params(file, json_object_get(root, "statistics"), g, false);
    assert_that(n == g->n_params, "%s: %d of %d parameters", file, n, g->n_params);
    graph_destroy(g);
    json_decref(root);
}

static void test_fixtures(void **state)
{
    (void)state;
    DIR *folder = opendir(TESTS_DIR "/fixtures");
    assert_non_null(folder);
    int n_compared = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".json") != 0)
            continue;
        compare_fixture(entry->d_name);
        n_compared++;
    }
    (void)closedir(folder);
    assert_true(n_compared > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_and_multiply_adds),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_least_sizes),
        cmocka_unit_test(test_images_need_not_be_square),
        cmocka_unit_test(test_initialised_as_by_torchvision),
        cmocka_unit_test(test_resized_is_built_at_that_batch),
        cmocka_unit_test(test_refuses_impossible_batches),
        cmocka_unit_test(test_sums_follow_their_batch_norm),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_fixtures),
    };
    return test_run(tests);
}
