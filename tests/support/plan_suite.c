#include "plan_suite.h"

const char *const suite_networks[] = {"lenet5",      "alexnet",   "vgg11",      "resnet18",
                                      "mobilenetv2", "googlenet", "inceptionv3"};

const int suite_workers[] = {2, 3, 4, 7};

int suite_size(void)
{
    int n_strategies = 0;
    while (plan_strategies()[n_strategies].name)
        n_strategies++;
    return SUITE_NETWORKS * n_strategies * SUITE_WORKERS;
}

struct graph_variant suite_variant(const char *model, int64_t batch)
{
    static const struct {
        const char *model;
        int64_t channels, size;
        bool small_form;
    } sizes[] = {{"lenet5", 1, 28, true},
                 {"alexnet", 3, 64, false},
                 {"googlenet", 3, 64, false},
                 {"inceptionv3", 3, 75, false},
                 {NULL, 3, 32, true}};
    int i = 0;
    while (sizes[i].model && strcmp(sizes[i].model, model) != 0)
        i++;
    return (struct graph_variant){.batch = batch,
                                  .channels = sizes[i].channels,
                                  .height = sizes[i].size,
                                  .width = sizes[i].size,
                                  .classes = 10,
                                  .small_form = sizes[i].small_form,
                                  .drop_probability = -1};
}

struct graph *suite_build(const char *model, int64_t batch)
{
    struct graph_variant v = suite_variant(model, batch);
    struct graph *g;
    assert_ok(network_build(model, &v, &g));
    return g;
}

/* ---- plans made by hand ---- */

#define SUITE_FOUR "\"cleave_plan\":1,\"workers\":4,\"stages\":[{\"workers\":[0,1,2,3]}]"
#define SUITE_SERVERS_ARE(list) \
    "\"sync\":{\"method\":\"server\",\"bucket_bytes\":4096,\"servers\":[" list "]}"

