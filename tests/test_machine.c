/* Machines: from strings, files and hwloc, written and read back, their routes, and every mistake
 * refused. Curves and measuring are in test_machine_measure. */
#include "base/random.h"
#include "machines.h"

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
                 {"40Gbps", 5e9},       {"1e9B/s", 1e9},       {"56Gb/s", 7e9},
                 {"100Mbit/s", 12.5e6}, {"900kB/s", 9e5},      {"900KB/s", 9e5},
                 {"3B/s", 3},           {".5GBps", 5e8},       {"2TB/s", 2e12}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        assert_that(machine_parse_bandwidth(rates[i].text, &x), "%s", rates[i].text);
        assert_near(x / rates[i].value, 1, 1e-12);
    }
    const char *const no_rates[] = {"",       "GB/s",   "-1GB/s", "0GB/s", "15GB", "15GB/h",
                                    "15 Q/s", "nan",    "inf",    "0x10",  "1e30", "15GB/s ",
                                    "15 GBs", "15gB/s", "1e999",  "400",   "1e9"};
    for (size_t i = 0; i < sizeof no_rates / sizeof *no_rates; i++)
        assert_that(!machine_parse_bandwidth(no_rates[i], &x), "%s", no_rates[i]);
    assert_true(machine_parse_seconds("5us", &x) && x == 5e-6);
    assert_true(machine_parse_seconds("1.5 ms", &x) && x == 1.5e-3);
    assert_true(machine_parse_seconds("0", &x) && x == 0);
    assert_true(machine_parse_seconds("200ns", &x) && x == 2e-7);
    assert_true(machine_parse_seconds("5 s", &x) && x == 5);
    assert_false(machine_parse_seconds("5min", &x));
    assert_false(machine_parse_seconds("-5us", &x));
    assert_true(machine_parse_bytes("16GiB", &n) && n == INT64_C(16) << 30);
    assert_true(machine_parse_bytes("11 GB", &n) && n == 11000000000);
    assert_true(machine_parse_bytes("123B", &n) && n == 123);
    assert_false(machine_parse_bytes("123", &n));
    assert_false(machine_parse_seconds("5", &x));
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

/* Members that are written only after measuring read back, too. */
static void test_measured_between_hosts(void **state)
{
    (void)state;
    struct machine *m = parse("2x1:cpu");
    m->wake_s = 1e-5;
    m->deep_wake_s = 1e-4 / 3;
    m->ring_s = 2e-6 / 3;
    m->wait_share = 0.125;
    m->far_byte_s = 2.5e-10;
    m->links[m->node_out[1]].burst_bytes = 65536;
    m->nodes[1].cores = m->nodes[1].own_cores = 3;
    assert_ok(machine_check(m));
    assert_round_trip(m);
    m->wait_share = 1;
    assert_fails(machine_check(m), STATUS_FAILED, "wait_share");
    m->wait_share = 0;
    m->nodes[1].own_cores = 2;
    assert_fails(machine_check(m), STATUS_FAILED, "own_cores");
    machine_destroy(m);
}

static double out_of_device(const struct machine *m)
{
    return m->links[m->device_out[0]].bytes_per_s;
}

static double out_of_node(const struct machine *m, int node)
{
    return m->links[m->node_out[node]].bytes_per_s;
}

