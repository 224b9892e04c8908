/* The clock on CPUs: communication, neighbours and the making of samples want the cores that
 * compute; what it says is what a formula says. */
#include "plan_suite.h"
#include "scene.h"

/* ---- CPUs ---- */

/* Every sum takes 1 s, of which the cores work 0.4. */
static const struct machine_point flat[2] = {{1, 1, 0.4, 0}, {1e9, 1, 0.4, 0}};
static struct machine_curve curves[2] = {
    {"threads", true, COMM_RING, 2, 1, 2, flat},
    {"threads", false, COMM_GATHER, 2, 1, 2, flat},
};

static void place_on_cores(struct scene *s, const char *machine)
{
    scene_place(s, machine);
    s->machine->curves = curves;
    s->machine->n_curves = 2;
}

/* Two buckets: all but the convolutions' parameters, and those. */
static void split_in_two_buckets(struct scene *s)
{
    scene_split(s, "data", &(struct plan_request){.n_workers = 2, .bucket_bytes = 236000});
    assert_int_equal(s->programs[0]->n_reductions, 2);
}

/* A sum that is over in a moment is hidden behind the last backward; taking part took each 0.4 s,
 * which they owe until they compute. */
static void test_taking_part_takes_cores(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    split_in_two_buckets(&s);
    place_on_cores(&s, "1x2:cpu");
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], true, 0, -1), 10);
    const struct clock_result *r = scene_run(&s);
    assert_seconds(r->step_s, 10.4 + 1);
    assert_seconds(r->workers[1].wait_s, 1 - 0.4);
    assert_seconds(r->workers[1].communicate_s, 2);
    /* A sleeping worker must be woken to go on behind the second sum, after a sleep of 1 s. */
    s.machine->wake_s = 0.01;
    s.machine->deep_wake_s = 0.02;
    assert_seconds(scene_step(&s), 10.4 + 1 + 0.02);
    s.options.free_communication = true;
    assert_seconds(scene_step(&s), 10);
    scene_close(&s);
}

/* The member that arrives last signals the sleepers, which delays the operation, and the member
 * itself if it has anything else to do. */
static void test_sleepers_are_signalled(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "layers", &(struct plan_request){.n_workers = 2});
    place_on_cores(&s, "1x2:cpu");
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], false, 0, -1), 3);
    double before_s = scene_step(&s);
    s.machine->ring_s = 0.125; /* once for worker 1, and once for worker 0, which then sleeps */
    assert_seconds(scene_step(&s), before_s + 0.25);
    /* which is the begin of waking up, and is not waited for twice */
    s.machine->wake_s = s.machine->deep_wake_s = 0.5;
    assert_seconds(scene_step(&s), before_s + 1);
    scene_close(&s);
}

/* ---- work that members share ---- */

/* Of messages that take 1 s if they are so long, and as much less or more as they are shorter or
 * longer; `line` must outlive it. */
static struct machine_curve rise_to_one(struct machine_point line[2], int64_t bytes)
{
    double each = 1 / (double)bytes, most = 1e12;
    line[0] = (struct machine_point){1, each, each, 0};
    line[1] = (struct machine_point){most, most * each, most * each, 0};
    return (struct machine_curve){"threads", false, COMM_GATHER, 2, 1, 2, line};
}

/* Two stages, of which worker 1 sends a gradient of `*bytes` and then computes for 10 s, beside
 * others 3 times as long if `slows`. A message of that length takes 1 s between two that wait:
 * `line` has the two points of a curve of so much for each byte, and must outlive the scene. */
static int open_large_message(struct scene *s, struct machine_point line[2], bool slows,
                              int64_t *bytes)
{
    static struct machine_curve curve;
    scene_open(s, suite_build("lenet5", 262144));
    scene_split(s, "gpipe", &(struct plan_request){.n_workers = 2, .micro_batches = 2});
    scene_place(s, "1x2:cpu");
    int send = scene_find_kind(s->programs[1], INSTR_SEND, 0);
    int backward = scene_find_run(s->programs[1], true, 0, 0);
    *bytes = s->programs[1]->messages[s->programs[1]->instrs[send].index].n_bytes;
    curve = rise_to_one(line, *bytes);
    s->machine->curves = &curve;
    s->machine->n_curves = 1;
    scene_cost_between(s, 1, backward, 10, slows ? 30 : 10);
    return backward;
}

