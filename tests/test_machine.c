/* Machines: from strings, files and hwloc, written and read back, their routes and curves, every
 * mistake refused, and measuring. */
#include "testing.h"

#include "base/random.h"
#include "machine/measure.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- help ---- */

static struct machine *parse(const char *text)
{
    struct machine *m = NULL;
    assert_ok(machine_parse(text, &m));
    assert_ok(machine_check(m));
    return m;
}

static char *write_text(const struct machine *m)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_ok(machine_write(m, f));
    assert_int_equal(fclose(f), 0);
    return text;
}

static void assert_same_parts(const struct machine *a, const struct machine *b)
{
    for (int i = 0; i < a->n_devices; i++) {
        assert_int_equal(a->devices[i].kind, b->devices[i].kind);
        assert_int_equal(a->devices[i].node, b->devices[i].node);
        assert_int_equal(a->device_out[i], b->device_out[i]);
        assert_int_equal(a->device_in[i], b->device_in[i]);
    }
    for (int i = 0; i < a->n_nodes; i++) {
        assert_string_equal(a->nodes[i].name, b->nodes[i].name);
        assert_string_equal(a->nodes[i].about, b->nodes[i].about);
        assert_int_equal(a->nodes[i].first_device, b->nodes[i].first_device);
        assert_int_equal(a->nodes[i].n_devices, b->nodes[i].n_devices);
        assert_true(a->nodes[i].memory_bytes == b->nodes[i].memory_bytes);
        assert_int_equal(a->nodes[i].cores, b->nodes[i].cores);
        assert_string_equal(a->nodes[i].host, b->nodes[i].host);
        assert_int_equal(a->node_out[i], b->node_out[i]);
        assert_int_equal(a->node_in[i], b->node_in[i]);
    }
    for (int i = 0; i < a->n_links; i++) {
        assert_string_equal(a->links[i].name, b->links[i].name);
        assert_true(a->links[i].bytes_per_s == b->links[i].bytes_per_s);
        assert_true(a->links[i].latency_s == b->links[i].latency_s);
    }
    for (int i = 0; i < a->n_pairs; i++)
        assert_memory_equal(&a->pairs[i], &b->pairs[i], sizeof a->pairs[i]);
}

static void assert_same_kinds(const struct machine *a, const struct machine *b)
{
    for (int i = 0; i < a->n_kinds; i++) {
        const struct machine_kind *x = &a->kinds[i], *y = &b->kinds[i];
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->about, y->about);
        assert_string_equal(x->note, y->note);
        assert_int_equal(x->class, y->class);
        assert_int_equal(x->cores, y->cores);
        assert_true(x->memory_bytes == y->memory_bytes && x->launch_s == y->launch_s);
        assert_true(x->peak_flops_per_s == y->peak_flops_per_s);
        assert_true(x->reached_flops_per_s == y->reached_flops_per_s);
        assert_true(x->peak_bytes_per_s == y->peak_bytes_per_s);
        assert_true(x->reached_bytes_per_s == y->reached_bytes_per_s);
        assert_true(x->link_bytes_per_s == y->link_bytes_per_s);
        assert_true(x->link_latency_s == y->link_latency_s);
    }
}

/* Every field, bit by bit. */
static void assert_same(const struct machine *a, const struct machine *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->n_kinds, b->n_kinds);
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_devices, b->n_devices);
    assert_int_equal(a->n_links, b->n_links);
    assert_int_equal(a->n_pairs, b->n_pairs);
    assert_int_equal(a->n_curves, b->n_curves);
    assert_true(a->wake_s == b->wake_s && a->step_s == b->step_s);
    assert_same_kinds(a, b);
    assert_same_parts(a, b);
    for (int i = 0; i < a->n_curves; i++) {
        const struct machine_curve *x = &a->curves[i], *y = &b->curves[i];
        assert_string_equal(x->transport, y->transport);
        assert_int_equal(x->reduces, y->reduces);
        assert_int_equal(x->method, y->method);
        assert_int_equal(x->members, y->members);
        assert_int_equal(x->nodes, y->nodes);
        assert_int_equal(x->n_points, y->n_points);
        assert_memory_equal(x->points, y->points, (size_t)x->n_points * sizeof *x->points);
    }
}

static void assert_round_trip(const struct machine *m)
{
    char *text = write_text(m);
    struct machine *back = NULL;
    assert_ok(machine_parse_json(text, strlen(text), "back", &back));
    assert_same(m, back);
    machine_destroy(back);
    free(text);
}

static struct machine *parse_json(const char *text)
{
    struct machine *m = NULL;
    assert_ok(machine_parse_json(text, strlen(text), "m.json", &m));
    return m;
}

/* ---- units ---- */