/* What a string does not say is as nodes of the kind are sold, and the machine says so. */
static void test_links_as_sold(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double device, node;
        const char *note; /* a part of it; NULL: there is none */
    } cases[] = {
        {"8x8:h200", 450e9, 400e9,
         "links of h200 nodes as sold (DGX H200: NVSwitch, an adapter of"},
        {"2x8:h100", 450e9, 400e9, "450 GB/s for each device, 400 GB/s for each node of 8"},
        {"2x4:h100", 450e9, 200e9, "200 GB/s for each node of 4"},
        {"2x8:a100-80", 300e9, 200e9, "DGX A100"},
        {"2x8:a100-40", 300e9, 200e9, "DGX A100"},
        {"2x8:v100", 150e9, 50e9, "DGX-1"},
        {"4x1:v100", 150e9, 12.5e9, "12.5 GB/s for each node of 1"},
        {"2x3:p100", 35e9, 25e9, "DGX-1"},
        {"2x4:gtx1080", 11e9, 12.5e9,
         "links of gtx1080 nodes: 11 GB/s for each device, 12.5 GB/s for each node of 4"},
        {"8x8:h200,intra=380GB/s", 380e9, 400e9, "each GPU): 400 GB/s for each node of 8"},
        {"8x8:h200,inter=12.5GB/s", 450e9, 12.5e9, "each GPU): 450 GB/s for each device"},
        {"8x8:h200,intra=380GB/s,inter=100Gbit/s", 380e9, 12.5e9, NULL},
        {"2x4:h200+h200+v100+v100,intra=1GB/s", 1e9, 112.5e9, "; v100 nodes as sold"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct machine *m = parse(cases[i].text), *rest;
        assert_near(out_of_device(m) / cases[i].device, 1, 1e-9);
        assert_near(out_of_node(m, 1) / cases[i].node, 1, 1e-9);
        assert_that(cases[i].note ? strstr(m->links_note, cases[i].note) != NULL : !*m->links_note,
                    "%s: '%s'", cases[i].text, m->links_note);
        assert_ok(machine_without(m, "node0", &rest));
        assert_string_equal(rest->links_note, m->links_note);
        assert_round_trip(m);
        machine_destroy(rest);
        machine_destroy(m);
    }
    struct machine *m = parse("1x4:cpu");
    assert_string_equal(m->links_note, "");
    machine_destroy(m);
    m = parse("hgx-h200");
    assert_non_null(strstr(m->links_note, "links of h200 nodes as sold"));
    machine_destroy(m);
    m = parse("optcnn");
    assert_string_equal(m->links_note, "");
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
        {"4x4:p100,inter=400", "inter=400 must be a bandwidth like 15GB/s or 100Gbit/s, with its "
                               "unit: B/s or bit/s"},
        {"4x4:p100,latency=5", "latency=5 must be a time like 5us, with its unit: s, ms, us"},
        {"4x4:p100,memory=16", "memory=16 must be a size like 16GiB, with its unit"},
        {"1x8:a100", "unknown device 'a100': did you mean 'a100-40' or 'a100-80'?"},
        {"4x4:p100,inter=1GB/s,inter=2GB/s", "inter= is given twice"},
        {"inter=1GB/s,4x4:p100", "inter= must come after its devices"},
        {"1x3:p100+k40", "2 kinds for 3 devices"},
        {"optcn", "unknown machine 'optcn': did you mean 'optcnn'?"},
        {"devices", "unknown machine 'devices'"},
        {"", "unknown machine ''"},
        {"synthetic:", "synthetic:"},
        {"synthetic:bottle:3", "synthetic:bottle:3"},
        {"synthetic:bot\x1b[2Jtle:3", "synthetic:bot\\x1b[2Jtle:3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(machine_parse(cases[i].text, &m), STATUS_USAGE, cases[i].part);
    assert_fails(machine_parse("/nowhere/m.json", &m), STATUS_FAILED, "/nowhere/m.json: cannot");
    assert_fails(machine_parse("nowhere.xml", &m), STATUS_FAILED, "nowhere.xml: cannot open");
    assert_fails(machine_parse("/", &m), STATUS_FAILED, "/");
}

/* ---- compiled-in machines ---- */

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
    assert_true(m->kinds[0].rates[ARITHMETIC_F32].reached == 1e12);
    assert_true(m->kinds[0].rates[ARITHMETIC_F32].peak == 10.6e12);
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

/* ---- rates ---- */

static void test_rates(void **state)
{
    (void)state;
    /* The form with one rate is that of single precision; others come from the list. */
    struct machine *m = parse_json(
        "{\"cleave_machine\": 1,"
        " \"kinds\": [{\"name\": \"old\", \"like\": \"k80\", \"reached_flops_per_s\": 2e12},"
        "   {\"name\": \"new\", \"like\": \"v100\","
        "    \"rates\": {\"fp16\": {\"peak\": 1e14, \"reached\": 5e13},"
        "              \"tf32\": {\"peak\": 3e13, \"reached\": 2e13}}}],"
        " \"nodes\": [{\"devices\": [\"old\", \"new\"]}]}");
    const struct machine_kind *old = &m->kinds[0], *new = &m->kinds[1];
    assert_true(machine_kind_rate(old, ARITHMETIC_F32).reached == 2e12);
    assert_true(machine_kind_rate(old, ARITHMETIC_F16).reached == 0);
    assert_true(machine_kind_rate(new, ARITHMETIC_F16).peak == 1e14);
    assert_true(machine_kind_rate(new, ARITHMETIC_TF32).reached == 2e13);
    assert_true(machine_kind_rate(new, ARITHMETIC_F64).peak == 7.8e12); /* the library's */
    assert_round_trip(m);
    assert_ok(machine_check_rates(m, PRECISION_DOUBLE));
    assert_fails(machine_check_rates(m, PRECISION_FP16), STATUS_USAGE,
                 "device 'old' has no rate for fp16: it has those for float, double");
    machine_destroy(m);

    /* Cores widen bf16, and compute in double at half the rate. */
    m = parse("1x1:cpu");
    const struct machine_kind *cpu = &m->kinds[0];
    assert_true(machine_kind_rate(cpu, ARITHMETIC_BF16).reached ==
                cpu->rates[ARITHMETIC_F32].reached);
    assert_true(machine_kind_rate(cpu, ARITHMETIC_F64).reached ==
                cpu->rates[ARITHMETIC_F32].reached / 2);
    assert_fails(machine_check_rates(m, PRECISION_TF32), STATUS_USAGE, "float, double, bf16");
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
    assert_fails(machine_parse(path, &m), STATUS_FAILED, "m.json:1:");
    test_write_file(path, "<a>", 3);
    assert_fails(machine_parse(path, &m), STATUS_FAILED, "m.json: ");
    test_write_file(path, "<topology version=\"9.9\"></topology>", 35);
    assert_fails(machine_parse(path, &m), STATUS_FAILED, "m.json: ");
    assert_fails(machine_parse(test_folder(), &m), STATUS_FAILED, "cannot read");
}

static const struct {
    const char *text, *part;
} file_mistakes[] = {
    {"{\n  \"cleave_machine\": 1,\n  nodes\n}", "m.json:3:"},
    {"{} {}", "m.json:1:"},
    {"[]", "m.json:1: a machine must be an object"},
    {"{}", "m.json:1: this is no machine"},
    {"{\"cleave_machine\": 2}", "m.json:1: cleave_machine: the machine is of another version"},
    {"{\"cleave_machine\": 1}", "m.json:1: a machine needs its \"nodes\""},
    {"{\"cleave_machine\": 1, \"nodes\": []}", "m.json:1: nodes must be a list that is not"},
    {"{\"cleave_machine\": 1, \"nods\": []}", "unknown key 'nods': did you mean 'nodes'?"},
    {"{\"cleave_machine\": 1, \"name\": 3, " NODES "}", "m.json:1: name must be text"},
    {"{\"cleave_machine\": 1, \"intra\": \"x\", " NODES "}", "m.json:1: intra must be a bandw"},
    {"{\"cleave_machine\": 1, \"intra\": 0, " NODES "}", "m.json:1: intra must be a bandwidth"},
    {"{\"cleave_machine\": 1, \"intra_latency\": -1, " NODES "}",
     "m.json:1: intra_latency must be"},
    {"{\"cleave_machine\": 1, \"nodes\": [3]}", "m.json:1: nodes/0 must be an object"},
    {"{\"cleave_machine\": 1, \"nodes\": [{}]}", "m.json:1: nodes/0: a node needs its"},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [\"p10\"]}]}",
     "m.json:1: nodes/0/devices/0: unknown device 'p10': did you mean 'p100'?"},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [{\"knd\": 1}]}]}",
     "m.json:1: nodes/0/devices/0/knd: unknown key 'knd': did you mean 'kind'?"},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [{}]}]}", "a device needs its \"kind\""},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"count\": 0, \"devices\": [\"k40\"]}]}",
     "m.json:1: nodes/0/count must be a whole number from 1 to 4096"},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"count\": 4096, \"devices\": [\"k40\", \"k40\"]}]}",
     "m.json:1: nodes/0/devices/0: more than 4096 devices"},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [{\"kind\": \"k40\", \"out\": "
     "\"a\"}]}]}",
     "unknown link 'a'"},
    {"{\"cleave_machine\": 1, \"links\": [{\"name\": \"a\", \"bytes_per_s\": 1}],"
     "\"nodes\": [{\"devices\": [{\"kind\": \"k40\", \"out\": \"a\"}]}]}",
     "names its \"out\" link but not its \"in\" link"},
    {"{\"cleave_machine\": 1, \"links\": [{\"name\": \"a\"}], " NODES "}",
     "m.json:1: links/0: a link needs its \"bytes_per_s\""},
    {"{\"cleave_machine\": 1, \"links\": [{\"bytes_per_s\": 1}], " NODES "}",
     "a link needs its \"name\""},
    {"{\"cleave_machine\": 1, \"links\": [{\"name\": \"a\", \"bytes_per_s\": 1},"
     "{\"name\": \"a\", \"bytes_per_s\": 1}], " NODES "}",
     "m.json:1: two links are named 'a'"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"name\": \"x\"}], " NODES "}",
     "m.json:1: device kind 'x': peak and reached figures must be from 1 to 1e24"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"name\": \"x\", "
     "\"reached_flops_per_s\": 1e-300}], " NODES "}",
     "m.json:1: device kind 'x': peak and reached figures must be from 1 to 1e24"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"name\": \"x\", "
     "\"peak_flops_per_s\": 1e300}], " NODES "}",
     "m.json:1: device kind 'x': peak and reached figures must be from 1 to 1e24"},
    {"{\"cleave_machine\": 1, \"links\": [{\"name\": \"a\", \"bytes_per_s\": 1e300}], " NODES "}",
     "m.json:1: link 'a': its bandwidth must be from 1 to 1e24 bytes a second"},
    {"{\"cleave_machine\": 1, \"name\": \"a\\u001b[2J\", " NODES "}",
     "m.json:1: name must be text without control characters"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"x\"}], " NODES "}",
     "m.json:1: kinds/0: unknown device 'x'"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\"}, {\"like\": \"p100\"}], " NODES "}",
     "m.json:1: kinds/1: kind 'p100' is there twice"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"name\": \"y\","
     "\"reached_flops_per_s\": 1e15}], " NODES "}",
     "device kind 'y': reached figures must not be above the peak"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"name\": \"y\","
     "\"rates\": {\"fp17\": {\"peak\": 1, \"reached\": 1}}}], " NODES "}",
     "did you mean 'fp16'?"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"name\": \"y\","
     "\"rates\": {\"tf32\": {\"peak\": 1e12}}}], " NODES "}",
     "device kind 'y': a rate has a peak and a reached figure from 1 to"},
    {"{\"cleave_machine\": 1, \"kinds\": [{\"like\": \"p100\", \"class\": \"gpx\"}]}",
     "m.json:1: kinds/0/class: unknown class 'gpx': did you mean 'gpu'?"},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [\"k40\"], \"pairs\":"
     "[{\"between\": [0, 1], \"bytes_per_s\": 1}]}]}",
     "m.json:1: nodes/0/pairs/0: a pair is of devices of its node, numbers from 0 to 0"},
    {"{\"cleave_machine\": 1, \"nodes\": [{\"devices\": [\"k40\"], \"pairs\":"
     "[{\"between\": [0, 0], \"bytes_per_s\": 1}]}]}",
     "\"between\" must be two devices of the node"},
    {"{\"cleave_machine\": 1, \"curves\": [{}], " NODES "}", "a curve needs its \"transport\""},
    {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": "
     "\"rng\"}], " NODES "}",
     "unknown operation 'rng': did you mean 'ring'?"},
    {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"ring\","
     "\"points\": [[1, 2]]}], " NODES "}",
     "m.json:1: curves/0/points/0 must be [bytes, seconds, cpu_s]"},
    {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"ring\","
     "\"points\": [[2, 2, 1], [1, 3, 1]]}], " NODES "}",
     "m.json:1: curve 0: its points must ascend in bytes"},
    {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"ring\","
     "\"points\": [[2, 2, 3]]}], " NODES "}",
     "cpu_s is a part of the seconds"},
    {"{\"cleave_machine\": 1, \"curves\": [{\"transport\": \"t\", \"operation\": \"message\","
     "\"members\": 3, \"points\": [[2, 2, 1]]}], " NODES "}",
     "a message has 2 members"},
    {"{\"cleave_machine\": 1, \"wake_s\": \"soon\", " NODES "}", "m.json:1: wake_s must be a time"},
    {"{\"cleave_machine\": 1, \"name\": \"a\", \"name\": \"b\", " NODES "}", "duplicate"},
};