/* The sender does four of its chunks and computes on; the waiting receiver does all others, so that
 * it takes nearly twice as long as if both had waited. */
static void test_a_waiting_worker_does_the_work(void **state)
{
    (void)state;
    struct scene s;
    struct machine_point line[2];
    int64_t bytes = 0;
    int backward = open_large_message(&s, line, false, &bytes);
    double chunks = (double)comm_cut(bytes, 1, 2).n, visit = COMM_CHUNKS_PER_POLL / chunks;
    assert_true(chunks > 50);
    (void)scene_run(&s);
    int send = scene_find_kind(s.programs[1], INSTR_SEND, 0);
    assert_near(scene_took(&s, 1, send), 2 * (1 - visit), 1e-5);
    assert_seconds(scene_took(&s, 1, backward), 10);
    scene_close(&s);
}

/* A copying worker is a busy neighbour: backward runs at a third of its speed beside it, and the
 * copy, as much slower as instructions are with all busy, takes three times as long. */
static void test_copying_beside_computing(void **state)
{
    (void)state;
    struct scene s;
    struct machine_point line[2];
    int64_t bytes = 0;
    int backward = open_large_message(&s, line, true, &bytes);
    double visit = COMM_CHUNKS_PER_POLL / (double)comm_cut(bytes, 1, 2).n;
    double copy_s = 3 * 2 * (1 - visit);
    (void)scene_run(&s);
    int send = scene_find_kind(s.programs[1], INSTR_SEND, 0);
    assert_near(scene_took(&s, 1, send), copy_s, 1e-4);
    assert_near(scene_took(&s, 1, backward), 10 + copy_s * 2 / 3, 1e-4);
    scene_close(&s);
}

/* While all members compute nothing moves but what each does in between: of a sum over two in eight
 * chunks the one that came last does half, and the other the rest, when it has computed. */
static void test_who_computes_looks_in_between(void **state)
{
    (void)state;
    struct scene s;
    static const struct machine_point rising[2] = {{1, 1e-6, 1e-6, 0}, {1e12, 1e6, 1e6, 0}};
    static struct machine_curve curve = {"threads", true, COMM_RING, 2, 1, 2, rising};
    scene_open(&s, suite_build("lenet5", 8));
    split_in_two_buckets(&s);
    scene_place(&s, "1x2:cpu");
    s.machine->curves = &curve;
    s.machine->n_curves = 1;
    int sum = scene_find_kind(s.programs[1], INSTR_REDUCE, 0), next = sum + 1;
    while (s.programs[1]->instrs[next].stream != STREAM_COMPUTE)
        next++;
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, next, 10);
    scene_cost(&s, 0, 0, 1); /* worker 1 comes to it a second before worker 0 */
    (void)scene_run(&s);
    assert_near(scene_took(&s, 0, sum), 9, 1e-5);
    assert_near(scene_took(&s, 1, sum), 10, 1e-5);
    /* Each owes the time of its half, and worker 0, which came last to the other sum too, more. */
    double half_s = 4e-6 * (double)s.programs[1]->reductions[0].spec.count;
    assert_near(s.result.workers[1].compute_s, 10 + half_s, 1e-5);
    assert_true(s.result.workers[0].compute_s > 11 + half_s);
    scene_close(&s);
}

/* Two hosts, a worker on each, that compute for 10 s; the curves measured between them are in
 * `network`, which must outlive the scene. */
static void open_between_hosts(struct scene *s, struct machine_curve network[2])
{
    for (int i = 0; i < 2; i++) {
        network[i] = curves[i];
        network[i].nodes = 2;
    }
    scene_open(s, suite_build("lenet5", 8));
    split_in_two_buckets(s);
    place_on_cores(s, "2x1:cpu,intra=1e9GB/s,intra_latency=0,inter=1e9GB/s,latency=0");
    s->machine->curves = network;
    for (int w = 0; w < 2; w++)
        scene_cost(s, w, scene_find_run(s->programs[w], true, 0, -1), 10);
}