static void test_units(void **state)
{
    (void)state;
    double x;
    int64_t n;
    const struct {
        const char *text;
        double value;
    } rates[] = {{"15GB/s", 15e9},      {"100Gbit/s", 12.5e9}, {"4.5 GiB/s", 4.5 * (1 << 30)},
                 {"40Gbps", 5e9},       {"1e9", 1e9},          {"56Gb/s", 7e9},
                 {"100Mbit/s", 12.5e6}, {"900kB/s", 9e5},      {"900KB/s", 9e5},
                 {"3B/s", 3},           {".5GBps", 5e8},       {"2TB/s", 2e12}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        assert_that(machine_parse_bandwidth(rates[i].text, &x), "%s", rates[i].text);
        assert_near(x / rates[i].value, 1, 1e-12);
    }
    const char *const no_rates[] = {"",       "GB/s",    "-1GB/s", "0GB/s",  "15GB",
                                    "15GB/h", "15 Q/s",  "nan",    "inf",    "0x10",
                                    "1e30",   "15GB/s ", "15 GBs", "15gB/s", "1e999"};
    for (size_t i = 0; i < sizeof no_rates / sizeof *no_rates; i++)
        assert_that(!machine_parse_bandwidth(no_rates[i], &x), "%s", no_rates[i]);
    assert_true(machine_parse_seconds("5us", &x) && x == 5e-6);
    assert_true(machine_parse_seconds("1.5 ms", &x) && x == 1.5e-3);
    assert_true(machine_parse_seconds("0", &x) && x == 0);
    assert_true(machine_parse_seconds("200ns", &x) && x == 2e-7);
    assert_true(machine_parse_seconds("5", &x) && x == 5);
    assert_false(machine_parse_seconds("5min", &x));
    assert_false(machine_parse_seconds("-5us", &x));
    assert_true(machine_parse_bytes("16GiB", &n) && n == INT64_C(16) << 30);
    assert_true(machine_parse_bytes("11 GB", &n) && n == 11000000000);
    assert_true(machine_parse_bytes("123", &n) && n == 123);
    assert_false(machine_parse_bytes("16G", &n));
    assert_false(machine_parse_bytes("1e30B", &n));
}

/* ---- strings ---- */

static void test_string(void **state)
{
    (void)state;
    struct machine *m = parse("4x4:p100,intra=15GB/s,inter=4.5GB/s,latency=6us,memory=12GiB");
    assert_string_equal(m->name, "4x4:p100,intra=15GB/s,inter=4.5GB/s,latency=6us,memory=12GiB");
    assert_int_equal(m->n_nodes, 4);
    assert_int_equal(m->n_devices, 16);
    assert_int_equal(m->n_kinds, 1);
    assert_string_equal(m->kinds[0].name, "p100");
    assert_true(m->kinds[0].memory_bytes == INT64_C(12) << 30);
    assert_true(machine_device_memory(m, 7) == INT64_C(12) << 30);
    assert_int_equal(m->n_links, 2 * (16 + 4));
    assert_true(m->links[m->device_out[5]].bytes_per_s == 15e9);
    assert_true(m->links[m->device_in[5]].latency_s == m->kinds[0].link_latency_s / 2);
    assert_true(m->links[m->node_in[3]].bytes_per_s == 4.5e9);
    assert_true(m->links[m->node_out[3]].latency_s == 3e-6);
    assert_string_equal(m->links[m->node_out[3]].name, "node3.out");
    assert_round_trip(m);
    machine_destroy(m);
}

static void test_string_defaults(void **state)
{
    (void)state;
    struct machine *m = parse("2x2:V100"), *one = parse("1x2:cpu,memory=8GiB");
    assert_true(m->links[m->node_out[1]].bytes_per_s == 12.5e9); /* 100 Gbit/s */
    assert_true(m->links[m->device_out[1]].bytes_per_s == m->kinds[0].link_bytes_per_s);
    assert_int_equal(one->node_out[0], -1);
    assert_int_equal(one->n_links, 4);
    assert_int_equal(one->kinds[0].class, MACHINE_CPU);
    assert_true(one->nodes[0].memory_bytes == INT64_C(8) << 30);
    assert_true(machine_device_memory(one, 1) == INT64_C(4) << 30);
    machine_destroy(m);
    machine_destroy(one);
}

static void test_string_groups(void **state)
{
    (void)state;
    struct machine *m = parse("2x4:v100,intra=130GB/s,1x8:k80,intra=8GB/s,inter=10GB/s");
    assert_int_equal(m->n_nodes, 3);
    assert_int_equal(m->n_devices, 16);
    assert_int_equal(m->nodes[2].first_device, 8);
    assert_int_equal(m->nodes[2].n_devices, 8);
    assert_true(m->links[m->device_out[7]].bytes_per_s == 130e9);
    assert_true(m->links[m->device_out[8]].bytes_per_s == 8e9);
    assert_true(m->links[m->node_out[0]].bytes_per_s == 10e9);
    assert_true(m->links[m->node_out[2]].bytes_per_s == 10e9);
    assert_round_trip(m);
    machine_destroy(m);

    m = parse("1x4:p100+p100+k40+k40");
    assert_string_equal(m->kinds[m->devices[1].kind].name, "p100");
    assert_string_equal(m->kinds[m->devices[2].kind].name, "k40");
    assert_int_equal(m->n_kinds, 2);
    machine_destroy(m);

    /* the same device with two memories is two kinds */
    m = parse("1x1:p100,memory=12GiB,1x1:p100,memory=8GiB,1x1:p100");
    assert_int_equal(m->n_kinds, 3);
    assert_true(machine_device_memory(m, 0) == INT64_C(12) << 30);
    assert_true(machine_device_memory(m, 1) == INT64_C(8) << 30);
    machine_destroy(m);
}

static void test_string_limits(void **state)
{
    (void)state;
    struct machine *m = parse("1x4096:cpu");
    assert_int_equal(m->n_devices, MACHINE_MAX_DEVICES);
    assert_round_trip(m);
    machine_destroy(m);
    m = parse("4096x1:h100");
    assert_int_equal(m->n_nodes, 4096);
    assert_round_trip(m);
    machine_destroy(m);
}