static void test_file_mistakes(void **state)
{
    (void)state;
    struct machine *m = NULL;
    for (size_t i = 0; i < sizeof file_mistakes / sizeof *file_mistakes; i++)
        assert_fails(
            machine_parse_json(file_mistakes[i].text, strlen(file_mistakes[i].text), "m.json", &m),
            STATUS_FAILED, file_mistakes[i].part);
    assert_fails(machine_parse("{\"cleave_machine\": 2}", &m), STATUS_USAGE, "the machine:1:");
}

/* ---- hwloc ---- */

/* Only a build without hwloc may refuse its files. */
static bool has_hwloc(void)
{
    struct machine *m = NULL;
    bool there = machine_parse("synthetic:core:1 pu:1", &m) == STATUS_OK;
    assert_that(there || strstr(status_message(), "this build has no hwloc"), "%s",
                status_message());
    status_clear();
    machine_destroy(m);
    return there;
}

static void test_hwloc(void **state)
{
    (void)state;
    if (!has_hwloc())
        skip_because("this build has no hwloc");
    struct machine *m = parse("synthetic:package:2 core:4 pu:2");
    assert_int_equal(m->n_devices, 16);
    assert_int_equal(m->n_nodes, 1);
    assert_int_equal(m->kinds[0].class, MACHINE_CPU);
    assert_int_equal(m->kinds[0].cores, 1);
    assert_non_null(strstr(m->nodes[0].about, "2 packages, 8 cores, 16 hardware threads"));
    struct machine *core = parse("1x1:cpu"); /* two hardware threads have half a core each */
    assert_true(2 * m->kinds[0].rates[ARITHMETIC_F32].peak ==
                core->kinds[0].rates[ARITHMETIC_F32].peak);
    assert_round_trip(m);
    machine_destroy(core);
    machine_destroy(m);
    /* hwloc would take minutes, and the machine be refused then */
    assert_fails(machine_parse("synthetic:package:2(indexes=0,1) [numa] core:65536 pu:1", &m),
                 STATUS_USAGE, "describes 131072 processing units, at most 8192");
    assert_fails(machine_parse("synthetic:99999999999 99999999999 2", &m), STATUS_USAGE,
                 "processing units, at most 8192");

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
        cmocka_unit_test(test_measured_between_hosts),
        cmocka_unit_test(test_links_as_sold),
        cmocka_unit_test(test_string_limits),
        cmocka_unit_test(test_string_mistakes),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_uneven_links),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_file_mistakes),
        cmocka_unit_test(test_hwloc),
        cmocka_unit_test(test_discover),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_without),
        cmocka_unit_test(test_without_mistakes),
        cmocka_unit_test(test_mangled),
    };
    return test_run(tests);
}