/* Between hosts the links decide how long a message takes, the curves what it costs the cores; a
 * sum over as many as were measured takes the measured time. */
static void test_networks_take_cores(void **state)
{
    (void)state;
    struct machine_curve network[2];
    struct scene s;
    open_between_hosts(&s, network);
    /* Of what a core does with nothing else to do, 0.4 are needed. */
    assert_seconds(scene_step(&s), 10.16 + 1);
    network[0].members = 3; /* somebody else's: 4/3 of the bytes */
    assert_seconds(scene_step(&s), 10.16 + 0.75);
    scene_split(&s, "gpipe", &(struct plan_request){.n_workers = 2, .micro_batches = 2});
    int backward = scene_find_run(s.programs[1], true, 0, 0);
    scene_cost(&s, 1, backward, 10);
    (void)scene_run(&s);
    assert_seconds(scene_took(&s, 1, scene_find_kind(s.programs[1], INSTR_SEND, 0)), 0.16);
    assert_seconds(scene_took(&s, 1, backward), 10 + 0.16 * 0.95);
    scene_close(&s);
}

/* Waiting for another host takes a share of the core that computes; where bytes were measured, they
 * and not the curve say what transfers take of it. */
static void test_waiting_for_hosts_takes_cores(void **state)
{
    (void)state;
    struct machine_curve network[2];
    struct scene s;
    open_between_hosts(&s, network);
    s.machine->wait_share = 0.25; /* for the second that the first sum takes */
    assert_seconds(scene_step(&s), 10 + 0.16 + 0.25 + 1);
    const struct comm_reduction *first = &s.programs[0]->reductions[0].spec;
    s.machine->far_byte_s = 0.1 / (2 * (double)comm_reduce_sent_bytes(first, 0));
    assert_seconds(scene_step(&s), 10 + 0.1 + 0.25 + 1);
    scene_close(&s);
}

/* A sender goes on when the rest of its message is in buffers. */
static void test_networks_buffer_messages(void **state)
{
    (void)state;
    const struct machine_point points[2] = {{1, 1, 0, 0.25}, {1e9, 1, 0, 0.25}};
    struct machine_curve curve = {"threads", false, COMM_GATHER, 2, 2, 2, points};
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "layers", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "2x1:cpu,intra=1e9GB/s,intra_latency=0,inter=1MB/s,latency=0");
    s.machine->curves = &curve;
    s.machine->n_curves = 1;
    (void)scene_run(&s);
    const struct program *p = s.programs[0];
    int send = scene_find_kind(p, INSTR_SEND, 0);
    double whole_s = (double)p->messages[p->instrs[send].index].n_bytes / 1e6;
    int receive = scene_find_kind(s.programs[1], INSTR_RECEIVE, 0);
    assert_seconds(scene_took(&s, 0, send), 0.25 * whole_s);
    assert_seconds(scene_took(&s, 1, receive), whole_s);
    scene_close(&s);
}

/* Messages of a pair of hosts pass one after the other; a burst that was saved up passes at once.
 */
static void test_messages_between_hosts_stream(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "gpipe", &(struct plan_request){.n_workers = 2, .micro_batches = 2});
    scene_place(&s, "2x1:cpu,intra=1e9GB/s,intra_latency=0,inter=1MB/s,latency=0");
    const struct program *p = s.programs[0];
    int send = scene_find_kind(p, INSTR_SEND, 0);
    double n_bytes = (double)p->messages[p->instrs[send].index].n_bytes;
    (void)scene_run(&s);
    assert_seconds(scene_took(&s, 0, send), n_bytes / 1e6);
    s.machine->links[s.machine->node_out[0]].burst_bytes = n_bytes / 2;
    s.machine->links[s.machine->node_in[1]].burst_bytes = n_bytes / 2;
    scene_cost(&s, 0, scene_find_run(p, false, 0, 0), 10);
    (void)scene_run(&s);
    assert_seconds(scene_took(&s, 0, send), n_bytes / 2e6);
    scene_close(&s);
}