static void test_string_mistakes(void **state)
{
    (void)state;
    struct machine *m = NULL;
    const struct {
        const char *text, *part;
    } cases[] = {
        {"4x4:p10", "unknown device 'p10': did you mean 'p100'?"},
        {"4x4", "must be NODESxDEVICES:KIND"},
        {"4x4:", "unknown device ''"},
        {"4:p100", "'4:p100' must be NODESxDEVICES:KIND"},
        {"4xx:p100", "must be NODESxDEVICES:KIND"},
        {"0x4:p100", "from 1 to 4096"},
        {"4x0:p100", "from 1 to 4096"},
        {"4097x1:p100", "from 1 to 4096"},
        {"99999999999999999999x1:p100", "from 1 to 4096"},
        {"64x65:p100", "4160 devices are more than 4096"},
        {"4x4:p100,", "'' must be NODESxDEVICES:KIND"},
        {"4x4:p100,itra=15GB/s", "unknown option 'itra': did you mean 'intra'?"},
        {"4x4:p100,intra=fast", "intra=fast must be a bandwidth like 15GB/s"},
        {"4x4:p100,latency=5km", "latency=5km must be a time like 5us"},
        {"4x4:p100,memory=lots", "memory=lots must be a size like 16GiB"},
        {"4x4:p100,memory=0GiB", "memory=0GiB must be a size like 16GiB"},
        {"4x4:p100,inter=1GB/s,inter=2GB/s", "inter= stands there twice"},
        {"inter=1GB/s,4x4:p100", "inter= must stand behind the devices"},
        {"1x3:p100+k40", "2 kinds for 3 devices"},
        {"optcn", "unknown machine 'optcn': did you mean 'optcnn'?"},
        {"devices", "unknown machine 'devices'"},
        {"", "unknown machine ''"},
        {"synthetic:", "synthetic:"},
        {"synthetic:bottle:3", "synthetic:bottle:3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(machine_parse(cases[i].text, &m), STATUS_USAGE, cases[i].part);
    assert_fails(machine_parse("/nowhere/m.json", &m), STATUS_FAILED, "/nowhere/m.json: cannot");
    assert_fails(machine_parse("nowhere.xml", &m), STATUS_FAILED, "nowhere.xml: cannot open");
    assert_fails(machine_parse("/", &m), STATUS_FAILED, "/");
}

/* ---- what is compiled in ---- */

static void test_golden(void **state)
{
    (void)state;
    arena *memory;
    const char *const *names;
    int n = 0;
    assert_ok(arena_create(&memory));
    assert_ok(machine_names(memory, &names));
    for (; names[n]; n++) {
        struct machine *m = parse(names[n]);
        assert_string_equal(m->name, names[n]);
        assert_round_trip(m);
        machine_destroy(m);
    }
    assert_true(n >= 10);
    assert_ok(machine_kind_names(memory, &names));
    for (n = 0; names[n]; n++) {
        char text[120];
        (void)snprintf(text, sizeof text, "1x2:%s", names[n]);
        struct machine *m = parse(text);
        assert_string_equal(m->kinds[0].name, names[n]);
        assert_true(*m->kinds[0].about && *m->kinds[0].note);
        machine_destroy(m);
    }
    assert_true(n >= 11);
    arena_destroy(memory);
}

static void test_documents(void **state)
{
    (void)state;
    struct machine *file = parse("optcnn");
    struct machine *text = parse("4x4:p100,intra=15GB/s,intra_latency=0,inter=4.5GB/s,latency=0");
    assert_int_equal(file->n_devices, 16);
    assert_same_parts(text, file);
    assert_same_kinds(text, file);
    machine_destroy(file);
    machine_destroy(text);

    struct machine *m = parse("thesis");
    int hops[MACHINE_MAX_HOPS];
    assert_int_equal(m->n_devices, 16);
    assert_int_equal(machine_route(m, 4, 5, hops), 1); /* a bridged pair */
    assert_true(m->links[hops[0]].bytes_per_s == 47e9);
    assert_int_equal(machine_route(m, 5, 6, hops), 2);
    assert_true(m->links[m->node_out[2]].bytes_per_s == 5e9);
    machine_destroy(m);
}

/* ---- routes ---- */

static void test_routes(void **state)
{
    (void)state;
    struct machine *m = parse("2x2:p100");
    int hops[MACHINE_MAX_HOPS];
    assert_int_equal(machine_route(m, 1, 1, hops), 0);
    assert_int_equal(machine_route(m, 0, 1, hops), 2);
    assert_int_equal(hops[0], m->device_out[0]);
    assert_int_equal(hops[1], m->device_in[1]);
    assert_int_equal(machine_route(m, 1, 2, hops), 4);
    assert_int_equal(hops[0], m->device_out[1]);
    assert_int_equal(hops[1], m->node_out[0]);
    assert_int_equal(hops[2], m->node_in[1]);
    assert_int_equal(hops[3], m->device_in[2]);
    machine_destroy(m);
}

/* Links that are missing, shared, one-way, and of pairs. */
static void test_uneven_links(void **state)
{
    (void)state;
    struct machine *m = parse_json(
        "{\"cleave_machine\": 1, \"intra\": \"10GB/s\", \"intra_latency\": \"4us\","
        " \"kinds\": [{\"name\": \"slow\", \"like\": \"p100\", \"reached_flops_per_s\": 1e12,"
        "              \"memory_bytes\": \"4GiB\"}],"
        " \"links\": [{\"name\": \"bus\", \"bytes_per_s\": 1e9},"
        "             {\"name\": \"up\", \"bytes_per_s\": \"1Gbit/s\", \"latency_s\": \"1ms\"}],"
        " \"nodes\": [{\"name\": \"a\", \"out\": \"up\", \"in\": null, \"devices\": ["
        "     \"p100\", {\"kind\": \"slow\", \"out\": \"bus\", \"in\": \"bus\"},"
        "     {\"kind\": \"k40\", \"intra\": \"3GB/s\"}],"
        "   \"pairs\": [{\"from\": 2, \"to\": 0, \"link\": \"bus\"},"
        "               {\"between\": [0, 1], \"bytes_per_s\": \"50GB/s\"}]},"
        "   {\"count\": 2, \"name\": \"b\", \"inter\": 2e9, \"latency\": 0, \"memory_bytes\": 7,"
        "    \"cores\": 8, \"host\": \"c\","
        "    \"devices\": [{\"kind\": \"cpu\", \"count\": 2}]}]}");
    int hops[MACHINE_MAX_HOPS];
    assert_int_equal(m->n_nodes, 3);
    assert_string_equal(m->nodes[2].name, "b1");
    assert_true(m->kinds[0].reached_flops_per_s == 1e12);
    assert_true(m->kinds[0].peak_flops_per_s == 10.6e12);
    assert_int_equal(machine_route(m, 0, 1, hops), 1);
    assert_true(m->links[hops[0]].bytes_per_s == 50e9);
    assert_int_equal(machine_route(m, 2, 0, hops), 1);
    assert_string_equal(m->links[hops[0]].name, "bus");
    assert_int_equal(machine_route(m, 0, 2, hops), 2);
    assert_true(m->links[hops[0]].bytes_per_s == 10e9 && m->links[hops[0]].latency_s == 2e-6);
    assert_true(m->links[hops[1]].bytes_per_s == 3e9);
    assert_int_equal(machine_route(m, 1, 3, hops), 4);
    assert_string_equal(m->links[hops[1]].name, "up");
    assert_int_equal(machine_route(m, 3, 1, hops), 3); /* nothing in the way into node a */
    assert_true(m->links[hops[1]].bytes_per_s == 2e9);
    assert_round_trip(m);
    machine_destroy(m);
}

/* ---- files ---- */

static void test_files(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct machine *m = parse("mixed"), *back;
    m->wake_s = 1e-5 / 3;
    m->step_s = 0.1 + 0.2;
    char *text = write_text(m);
    test_write_file(test_path(path, "m.json"), text, strlen(text));
    back = parse(path);
    assert_same(m, back);
    machine_destroy(back);
    machine_destroy(m);
    free(text);

    /* the file's name is its machine's, if it says none */
    const char *small = "  {\"cleave_machine\": 1, \"nodes\": [{\"devices\": [\"k80\"]}]}";
    test_write_file(path, small, strlen(small));
    m = parse(path);
    assert_string_equal(m->name, path);
    assert_int_equal(m->n_links, 2);
    machine_destroy(m);
    test_write_file(path, "", 0);
    assert_fails(machine_parse(path, &m), STATUS_USAGE, "m.json:1:");
    test_write_file(path, "<a>", 3);
    assert_fails(machine_parse(path, &m), STATUS_USAGE, "m.json: ");
    test_write_file(path, "<topology version=\"9.9\"></topology>", 35);
    assert_fails(machine_parse(path, &m), STATUS_USAGE, "m.json: ");
    assert_fails(machine_parse(test_folder(), &m), STATUS_FAILED, "cannot read");
}

#define NODES "\"nodes\": [{\"devices\": [\"p100\"]}]"

static void test_file_mistakes(void **state)
{
    (void)state;
    struct machine *m = NULL;
    const struct {
        const char *text, *part;
    } cases[] = {
        {"{\n  \"cleave_machine\": 1,\n  nodes\n}", "m.json:3:"},
        {"{} {}", "m.json:1:"},
        {"[]", "m.json: a machine must be an object"},
        {"{}", "m.json: this is no machine file"},
        {"{\"cleave_machine\": 2}", "m.json: the machine file is of another version"},
        {"{\"cleave_machine\": 1}", "m.json: a machine needs its \"nodes\""},
        {"{\"cleave_machine\": 1, \"nodes\": []}", "m.json: nodes: must be a list that is not"},
        {"{\"cleave_machine\": 1, \"nods\": []}", "unknown key 'nods': did you mean 'nodes'?"},
        {"{\"cleave_machine\": 1, \"name\": 3, " NODES "}", "m.json: name: must be text"},
        {"{\"cleave_machine\": 1, \"intra\": \"x\", " NODES "}", "m.json: intra: must be a bandw"},
        {"{\"cleave_machine\": 1, \"intra\": 0, " NODES "}", "m.json: intra: must be a bandwidth"},
        {"{\"cleave_machine\": 1, \"intra_latency\": -1, " NODES "}", "m.json: intra_latency: "},
        {"{\"cleave_machine\": 1, \"nodes\": [3]}", "m.json: nodes/0: must be an object"},
        {"{\"cleave_machine\": 1, \"nodes\": [{}]}", "m.json: nodes/0: a node needs its"},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [\"p10\"]}]}",
         "m.json: nodes/0/devices/0: unknown device 'p10': did you mean 'p100'?"},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [{\"knd\": 1}]}]}",
         "m.json: nodes/0/devices/0: unknown key 'knd': did you mean 'kind'?"},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [{}]}]}",
         "a device needs its \"kind\""},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"count\": 0, \"devices\": [\"k40\"]}]}",
         "m.json: nodes/0/count: must be a whole number from 1 to 4096"},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"count\": 4096, \"devices\": [\"k40\", \"k40\"]}]}",
         "m.json: nodes/0/devices/0: more than 4096 devices"},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [{\"kind\": \"k40\", \"out\": "
         "\"a\"}]}]}",
         "unknown link 'a'"},
        {"{\"cleave_machine\": 1, \"links\": [{\"name\": \"a\", \"bytes_per_s\": 1}],"
         "\"nodes\": [{\"devices\": [{\"kind\": \"k40\", \"out\": \"a\"}]}]}",
         "names its \"out\" link but not its \"in\" link"},
        {"{\"cleave_machine\": 1, \"links\": [{\"name\": \"a\"}], " NODES "}",
         "m.json: links/0: a link needs its \"bytes_per_s\""},
        {"{\"cleave_machine\": 1, \"links\": [{\"bytes_per_s\": 1}], " NODES "}",
         "a link needs its \"name\""},
        {"{\"cleave_machine\": 1, \"links\": [{\"name\": \"a\", \"bytes_per_s\": 1},"
         "{\"name\": \"a\", \"bytes_per_s\": 1}], " NODES "}",
         "m.json: two links are named 'a'"},
        {"{\"cleave_machine\": 1, \"kinds\": [{\"name\": \"x\"}], " NODES "}",
         "m.json: device kind 'x': peak and reached figures must be above 0"},
        {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"x\"}], " NODES "}",
         "m.json: kinds/0: unknown device 'x'"},
        {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\"}, {\"like\": \"p100\"}], " NODES
         "}",
         "m.json: kinds/1: kind 'p100' is there twice"},
        {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"name\": \"y\","
         "\"reached_flops_per_s\": 1e15}], " NODES "}",
         "device kind 'y': what is reached must not be above the peak"},
        {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"class\": \"gpx\"}]}",
         "m.json: kinds/0/class: unknown class 'gpx': did you mean 'gpu'?"},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [\"k40\"], \"pairs\":"
         "[{\"between\": [0, 1], \"bytes_per_s\": 1}]}]}",
         "m.json: nodes/0/pairs/0: a pair is of devices of its node, numbers from 0 to 0"},
        {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [\"k40\"], \"pairs\":"
         "[{\"between\": [0, 0], \"bytes_per_s\": 1}]}]}",
         "\"between\" must be two devices of the node"},
        {"{\"cleave_machine\": 1, \"curves\": [{}], " NODES "}", "a curve needs its \"transport\""},
        {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": "
         "\"rng\"}], " NODES "}",
         "unknown operation 'rng': did you mean 'ring'?"},
        {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"ring\","
         "\"points\": [[1, 2]]}], " NODES "}",
         "m.json: curves/0/points/0: must be [bytes, seconds, cpu_s]"},
        {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"ring\","
         "\"points\": [[2, 2, 1], [1, 3, 1]]}], " NODES "}",
         "m.json: curve 0: its points must ascend in bytes"},
        {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"ring\","
         "\"points\": [[2, 2, 3]]}], " NODES "}",
         "cpu_s is a part of the seconds"},
        {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"message\","
         "\"members\": 3, \"points\": [[2, 2, 1]]}], " NODES "}",
         "a message has 2 members"},
        {"{\"cleave_machine\": 1, \"wake_s\": \"soon\", " NODES "}",
         "m.json: wake_s: must be a time"},
        {"{\"cleave_machine\": 1, \"name\": \"a\", \"name\": \"b\", " NODES "}", "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(machine_parse_json(cases[i].text, strlen(cases[i].text), "m.json", &m),
                     STATUS_USAGE, cases[i].part);
}

/* ---- hwloc ---- */

static bool has_hwloc(void)
{
    struct machine *m = NULL;
    bool there = machine_parse("synthetic:core:1 pu:1", &m) == STATUS_OK;
    status_clear();
    machine_destroy(m);
    return there;
}

static void test_hwloc(void **state)
{
    (void)state;
    if (!has_hwloc())
        skip();
    struct machine *m = parse("synthetic:package:2 core:4 pu:2");
    assert_int_equal(m->n_devices, 16);
    assert_int_equal(m->n_nodes, 1);
    assert_int_equal(m->kinds[0].class, MACHINE_CPU);
    assert_int_equal(m->kinds[0].cores, 1);
    assert_non_null(strstr(m->nodes[0].about, "2 packages, 8 cores, 16 hardware threads"));
    struct machine *core = parse("1x1:cpu"); /* two hardware threads have half a core each */
    assert_true(2 * m->kinds[0].peak_flops_per_s == core->kinds[0].peak_flops_per_s);
    assert_round_trip(m);
    machine_destroy(core);
    machine_destroy(m);

    m = parse(TESTS_DIR "/fixtures/host_gpus.xml");
    assert_int_equal(m->n_devices, 2); /* the GPUs, not the cores */
    assert_string_equal(m->nodes[0].name, "gpuhost");
    assert_string_equal(m->kinds[m->devices[0].kind].name, "v100-32");
    assert_string_equal(m->kinds[m->devices[1].kind].name, "p100-pcie");
    assert_true(m->nodes[0].memory_bytes == INT64_C(64) << 30);
    assert_round_trip(m);
    machine_destroy(m);
}

static void test_discover(void **state)
{
    (void)state;
    struct machine *m = parse("local"), *two;
    assert_string_equal(m->name, "local");
    assert_int_equal(m->n_nodes, 1);
    assert_int_equal(m->kinds[m->devices[0].kind].class, MACHINE_CPU);
    assert_true(m->nodes[0].memory_bytes > 1 << 20);
    assert_int_equal(m->n_curves, 0);
    assert_round_trip(m);
    assert_ok(machine_discover(2, &two));
    assert_int_equal(two->kinds[two->devices[0].kind].cores, 2);
    assert_true(two->n_devices <= (m->n_devices > 1 ? m->n_devices / 2 : 1));
    machine_destroy(two);
    assert_ok(machine_discover(100000, &two));
    assert_true(two->n_devices >= 1);
    machine_destroy(two);
    machine_destroy(m);
    assert_fails(machine_discover(0, &m), STATUS_USAGE, "at least one");
}

/* ---- checks ---- */

static void test_check(void **state)
{
    (void)state;
    struct machine *m = parse("2x2:p100");
    m->links[3].bytes_per_s = NAN;
    assert_fails(machine_check(m), STATUS_FAILED, "link 'dev1.in': its bandwidth");
    m->links[3].bytes_per_s = 1;
    m->links[3].latency_s = -1;
    assert_fails(machine_check(m), STATUS_FAILED, "link 'dev1.in': its latency");
    m->links[3].latency_s = 0;
    m->devices[2].node = 0;
    assert_fails(machine_check(m), STATUS_FAILED, "device 2 says it is on node 0");
    m->devices[2].node = 1;
    m->devices[2].kind = 1;
    assert_fails(machine_check(m), STATUS_FAILED, "device 2 is of kind 1 of 1");
    m->devices[2].kind = 0;
    m->nodes[1].first_device = 1;
    assert_fails(machine_check(m), STATUS_FAILED, "node 'node1': its devices do not follow");
    m->nodes[1].first_device = 2;
    m->nodes[1].n_devices = 1;
    assert_fails(machine_check(m), STATUS_FAILED, "1 devices are on no node");
    m->nodes[1].n_devices = 2;
    m->device_in[1] = 99;
    assert_fails(machine_check(m), STATUS_FAILED, "device 1 uses link 99");
    m->device_in[1] = -1;
    m->wake_s = INFINITY;
    assert_fails(machine_check(m), STATUS_FAILED, "wake_s");
    m->wake_s = 0;
    assert_ok(machine_check(m));
    machine_destroy(m);
    machine_destroy(NULL);
}

/* ---- less a node ---- */

static struct machine *lose(const char *text, const char *names)
{
    struct machine *m = parse(text), *rest = NULL;
    assert_ok(machine_without(m, names, &rest));
    assert_ok(machine_check(rest));
    assert_round_trip(rest);
    machine_destroy(m); /* the rest stands alone */
    return rest;
}

static void test_without(void **state)
{
    (void)state;
    int hops[MACHINE_MAX_HOPS];
    struct machine *m = lose("1x4:v100,2x2:p100,inter=1GB/s,1x2:k40,inter=2GB/s", "1");
    assert_int_equal(m->n_nodes, 3);
    assert_int_equal(m->n_devices, 8);
    assert_string_equal(m->nodes[1].name, "node2");
    assert_string_equal(m->kinds[m->devices[4].kind].name, "p100");
    assert_string_equal(m->kinds[m->devices[6].kind].name, "k40");
    assert_int_equal(machine_route(m, 4, 6, hops), 4);
    assert_near(m->links[hops[1]].bytes_per_s, 1e9, 1);
    assert_near(m->links[hops[2]].bytes_per_s, 2e9, 1);
    assert_non_null(strstr(m->name, " without 1"));
    machine_destroy(m);
    m = lose("4x4:p100", "node0,2"); /* by name and by number */
    assert_int_equal(m->n_devices, 8);
    assert_string_equal(m->nodes[0].name, "node1");
    assert_string_equal(m->nodes[1].name, "node3");
    machine_destroy(m);
}

static void test_without_mistakes(void **state)
{
    (void)state;
    struct machine *m = parse("2x4:p100"), *rest = NULL;
    const char *const unknown[] = {"2",  "-1",  "node2", "node", "node0,",
                                   "0 ", "0x1", ",1",    "NODE0"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_fails(machine_without(m, unknown[i], &rest), STATUS_USAGE, "node0 to node1");
    assert_fails(machine_without(m, "0,1", &rest), STATUS_USAGE, "no node is left");
    assert_fails(machine_without(m, "0,node1,0", &rest), STATUS_USAGE, "no node is left");
    assert_null(rest);
    machine_destroy(m);
}

/* ---- curves ---- */

static struct machine *machine_with_curves(void)
{
    return parse_json(
        "{\"cleave_machine\": 1, " NODES ", \"wake_s\": \"5us\", \"curves\": ["
        "{\"transport\": \"threads\", \"operation\": \"message\","
        " \"points\": [[1024, 1e-6, 0], [4096, 4e-6, 2e-6], [65536, 16e-6, 8e-6]]},"
        "{\"transport\": \"threads\", \"operation\": \"ring\", \"members\": 2,"
        " \"points\": [[1024, 1e-6, 1e-6]]},"
        "{\"transport\": \"threads\", \"operation\": \"ring\", \"members\": 8,"
        " \"points\": [[1024, 2e-6, 1e-6]]},"
        "{\"transport\": \"threads\", \"operation\": \"tree\", \"members\": 4,"
        " \"points\": [[1024, 3e-6, 1e-6]]},"
        "{\"transport\": \"mpi\", \"operation\": \"gather\", \"members\": 4,"
        " \"points\": [[1024, 4e-6, 1e-6]]},"
        "{\"transport\": \"mpi\", \"operation\": \"gather\", \"members\": 4, \"nodes\": 2,"
        " \"points\": [[1024, 5e-6, 1e-6]]}]}");
}

static void test_find_curve(void **state)
{
    (void)state;
    struct machine *m = machine_with_curves();
    assert_ptr_equal(machine_find_curve(m, "threads", false, COMM_RING, 2), &m->curves[0]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 2), &m->curves[1]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 3), &m->curves[1]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 5), &m->curves[2]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_RING, 64), &m->curves[2]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_TREE, 64), &m->curves[3]);
    assert_ptr_equal(machine_find_curve(m, "threads", true, COMM_GATHER, 4), &m->curves[1]);
    assert_ptr_equal(machine_find_curve(m, "mpi", true, COMM_RING, 4), &m->curves[4]);
    assert_null(machine_find_curve(m, "mpi", false, COMM_RING, 4));
    assert_null(machine_find_curve(m, "carrier pigeon", true, COMM_RING, 4));
    assert_ptr_equal(machine_find_network_curve(m, "mpi", true, COMM_RING, 4, 3), &m->curves[5]);
    assert_null(machine_find_network_curve(m, "threads", true, COMM_RING, 4, 2));
    assert_round_trip(m);
    machine_destroy(m);
}