const struct suite_plan suite_plans[] = {
    {"summed loops", "lenet5",
     "{" SUITE_FOUR ",\"layers\":{\"conv2\":{\"cut\":{\"c\":3}},\"fc1\":{\"cut\":{\"i\":4}},"
     "\"fc2\":{\"cut\":{\"o\":2,\"i\":2}},\"fc3\":{\"cut\":{\"n\":2,\"i\":[50,34]}}}}"},
    {"windows in parts", "lenet5",
     "{" SUITE_FOUR
     ",\"layers\":{\"conv1\":{\"cut\":{\"r\":2,\"s\":2}},\"conv2\":{\"cut\":{\"r\":3}}}}"},
    {"height and width over strides and pools", "alexnet",
     "{" SUITE_FOUR ",\"default\":{\"cut\":{\"height\":2,\"width\":2}}}"},
    {"uneven rows", "resnet18",
     "{\"cleave_plan\":1,\"workers\":3,\"stages\":[{\"workers\":[2,0,1]}],"
     "\"default\":{\"cut\":{\"n\":3}},\"layers\":{\"conv1\":{\"cut\":{\"p\":[5,20,7]}},"
     "\"bn1\":{\"cut\":{\"h\":[9,9,14]}},\"relu1\":{\"cut\":{\"h\":[9,9,14]}}}}"},
    {"mesh of samples and channels, a layer on some of the workers", "lenet5",
     "{" SUITE_FOUR
     ",\"default\":{\"cut\":{\"n\":2,\"channels\":2}},\"layers\":{\"pool2\":{\"workers\":"
     "[3,1],\"cut\":{\"n\":2}},\"fc3\":{\"cut\":{\"n\":1},\"workers\":[2]}}}"},
    {"stages of three and one", "lenet5",
     "{\"cleave_plan\":1,\"workers\":4,\"stages\":[{\"workers\":[0,1,2],\"cut\":{\"n\":3}},"
     "{\"workers\":[3]}],\"layers\":{\"conv1\":{\"stage\":0},\"fc1\":{\"stage\":1}},"
     "\"micro_batches\":3,\"schedule\":\"1f1b\"}"},
    {"stages of one and three", "resnet18",
     "{\"cleave_plan\":1,\"workers\":4,\"stages\":[{\"workers\":[3]},"
     "{\"workers\":[0,1,2],\"cut\":{\"n\":[1,2,1]}}],\"layers\":{\"layer2.0.conv1\":{\"stage\":1},"
     "\"layer2.0.downsample.0\":{\"stage\":1}},\"micro_batches\":2,\"schedule\":\"gpipe\"}"},
    {"recomputed layers, small buckets over a tree", "resnet18",
     "{\"cleave_plan\":1,\"workers\":3,\"stages\":[{\"workers\":[0,1,2],\"cut\":{\"n\":3}}],"
     "\"micro_batches\":2,\"schedule\":\"1f1b\",\"recompute\":[\"conv1\",\"bn1\",\"relu1\","
     "\"layer1.0.conv1\",\"layer1.0.bn1\",\"layer1.0.relu1\",\"layer2.0.conv1\"],"
     "\"sync\":{\"method\":\"tree\",\"bucket_bytes\":5000}}"},
    {"segments that are recomputed, with shared statistics", "resnet18",
     "{\"cleave_plan\":1,\"workers\":3,\"stages\":[{\"workers\":[0,1,2],\"cut\":{\"n\":3}}],"
     "\"layers\":{\"layer3.0.conv1\":{\"cut\":{\"k\":3}}},\"recompute\":4}"},
    {"stages of segments", "vgg11",
     "{\"cleave_plan\":1,\"workers\":3,\"stages\":[{\"workers\":[0,1],\"cut\":{\"height\":2}},"
     "{\"workers\":[2]}],\"layers\":{\"features.8\":{\"stage\":1}},\"micro_batches\":3,"
     "\"schedule\":\"1f1b\",\"recompute\":\"auto\"}"},
    {"two nodes of two", "lenet5",
     "{" SUITE_FOUR ",\"default\":{\"cut\":{\"n\":4}},\"sync\":{\"method\":\"hierarchical\","
     "\"workers_per_node\":2,\"bucket_bytes\":20000}}"},
    {"one weird trick beside a server", "lenet5",
     "{\"cleave_plan\":1,\"workers\":4,\"stages\":[{\"workers\":[0,1,2]}],"
     "\"default\":{\"cut\":{\"n\":3}},\"layers\":{\"fc1\":{\"cut\":{\"o\":3}},"
     "\"fc2\":{\"cut\":{\"o\":[20,40,24]}},\"fc3\":{\"cut\":{\"o\":2},\"workers\":[2,1]}}"
     "," SUITE_SERVERS_ARE("3") "}"},
    /* the parts of fc1 and fc2 have two holders each, which sum their gradients in a ring */
    {"mesh of samples and channels beside two servers, micro-batches", "lenet5",
     "{\"cleave_plan\":1,\"workers\":6,\"stages\":[{\"workers\":[4,1,5,2]}],"
     "\"default\":{\"cut\":{\"n\":[3,1]}},\"layers\":{\"conv2\":{\"cut\":{\"n\":2,\"k\":2}},"
     "\"fc1\":{\"cut\":{\"n\":2,\"o\":2}},\"fc2\":{\"cut\":{\"i\":2,\"n\":2}}},"
     "\"micro_batches\":3," SUITE_SERVERS_ARE("0,3") "}"},
    {"a pipeline with summed loops beside a server", "lenet5",
     "{\"cleave_plan\":1,\"workers\":5,\"stages\":[{\"workers\":[0,1],\"cut\":{\"n\":2}},"
     "{\"workers\":[3,4]}],\"layers\":{\"conv2\":{\"cut\":{\"c\":2}},"
     "\"fc1\":{\"stage\":1,\"cut\":{\"i\":2}},\"fc2\":{\"cut\":{\"o\":2}}},"
     "\"micro_batches\":3,\"schedule\":\"1f1b\"," SUITE_SERVERS_ARE("2") "}"},
    {"batch norm in channels, and whole, beside a server", "resnet18",
     "{\"cleave_plan\":1,\"workers\":3,\"stages\":[{\"workers\":[0,2],\"cut\":{\"n\":2}}],"
     "\"layers\":{\"conv1\":{\"cut\":{\"k\":2}},\"bn1\":{\"cut\":{\"c\":2}},"
     "\"relu1\":{\"cut\":{\"c\":2}},\"fc\":{\"cut\":{\"o\":2}}}," SUITE_SERVERS_ARE("1") "}"},
};

struct graph *suite_build_for(const struct suite_plan *p)
{
    return suite_build(p->model, strcmp(p->model, "lenet5") == 0 ? 7 : 12);
}

/* ---- asynchronous plans ---- */

const struct plan_request suite_pipedreams[] = {
    {.n_workers = 2, .window = SUITE_WINDOW},
    {.n_workers = 3, .window = SUITE_WINDOW},
    {.n_workers = 4, .window = SUITE_WINDOW, .replicas = (const int[]){3, 1}, .n_stages = 2},
    {.n_workers = 4, .window = SUITE_WINDOW, .replicas = (const int[]){1, 3}, .n_stages = 2},
    {.n_workers = 7, .window = SUITE_WINDOW, .replicas = (const int[]){2, 4, 1}, .n_stages = 3},
};

const struct plan_request suite_servers[] = {
    {.n_workers = 2, .n_servers = 1, .asynchronous = true},
    {.n_workers = 4, .n_servers = 1, .asynchronous = true},
    {.n_workers = 7, .n_servers = 2, .asynchronous = true},
};

/* ---- few samples ---- */

const struct suite_batch suite_small[] = {{"lenet5", 2}, {"resnet18", 3}};