/* Two nodes on one host: with a core for each they do not hinder each other; with one in all they
 * do, and so does communication. */
static void test_nodes_share_a_host(void **state)
{
    (void)state;
    struct machine_curve network = curves[0];
    network.nodes = 2;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    split_in_two_buckets(&s);
    place_on_cores(&s, "2x1:cpu,intra=1e9GB/s,intra_latency=0,inter=1e9GB/s,latency=0");
    s.machine->curves = &network;
    s.machine->n_curves = 1;
    for (int i = 0; i < 2; i++) {
        s.machine->nodes[i].host = "one";
        s.machine->nodes[i].cores = 3;
    }
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], true, 0, -1), 10);
    assert_seconds(scene_step(&s), 10 + 1); /* 0.32 of the third core are enough */
    s.machine->nodes[0].cores = 1;
    assert_seconds(scene_step(&s), 20 + 0.32 + 1);
    s.machine->nodes[0].own_cores = s.machine->nodes[1].own_cores = 1;
    assert_seconds(scene_step(&s), 10.16 + 1);
    s.machine->nodes[1].host = "";
    assert_seconds(scene_step(&s), 10.16 + 1);
    scene_close(&s);
}

/* A worker that waits for several messages divides its time between them: of a message to a server
 * the sender, which waits for the answer, does two thirds, since the server does another sender's
 * at the same time. */
static void test_helpers_are_shared(void **state)
{
    (void)state;
    struct scene s;
    struct machine_point line[2];
    scene_open(&s, suite_build("alexnet", 4));
    scene_split(&s, "ps", &(struct plan_request){.n_workers = 3});
    scene_place(&s, "1x3:cpu");
    int send, number = 0; /* the first large one */
    int64_t bytes;
    do {
        send = scene_find_kind(s.programs[0], INSTR_SEND, number++);
        bytes = s.programs[0]->messages[s.programs[0]->instrs[send].index].n_bytes;
    } while (bytes < 10000000);
    struct machine_curve curve = rise_to_one(line, bytes);
    s.machine->curves = &curve;
    s.machine->n_curves = 1;
    (void)scene_run(&s);
    for (int w = 0; w < 2; w++)
        assert_near(scene_took(&s, w, send), 4.0 / 3, 0.01);
    scene_close(&s);
}

static void test_busy_neighbours(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 6));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 3});
    scene_place(&s, "1x3:cpu");
    s.options.free_communication = true;
    /* The second RUN takes 1 s alone and 3 s with both others busy. */
    static const double expected[] = {0.5 + 1, 0.5 + 2, 0.5 + 3};
    for (int busy = 1; busy <= 3; busy++) {
        scene_cost_nothing(&s);
        for (int w = 0; w < busy; w++) {
            scene_cost(&s, w, scene_find_run(s.programs[w], false, 0, 0), 0.5);
            scene_cost_between(&s, w, scene_find_run(s.programs[w], false, 0, 1), 1, 3);
        }
        assert_seconds(scene_step(&s), expected[busy - 1]);
    }
    /* Half of the way beside one that then ends: a quarter of it done at half the speed. */
    scene_cost_nothing(&s);
    scene_cost_between(&s, 0, scene_find_run(s.programs[0], false, 0, 1), 1, 3);
    scene_cost(&s, 1, scene_find_run(s.programs[1], false, 0, 0), 0.5);
    assert_seconds(scene_step(&s), 0.5 + 0.75);
    /* From the very beginning, and on different hosts not at all. */
    scene_cost_nothing(&s);
    for (int w = 0; w < 3; w++)
        scene_cost_between(&s, w, 0, 1, 3);
    assert_seconds(scene_step(&s), 3);
    for (int w = 0; w < 3; w++)
        assert_seconds(s.result.workers[w].compute_s, 3);
    scene_place(&s, "3x1:cpu");
    for (int w = 0; w < 3; w++)
        scene_cost_between(&s, w, 0, 1, 1);
    assert_seconds(scene_step(&s), 1);
    scene_close(&s);
}