static void test_curve_at(void **state)
{
    (void)state;
    struct machine *m = machine_with_curves();
    const struct machine_curve *c = &m->curves[0];
    assert_near(machine_curve_at(c, 1024).seconds * 1e6, 1, 1e-12);
    assert_near(machine_curve_at(c, 4096).seconds * 1e6, 4, 1e-12);
    assert_near(machine_curve_at(c, 2048).seconds * 1e6, 2, 1e-12);    /* half way, on logarithms */
    assert_near(machine_curve_at(c, 16384).seconds * 1e6, 8, 1e-12);   /* 4 to 16 */
    assert_near(machine_curve_at(c, 16384).cpu_s * 1e6, 4, 1e-12);     /* 2 to 8 */
    assert_near(machine_curve_at(c, 2048).cpu_s * 1e6, 1, 1e-12);      /* 0 to 2: even */
    assert_near(machine_curve_at(c, 1).seconds * 1e6, 1, 1e-12);       /* not below the first */
    assert_near(machine_curve_at(c, 655360).seconds * 1e6, 160, 1e-9); /* the last bandwidth */
    assert_near(machine_curve_at(c, 655360).cpu_s * 1e6, 80, 1e-9);
    assert_near(machine_curve_at(&m->curves[1], 2048).seconds * 1e6, 2, 1e-12);
    assert_near(machine_curve_at(&m->curves[1], 512).seconds * 1e6, 1, 1e-12);
    machine_destroy(m);
}