/* Two stages: the second sleeps before its forward, the first before its backward. After a sleep
 * caches are cold. */
static void test_cold_caches(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "layers", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "1x2:cpu");
    s.options.free_communication = true;
    for (int w = 0; w < 2; w++)
        for (int backward = 0; backward < 2; backward++)
            scene_cost_between(&s, w, scene_find_run(s.programs[w], backward, 0, 0), 0.5, 0.7);
    assert_seconds(scene_step(&s), 2);
    s.options.cold = 1.2;
    assert_seconds(scene_step(&s), 3 * 0.6 + 0.5);
    s.options.slowest = 1.1;
    assert_seconds(scene_step(&s), 1.1 * (3 * 0.6 + 0.5));
    s.options.slowest = 0;
    for (int w = 0; w < 2; w++) /* too short for a sleep */
        for (int backward = 0; backward < 2; backward++)
            scene_cost_between(&s, w, scene_find_run(s.programs[w], backward, 0, 0), 1e-5, 1e-5);
    assert_seconds(scene_step(&s), 4e-5);
    scene_close(&s);
}

/* ---- more workers than cores ---- */

/* One step of n workers on two cores, each of which computes for `seconds`; all costs are known
 * exactly, but for turns. */
static double step_of_crowd(int n, double seconds)
{
    struct scene s;
    char machine[32];
    (void)snprintf(machine, sizeof machine, "1x%d:cpu", n);
    scene_open(&s, suite_build("lenet5", 2 * n));
    scene_split(&s, "data", &(struct plan_request){.n_workers = n});
    scene_place(&s, machine);
    s.machine->nodes[0].cores = 2;
    s.options.free_communication = true;
    for (int w = 0; w < n; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], true, 0, -1), seconds);
    double step_s = scene_step(&s);
    assert_near(s.result.error_s, n > 2 ? 0.06 * step_s : 0, 1e-9);
    scene_close(&s);
    return step_s;
}

/* They take turns. Where lines are uneven the step waits for the longer one, unless it lasts so
 * long that the system evens them out. */
static void test_more_workers_than_cores(void **state)
{
    (void)state;
    assert_seconds(step_of_crowd(2, 1), 1);
    assert_seconds(step_of_crowd(4, 1), 2);
    assert_seconds(step_of_crowd(6, 1e-3), 3e-3);
    assert_seconds(step_of_crowd(3, 3e-3), 2 * 3e-3);
    assert_seconds(step_of_crowd(5, 3e-3), 3 * 3e-3);
    assert_seconds(step_of_crowd(3, 3), 1.5 * 3 + 3e-3);
}

static int find_last_update(const struct program *p)
{
    int i = p->n_instrs - 1;
    while (p->instrs[i].kind != INSTR_UPDATE)
        i--;
    return i;
}

/* Stages come one after the other to where a core is free. */
static void test_more_stages_than_cores(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 6));
    scene_split(&s, "gpipe", &(struct plan_request){.n_workers = 3, .micro_batches = 2});
    scene_place(&s, "1x3:cpu");
    s.machine->nodes[0].cores = 2;
    s.options.free_communication = true;
    for (int w = 0; w < 3; w++)
        scene_cost(&s, w, find_last_update(s.programs[w]), 3e-3);
    assert_seconds(scene_step(&s), 1.5 * 3e-3);
    scene_close(&s);
}

/* With one core for two, the copying worker has it for half of the time, the computing one for the
 * other half. */