/* ---- measuring ---- */

struct seen {
    atomic_int bound[4];
    double share;
};

static void note_bind(int worker, int n_workers, void *user)
{
    struct seen *s = user;
    assert_int_equal(n_workers, 3);
    atomic_fetch_add(&s->bound[worker], 1);
}

static void note_progress(double share, void *user)
{
    struct seen *s = user;
    s->share = share;
}

static void check_measured(const struct machine *m, const char *transport)
{
    for (int i = 0; i < m->n_curves; i++) {
        const struct machine_curve *c = &m->curves[i];
        assert_string_equal(c->transport, transport);
        assert_int_equal(c->n_points, 2); /* 1 KiB and 16 KiB */
        assert_true(c->points[0].bytes == 1024 && c->points[1].bytes == 16384);
    }
}

static void test_measure_threads(void **state)
{
    (void)state;
    struct machine *m = parse("1x3:cpu");
    struct seen seen = {0};
    struct machine_measure_options o = {.workers = 3,
                                        .case_s = 1e-4,
                                        .largest_bytes = 1 << 14,
                                        .bind = note_bind,
                                        .progress = note_progress,
                                        .user = &seen};
    for (int again = 0; again < 2; again++) { /* the second time replaces what the first found */
        assert_ok(machine_measure_threads(m, &o));
        assert_int_equal(m->n_curves, 1 + 3 + 3); /* message; sums over 2 and over 3 */
        check_measured(m, "threads");
    }
    const struct machine_curve *c = machine_find_curve(m, "threads", true, COMM_TREE, 3);
    assert_int_equal(c->members, 3);
    assert_int_equal(c->method, COMM_TREE);
    assert_true(m->wake_s > 0 && m->wake_s < 1);
    assert_true(m->step_s > 0 && m->step_s < 1);
    assert_true(m->kinds[0].reached_bytes_per_s > 1e6);
    assert_true(seen.share > 0.3 && seen.share <= 1);
    for (int i = 0; i < 3; i++)
        assert_true(atomic_load(&seen.bound[i]) > 0);
    assert_round_trip(m);
    o.workers = 1;
    o.bind = NULL;
    assert_ok(machine_measure_threads(m, &o));
    assert_int_equal(m->n_curves, 7); /* nobody to measure with: what there was stays */
    o.workers = 0;
    assert_fails(machine_measure_threads(m, &o), STATUS_USAGE, "0 workers");
    machine_destroy(m);
}

/* Processes, played by threads: five ranks on three nodes. */
enum { RANKS = 5 };
static const int node_of_rank[RANKS] = {0, 0, 1, 1, 2};

struct rank {
    comm *end;
    pthread_t thread;
    enum status status;
    char *text; /* of its machine */
    struct status_error error;
};

static enum status measure_rank(struct rank *r)
{
    struct machine *own, *joined = NULL;
    struct machine_measure_options o = {.case_s = 1e-4, .largest_bytes = 1 << 14};
    size_t size;
    TRY(machine_parse(r->end->rank < 4 ? "1x2:cpu" : "1x1:cpu,memory=1GiB", &own));
    own->kinds[0].launch_s = 1e-6;
    if (r->end->rank == 2) /* another kind of the same name */
        own->kinds[0].reached_flops_per_s /= 2;
    enum status st = machine_join(r->end, own, node_of_rank, &joined);
    machine_destroy(own);
    TRY(st);
    st = machine_measure_processes(joined, r->end, node_of_rank, &o);
    FILE *f = st == STATUS_OK ? open_memstream(&r->text, &size) : NULL;
    if (f) {
        st = machine_write(joined, f);
        (void)fclose(f);
    }
    machine_destroy(joined);
    return st;
}

static void *run_rank(void *user)
{
    struct rank *r = user;
    r->status = measure_rank(r);
    if (r->status != STATUS_OK) {
        r->end->table->abort(r->end, r->status, status_message());
        status_take(r->status, &r->error);
    }
    return NULL;
}