static void test_copying_in_a_crowd(void **state)
{
    (void)state;
    struct scene s;
    struct machine_point line[2];
    int64_t bytes = 0;
    int backward = open_large_message(&s, line, false, &bytes);
    s.machine->nodes[0].cores = 1;
    double visit = COMM_CHUNKS_PER_POLL / (double)comm_cut(bytes, 1, 2).n;
    double copy_s = 2 * 2 * (1 - visit);
    (void)scene_run(&s);
    int send = scene_find_kind(s.programs[1], INSTR_SEND, 0);
    assert_near(scene_took(&s, 1, send), copy_s, 1e-4);
    assert_near(scene_took(&s, 1, backward), 10 + copy_s / 2, 1e-4);
    scene_close(&s);
}

/* ---- data ---- */

static void test_data_for_gpus(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "1x2:p100");
    s.options.free_communication = true;
    s.options.feed = (struct clock_feed){.sample_s = 1, .threads = 2}; /* 2 s for 4 samples */
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], false, 0, 0), 0.5);
    assert_seconds(scene_step(&s), 2);
    assert_seconds(s.result.workers[0].load_s, 1.5);
    assert_seconds(s.result.workers[0].wait_s, 1.5);
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], false, 0, 0), 3);
    assert_seconds(scene_step(&s), 3);
    assert_true(s.result.workers[0].load_s == 0);
    /* Whose data are late does not matter: worker 1 computes, worker 0 has most samples. */
    struct plan_request one = {.n_workers = 2};
    scene_split(&s, "layers", &one);
    scene_cost(&s, 1, scene_find_run(s.programs[1], false, 0, 0), 3);
    s.options.feed.sample_s = 2;
    assert_seconds(scene_step(&s), 8);
    scene_close(&s);
}

static void test_data_on_one_core(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "serial", &(struct plan_request){.n_workers = 1});
    scene_place(&s, "1x1:cpu");
    s.options.feed = (struct clock_feed){.sample_s = 0.25, .threads = 1};
    int run = scene_find_run(s.programs[0], false, 0, 0);
    scene_cost(&s, 0, run, 3);
    assert_seconds(scene_step(&s), 3 + 1);
    scene_cost(&s, 0, run, 0.5);
    assert_seconds(scene_step(&s), 0.5 + 1);
    /* Four cores: 4 s of them for computing, 0.8 s for data. */
    s.machine->kinds[0].cores = 4;
    scene_cost(&s, 0, run, 1);
    s.options.feed.sample_s = 0.2;
    assert_seconds(scene_step(&s), 4.8 / 4);
    scene_close(&s);
}

/* A worker that waits for the other one makes its samples meanwhile. */
static void test_data_while_waiting(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "1x2:cpu");
    s.options.free_communication = true;
    s.options.feed = (struct clock_feed){.sample_s = 0.25, .threads = 1};
    scene_cost(&s, 0, scene_find_run(s.programs[0], true, 0, -1), 1);
    scene_cost(&s, 1, scene_find_kind(s.programs[1], INSTR_UPDATE, 0), 0.5);
    /* Worker 0: 1 s of each. Worker 1: data, 1 s, and then 0.5 s of computing at 2 s. */
    assert_seconds(scene_step(&s), 2 + 0.5);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taking_part_takes_cores),
        cmocka_unit_test(test_sleepers_are_signalled),
        cmocka_unit_test(test_a_waiting_worker_does_the_work),
        cmocka_unit_test(test_copying_beside_computing),
        cmocka_unit_test(test_who_computes_looks_in_between),
        cmocka_unit_test(test_networks_take_cores),
        cmocka_unit_test(test_waiting_for_hosts_takes_cores),
        cmocka_unit_test(test_networks_buffer_messages),
        cmocka_unit_test(test_messages_between_hosts_stream),
        cmocka_unit_test(test_nodes_share_a_host),
        cmocka_unit_test(test_helpers_are_shared),
        cmocka_unit_test(test_busy_neighbours),
        cmocka_unit_test(test_cold_caches),
        cmocka_unit_test(test_more_workers_than_cores),
        cmocka_unit_test(test_more_stages_than_cores),
        cmocka_unit_test(test_copying_in_a_crowd),
        cmocka_unit_test(test_data_for_gpus),
        cmocka_unit_test(test_data_on_one_core),
        cmocka_unit_test(test_data_while_waiting),
    };
    return test_run(tests);
}