static void check_joined(const struct machine *m)
{
    assert_int_equal(m->n_nodes, 3);
    assert_int_equal(m->n_devices, 5);
    assert_int_equal(m->n_kinds, 2);
    assert_string_equal(m->kinds[1].name, "cpu-2");
    assert_int_equal(m->devices[2].kind, 1);
    assert_int_equal(m->devices[4].kind, 0);
    assert_true(m->nodes[2].memory_bytes == INT64_C(1) << 30);
    /* one node: message, sums over 2; network: message, sums over all */
    assert_int_equal(m->n_curves, 1 + 3 + 1 + 3);
    check_measured(m, "threads");
    assert_int_equal(machine_find_network_curve(m, "threads", true, COMM_RING, 5, 3)->members, 5);
    for (int i = 0; i < 3; i++) {
        const struct machine_link *out = &m->links[m->node_out[i]], *in = &m->links[m->node_in[i]];
        assert_true(out->bytes_per_s != 12.5e9 && in->bytes_per_s != 12.5e9); /* measured */
        assert_true(out->latency_s > 0 && out->latency_s < 1);
    }
}

static void test_measure_processes(void **state)
{
    (void)state;
    struct rank ranks[RANKS] = {0};
    comm *ends[RANKS];
    assert_ok(comm_threads_create(RANKS, 20, ends));
    for (int i = 0; i < RANKS; i++) {
        ranks[i].end = ends[i];
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        assert_that(ranks[i].status == STATUS_OK, "rank %d: %s", i, ranks[i].error.message);
        assert_string_equal(ranks[i].text, ranks[0].text); /* all come to the same */
    }
    struct machine *m = parse_json(ranks[0].text);
    check_joined(m);
    machine_destroy(m);
    for (int i = 0; i < RANKS; i++) {
        free(ranks[i].text);
        ends[i]->table->destroy(ends[i]);
    }
}

/* ---- anything at all ---- */

static uint32_t draw(uint64_t *next, uint32_t sides)
{
    return random_word((struct random_key){7, RANDOM_TEST, 4}, 0, (*next)++) % sides;
}

/* Whatever is done to a good text: it is a machine that passes, or a refusal with a message. */
static void test_mangled(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "4x4:p100,intra=15GB/s,inter=4.5GB/s", "2x4:v100,intra=130GB/s,1x8:k80,inter=10GB/s",
        "1x4:p100+p100+k40+k40,memory=16GiB", "synthetic:package:2 core:4 pu:2", "optcnn"};
    static const char letters[] = "0123456789xX:,=+./GBMibts pk unatrel-\x80\xff\n";
    uint64_t next = 0;
    int accepted = 0;
    for (int run = 0; run < 3000; run++) {
        char text[120];
        struct machine *m = NULL;
        (void)snprintf(text, sizeof text, "%s", seeds[draw(&next, 5)]);
        for (uint32_t i = 0, n = 1 + draw(&next, 4); i < n && *text; i++) {
            size_t at = draw(&next, (uint32_t)strlen(text));
            if (draw(&next, 3) == 0)
                memmove(text + at, text + at + 1, strlen(text + at));
            else
                text[at] = letters[draw(&next, sizeof letters - 1)];
        }
        if (machine_parse(text, &m) == STATUS_OK) {
            assert_ok(machine_check(m));
            accepted++;
        } else {
            assert_that(*status_message(), "'%s' is refused without a message", text);
        }
        status_clear();
        machine_destroy(m);
    }
    assert_true(accepted > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_string),
        cmocka_unit_test(test_string_defaults),
        cmocka_unit_test(test_string_groups),
        cmocka_unit_test(test_string_limits),
        cmocka_unit_test(test_string_mistakes),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_uneven_links),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_file_mistakes),
        cmocka_unit_test(test_hwloc),
        cmocka_unit_test(test_discover),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_without),
        cmocka_unit_test(test_without_mistakes),
        cmocka_unit_test(test_find_curve),
        cmocka_unit_test(test_curve_at),
        cmocka_unit_test(test_measure_threads),
        cmocka_unit_test(test_measure_processes),
        cmocka_unit_test(test_mangled),
    };
    return test_run(tests);
}
