/* The clock on costs and machines made by hand: what it says is what a formula says. What CPUs
 * share is in test_clock_cpus, random plans are in test_clock_plans. */
#include "base/random.h"
#include "clock/parts.h"
#include "plan_suite.h"
#include "scene.h"

enum { LINK_BYTES_PER_S = 1000000000 };

/* ---- one worker ---- */

static void test_one_worker(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "serial", &(struct plan_request){.n_workers = 1});
    scene_place(&s, "1x1:p100");
    const struct program *p = s.programs[0];
    for (int i = 0; i < p->n_instrs; i++)
        scene_cost(&s, 0, i, 1e-3 * (1 + i % 7));
    const struct clock_result *r = scene_run(&s);
    assert_seconds(r->step_s, scene_sum(&s, 0));
    assert_seconds(r->run_s, r->step_s);
    assert_seconds(r->workers[0].compute_s, r->step_s);
    assert_true(r->workers[0].wait_s == 0 && r->workers[0].communicate_s == 0);
    assert_int_equal(r->bytes_moved, 0);
    double at = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct clock_time *t = &r->workers[0].times[i];
        assert_true(t->begin_s == at && t->end_s > t->begin_s);
        at = t->end_s;
    }
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        assert_int_equal(r->workers[0].memory_bytes[k], p->slab_bytes[k]);
    scene_close(&s);
}

static void test_a_step_on_cpus_has_a_fixed_part(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "serial", &(struct plan_request){.n_workers = 1});
    scene_cost(&s, 0, 3, 0.5);
    scene_place(&s, "1x1:p100");
    s.machine->step_s = 0.25;
    assert_seconds(scene_step(&s), 0.5);
    scene_place(&s, "1x1:cpu"); /* nobody to start */
    s.machine->step_s = 0.25;
    assert_seconds(scene_step(&s), 0.5);
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "1x2:cpu");
    scene_cost(&s, 0, 3, 0.5);
    s.machine->step_s = 0.25;
    s.options.free_communication = true;
    assert_seconds(scene_step(&s), 0.75);
    s.options.step_s = 0.125; /* measured with the plan */
    assert_seconds(scene_step(&s), 0.625);
    scene_close(&s);
}

static void test_the_slowest_is_waited_for(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "1x2:cpu");
    s.options.free_communication = true;
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], false, 0, 0), 0.5);
    assert_seconds(scene_step(&s), 0.5);
    s.options.slowest = 1.5;
    assert_seconds(scene_step(&s), 0.75);
    scene_close(&s);
}

/* ---- data parallelism ---- */

static void cost_at_random(struct scene *s)
{
    for (int w = 0; w < s->n; w++)
        for (int i = 0; i < s->programs[w]->n_instrs; i++)
            scene_cost(s, w, i, 1e-4 * ((i * 7 + w * 31) % 13));
}

static void check_free_data_parallelism(int workers, const char *machine)
{
    struct scene s;
    scene_open(&s, suite_build("lenet5", 7));
    scene_split(&s, "data", &(struct plan_request){.n_workers = workers});
    scene_place(&s, machine);
    s.options.free_communication = true;
    cost_at_random(&s);
    double largest = 0;
    for (int w = 0; w < workers; w++)
        largest = fmax(largest, scene_sum(&s, w));
    const struct clock_result *r = scene_run(&s);
    /* Everybody waits for the slowest one's gradients and then updates by itself. */
    double updates = 0, most = 0;
    for (int w = 0; w < workers; w++) {
        double own = 0;
        for (int i = 0; i < s.programs[w]->n_instrs; i++)
            if (s.programs[w]->instrs[i].kind == INSTR_UPDATE)
                own += s.costs[w][i].busy_s;
        updates = fmax(updates, own);
        most = fmax(most, scene_sum(&s, w) - own);
        assert_seconds(r->workers[w].compute_s, scene_sum(&s, w));
    }
    assert_true(r->step_s >= largest * (1 - 1e-12));
    assert_seconds(r->step_s, most + updates);
    scene_close(&s);
}

static void test_free_communication(void **state)
{
    (void)state;
    check_free_data_parallelism(2, "1x2:p100");
    check_free_data_parallelism(4, "2x2:v100");
}

/* Gradients of all parameters in one array. */
static double one_bucket_bytes(const struct scene *s)
{
    assert_int_equal(s->programs[0]->n_reductions, 1);
    return 4 * (double)s->programs[0]->reductions[0].spec.count;
}

static void check_ring(int n)
{
    char machine[80];
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "data", &(struct plan_request){.n_workers = n});
    (void)snprintf(machine, sizeof machine, "1x%d:p100,intra=1GB/s,intra_latency=30us", n);
    scene_place(&s, machine);
    double n_bytes = one_bucket_bytes(&s), each = 2.0 * (n - 1) / n * n_bytes;
    const struct clock_result *r = scene_run(&s);
    assert_seconds(r->step_s, each / LINK_BYTES_PER_S + 2 * (n - 1) * 30e-6);
    assert_int_equal(r->bytes_moved, 2 * (n - 1) * (int64_t)n_bytes);
    for (int i = 0; i < s.machine->n_links; i++)
        assert_near(r->link_bytes[i], each, 1e-9);
    assert_seconds(r->workers[0].wait_s, r->step_s);
    assert_seconds(r->workers[0].communicate_s, r->step_s);
    scene_close(&s);
}

static void test_ring(void **state)
{
    (void)state;
    check_ring(2);
    check_ring(3);
    check_ring(4);
}

static void test_other_sums(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 4, .sync = PLAN_TREE});
    scene_place(&s, "1x4:p100,intra=1GB/s,intra_latency=30us");
    double t = one_bucket_bytes(&s) / LINK_BYTES_PER_S;
    assert_seconds(scene_step(&s), 2 * 2 * (30e-6 + t));
    struct plan_request two_nodes = {
        .n_workers = 4, .sync = PLAN_HIERARCHICAL, .workers_per_node = 2};
    scene_split(&s, "data", &two_nodes);
    scene_place(&s, "2x2:p100,intra=1GB/s,intra_latency=30us,inter=500MB/s,latency=100us");
    /* To the first of the node and back; in between a ring of two, on the slowest link. */
    assert_seconds(scene_step(&s), 2 * (30e-6 + t) + 2 * 130e-6 + 2 * t);
    scene_close(&s);
}

static void test_sums_behind_backward(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2, .bucket_bytes = 4096});
    double n_bytes = 0;
    for (int i = 0; i < s.programs[0]->n_reductions; i++)
        n_bytes += 4 * (double)s.programs[0]->reductions[i].spec.count;
    assert_true(s.programs[0]->n_reductions > 3);
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < s.programs[w]->n_instrs; i++)
            scene_cost(&s, w, i, s.programs[w]->instrs[i].kind == INSTR_RUN ? 1e-3 : 0);
    double compute_s = scene_sum(&s, 0);
    /* All but the last bucket is hidden. */
    scene_place(&s, "1x2:p100,intra=1GB/s,intra_latency=1us");
    double fast_s = scene_step(&s), last_s = 8192 / 1e9 + 2e-6;
    assert_true(fast_s > compute_s && fast_s < compute_s + last_s);
    assert_true(s.result.workers[0].communicate_s > fast_s - compute_s);
    /* Nothing but the sums is seen, once the first gradients are there. */
    scene_place(&s, "1x2:p100,intra=1MB/s,intra_latency=1us");
    double slow_s = scene_step(&s), sums_s = n_bytes / 1e6;
    assert_true(slow_s > sums_s && slow_s < compute_s + sums_s + 2e-6 * 20);
    scene_close(&s);
}

/* ---- pipelines ---- */

/* Each stage takes so long for a micro-batch's forward and backward. */
static void cost_stages(struct scene *s, int n, const double *forward_s, const double *backward_s)
{
    assert_int_equal(s->n, n);
    for (int w = 0; w < n; w++) {
        const struct program *p = s->programs[w];
        for (int m = 0; m < p->n_micros * p->n_steps; m++) {
            scene_cost(s, w, scene_find_run(p, false, m, 0), forward_s[w]);
            scene_cost(s, w, scene_find_run(p, true, m, 0), backward_s[w]);
        }
    }
}

static void check_bubble(const char *schedule, int n, int m, double backward_s)
{
    struct scene s;
    const double f[4] = {1, 1, 1, 1}, b[4] = {backward_s, backward_s, backward_s, backward_s};
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, schedule, &(struct plan_request){.n_workers = n, .micro_batches = m});
    scene_place(&s, "1x4:p100");
    s.options.free_communication = true;
    cost_stages(&s, n, f, b);
    const struct clock_result *r = scene_run(&s);
    double expected = (m + n - 1) * (1 + backward_s);
    assert_that(fabs(r->step_s - expected) < 1e-9 * expected, "%s %d stages %d micro: %g, not %g",
                schedule, n, m, r->step_s, expected);
    for (int w = 0; w < n; w++)
        assert_seconds(r->workers[w].compute_s, m * (1 + backward_s));
    scene_close(&s);
}

static void test_bubbles(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int k = 0; k < 2; k++)
        for (int n = 2; n <= 4; n++)
            for (int m = 1; m <= 8; m *= 2) {
                check_bubble(schedules[k], n, m, 1);
                check_bubble(schedules[k], n, m, 2);
            }
}

static double pipedream_step(int window, const double *f, const double *b)
{
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "pipedream", &(struct plan_request){.n_workers = 3, .window = window});
    scene_place(&s, "1x3:p100");
    s.options.free_communication = true;
    assert_int_equal(s.programs[0]->n_steps, window);
    cost_stages(&s, 3, f, b);
    double step_s = scene_step(&s);
    assert_seconds(s.result.run_s, step_s * window);
    scene_close(&s);
    return step_s;
}

static void test_pipedream(void **state)
{
    (void)state;
    const double one[3] = {1, 1, 1}, f[3] = {0.5, 1, 0.75}, b[3] = {1, 2, 0.5};
    double last = INFINITY;
    for (int window = 1; window <= 32; window *= 2) {
        assert_seconds(pipedream_step(window, one, one), (window + 2) * 2.0 / window);
        /* The slowest stage, and once the stages before and behind it, or less: a stage
         * that waits for the first backward can do the next forward. */
        double step_s = pipedream_step(window, f, b);
        assert_true(step_s > 3 && step_s <= 3 + (0.5 + 0.75 + 0.5 + 1) / window);
        assert_true(step_s < last);
        last = step_s;
    }
}

/* Bytes are per step, times are of a whole window. */
static void test_bytes_of_a_window(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "pipedream", &(struct plan_request){.n_workers = 3, .window = 4});
    scene_place(&s, "1x3:p100");
    const struct clock_result *r = scene_run(&s);
    int64_t sent = 0;
    double out = 0;
    for (int w = 0; w < 3; w++) {
        sent += program_sent_bytes(s.programs[w]);
        out += r->link_bytes[s.machine->device_out[w]];
    }
    assert_true(sent > 0);
    assert_int_equal(4 * r->bytes_moved, sent);
    assert_near(out, r->bytes_moved, 1e-9);
    scene_close(&s);
}

/* ---- links ---- */

#define TWO_TO_TWO                                                              \
    "{\"cleave_plan\":1,\"workers\":4,\"stages\":[{\"workers\":[0,1],\"cut\":{" \
    "\"n\":%s}},{\"workers\":[2,3],\"cut\":{\"n\":%s}}],\"layers\":{"           \
    "\"conv1\":{\"stage\":0},\"fc1\":{\"stage\":1}}}"

/* 0 sends to 2 and 1 to 3 at the same time; how long each message takes, in times of its own. */
static void send_two(const char *machine, const char *parts, double took[2])
{
    char text[400];
    struct scene s;
    (void)snprintf(text, sizeof text, TWO_TO_TWO, parts, parts);
    scene_open(&s, suite_build("lenet5", 8));
    scene_parse(&s, text);
    scene_place(&s, machine);
    (void)scene_run(&s);
    for (int w = 0; w < 2; w++) {
        const struct program *p = s.programs[w];
        int i = scene_find_kind(p, INSTR_SEND, 0);
        double n_bytes = (double)p->messages[p->instrs[i].index].n_bytes;
        took[w] = scene_took(&s, w, i) / (n_bytes / LINK_BYTES_PER_S);
    }
    scene_close(&s);
}

static void test_links_are_shared(void **state)
{
    (void)state;
    double took[2];
    const char *own = "4x1:p100,intra=1e9GB/s,intra_latency=0,inter=1GB/s,latency=0";
    const char *shared = "2x2:p100,intra=1e9GB/s,intra_latency=0,inter=1GB/s,latency=0";
    send_two(own, "2", took);
    assert_seconds(took[0], 1);
    assert_seconds(took[1], 1);
    send_two(shared, "2", took);
    assert_seconds(took[0], 2);
    assert_seconds(took[1], 2);
    /* A quarter and three quarters: while both are under way each has half of the link. */
    send_two(shared, "[1,3]", took);
    assert_seconds(took[0], 2);
    assert_seconds(took[1], 4.0 / 3);
    /* Ports of the devices instead of the nodes'. */
    send_two("1x4:p100,intra=1GB/s,intra_latency=0", "2", took);
    assert_seconds(took[0], 1);
    assert_seconds(took[1], 1);
}

/* What a message cannot use of a link is the other's: 0 sends into a slow host, 1 into a fast one.
 */
static void test_what_is_left_is_handed_on(void **state)
{
    (void)state;
    double took[2];
    send_two("1x2:p100,intra=1e9GB/s,intra_latency=0,inter=2GB/s,latency=0,"
             "1x1:p100,intra=1e9GB/s,intra_latency=0,inter=500MB/s,latency=0,"
             "1x1:p100,intra=1e9GB/s,intra_latency=0,inter=8GB/s,latency=0",
             "2", took);
    assert_seconds(took[0], 2);
    assert_seconds(took[1], 1 / 1.5);
}

enum { FLOWS = 12, LINKS = 5 };

/* Flows that were made by hand, without workers. */
struct crowd {
    struct clock_run run;
    struct resource resources[LINKS];
    struct transfer transfers[FLOWS];
    struct demand demands[FLOWS][LINKS];
};

static uint32_t draw(uint64_t seed, uint32_t what, int index)
{
    return random_word((struct random_key){seed, RANDOM_TEST, what}, 0, (uint64_t)index);
}

static void crowd_open(struct crowd *c, uint64_t seed, bool alike)
{
    *c = (struct crowd){.run = {.n_resources = LINKS}};
    c->run.resources = c->resources;
    c->run.transfers = c->transfers;
    assert_ok(arena_create(&c->run.scratch));
    assert_ok(flows_init(&c->run));
    for (int i = 0; i < LINKS; i++)
        c->resources[i].capacity = (double)(1 + draw(seed, 1, i) % 9);
    for (int i = 0; i < FLOWS; i++) {
        struct load *load = &c->transfers[i].load;
        uint32_t bits = draw(seed, 2, i);
        load->demands = c->demands[i];
        load->least_s = bits % 4 ? 0 : 0.5 + (double)(bits / 4 % 8);
        double amount = (double)(1 + bits / 32 % 4);
        for (int k = 0; k < LINKS; k++)
            if (draw(seed, 3, i * LINKS + k) % 3 == 0)
                load->demands[load->n_demands++] = (struct demand){k, alike ? amount : amount + k};
        assert_ok(flow_begin(&c->run, i));
    }
    assert_ok(flows_settle(&c->run));
}

static void crowd_close(struct crowd *c)
{
    events_deinit(&c->run.events);
    arena_destroy(c->run.scratch);
}

static double crowd_usage(const struct crowd *c, int resource)
{
    double sum = 0;
    for (int i = 0; i < c->resources[resource].n_flows; i++) {
        const struct flow *f = &c->run.flows[c->resources[resource].flows[i]];
        for (int k = 0; k < f->n_demands; k++)
            sum += f->demands[k].resource == resource ? f->rate * f->demands[k].amount : 0;
    }
    return sum;
}

static bool is_held_up(const struct crowd *c, const struct flow *f, const struct demand *at)
{
    const struct resource *r = &c->resources[at->resource];
    if (crowd_usage(c, at->resource) < r->capacity * (1 - 1e-9))
        return false;
    for (int i = 0; i < r->n_flows; i++) {
        const struct flow *other = &c->run.flows[r->flows[i]];
        for (int k = 0; k < other->n_demands; k++)
            if (other->demands[k].resource == at->resource &&
                other->rate * other->demands[k].amount > f->rate * at->amount * (1 + 1e-9))
                return false;
    }
    return true;
}

/* No link carries more than it can (half: every other flow has ended); and a flow that could run
 * faster by itself has no less than any other flow of a link that is full. */
static void check_crowd(const struct crowd *c, bool alike, bool half)
{
    for (int i = 0; i < LINKS; i++)
        assert_true(crowd_usage(c, i) <= c->resources[i].capacity * (1 + 1e-9));
    for (int i = 0; i < FLOWS; i++) {
        const struct flow *f = &c->run.flows[i];
        bool held_up = f->rate >= f->limit * (1 - 1e-9), active = !half || i % 2;
        for (int k = 0; k < f->n_demands && !held_up; k++)
            held_up = is_held_up(c, f, &f->demands[k]);
        assert_true(!active || !isfinite(f->rate) || f->rate > 0);
        assert_true(!alike || !active || f->n_demands == 0 || held_up);
    }
}

static void test_shares_are_fair(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct crowd c;
        bool alike = seed % 4 != 0; /* a flow's amounts */
        crowd_open(&c, seed, alike);
        check_crowd(&c, alike, false);
        for (int i = 0; i < FLOWS; i += 2)
            assert_ok(flow_end(&c.run, i));
        assert_ok(flows_settle(&c.run));
        check_crowd(&c, alike, true);
        crowd_close(&c);
    }
}

static void test_latency(void **state)
{
    (void)state;
    char text[400];
    struct scene s;
    (void)snprintf(text, sizeof text, TWO_TO_TWO, "2", "2");
    scene_open(&s, suite_build("lenet5", 8));
    scene_parse(&s, text);
    scene_place(&s, "2x2:p100,intra=1e9GB/s,intra_latency=1ms,inter=1e9GB/s,latency=1s");
    (void)scene_run(&s);
    assert_near(scene_took(&s, 0, scene_find_kind(s.programs[0], INSTR_SEND, 0)), 1.001, 1e-6);
    scene_close(&s);
}

/* ---- programs that cannot end ---- */

/* A copy without instruction `drop`. */
static struct program *without(struct scene *s, const struct program *p, int drop)
{
    struct program *copy;
    assert_ok(arena_alloc(s->memory, sizeof *copy, &copy));
    *copy = *p;
    copy->n_instrs = 0;
    assert_ok(
        arena_alloc_array(s->memory, (size_t)p->n_instrs, sizeof *copy->instrs, &copy->instrs));
    for (int i = 0; i < p->n_instrs; i++) {
        if (i == drop)
            continue;
        struct instr *to = &copy->instrs[copy->n_instrs++];
        int *waits;
        *to = p->instrs[i];
        assert_ok(arena_alloc_array(s->memory, (size_t)to->n_waits, sizeof *waits, &waits));
        to->n_waits = 0;
        for (int k = 0; k < p->instrs[i].n_waits; k++)
            if (p->instrs[i].waits[k] != drop)
                waits[to->n_waits++] = p->instrs[i].waits[k] - (p->instrs[i].waits[k] > drop);
        to->waits = waits;
    }
    return copy;
}

static void test_a_lost_message_is_named(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "layers", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "1x2:p100");
    cost_at_random(&s);
    (void)scene_run(&s);
    s.options.feed = (struct clock_feed){.sample_s = 1, .threads = 1};
    int receive = scene_find_kind(s.programs[1], INSTR_RECEIVE, 0);
    s.workers[1].program = without(&s, s.programs[1], receive);
    assert_fails(clock_run(s.workers, s.n, &s.options, s.memory, &s.result), STATUS_FAILED,
                 "worker 0 waits at backward pool1 for send pool1 to worker 1");
    s.workers[1].program = s.programs[1];
    int send = scene_find_kind(s.programs[0], INSTR_SEND, 0);
    s.workers[0].program = without(&s, s.programs[0], send);
    assert_fails(clock_run(s.workers, s.n, &s.options, s.memory, &s.result), STATUS_FAILED,
                 "worker 0 waits at");
    /* Nobody waits for the end of the last one. */
    receive = scene_find_kind(s.programs[0], INSTR_RECEIVE, 0);
    s.workers[0].program = without(&s, s.programs[0], receive);
    assert_fails(clock_run(s.workers, s.n, &s.options, s.memory, &s.result), STATUS_FAILED,
                 "worker 1 never finishes send");
    scene_close(&s);
}

static void test_a_missing_device_is_refused(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2});
    scene_place(&s, "1x1:p100");
    assert_fails(clock_run(s.workers, s.n, &s.options, s.memory, &s.result), STATUS_USAGE,
                 "worker 1 has no device");
    scene_close(&s);
}

/* ---- twins ---- */

/* Three workers with as many samples each share a program; the sum's parts differ by a byte. */
static void test_twins_share_a_program(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 9));
    scene_split(&s, "data", &(struct plan_request){.n_workers = 3});
    scene_place(&s, "1x3:p100,intra=1GB/s");
    cost_at_random(&s);
    assert_true(s.programs[0]->reductions[0].spec.count % 3 != 0);
    for (int w = 1; w < 3; w++)
        s.workers[w].costs = s.costs[0];
    double step_s = scene_step(&s);
    int64_t sent[3], all = 0;
    for (int w = 0; w < 3; w++) {
        sent[w] = program_sent_bytes(s.programs[w]);
        assert_int_equal(s.result.workers[w].sent_bytes, sent[w]);
        all += sent[w];
        s.workers[w].program = s.programs[0];
    }
    assert_true(scene_step(&s) == step_s);
    assert_int_equal(s.result.bytes_moved, all);
    for (int w = 0; w < 3; w++)
        assert_int_equal(s.result.workers[w].sent_bytes, sent[w]);
    scene_close(&s);
}

/* ---- the error bar ---- */

static void test_error_bar(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 4));
    scene_split(&s, "serial", &(struct plan_request){.n_workers = 1});
    scene_place(&s, "1x1:p100");
    s.costs[0][2] = (struct instr_cost){2, 2, 0.1, COST_MEASURED};
    s.costs[0][3] = (struct instr_cost){1, 1, 0.2, COST_FITTED};
    s.costs[0][4] = (struct instr_cost){1, 1, 0, COST_ROOFLINE};
    const struct clock_result *r = scene_run(&s);
    assert_near(r->share[COST_MEASURED], 0.5, 1e-12);
    assert_near(r->share[COST_FITTED], 0.25, 1e-12);
    assert_near(r->share[COST_ROOFLINE], 0.25, 1e-12);
    /* Half the spread of measured costs, all of a fit's, 30 % of a roofline. */
    assert_near(r->error_s, 0.1 + 0.2 + 0.3, 1e-12);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker),
        cmocka_unit_test(test_a_step_on_cpus_has_a_fixed_part),
        cmocka_unit_test(test_the_slowest_is_waited_for),
        cmocka_unit_test(test_free_communication),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_other_sums),
        cmocka_unit_test(test_sums_behind_backward),
        cmocka_unit_test(test_bubbles),
        cmocka_unit_test(test_pipedream),
        cmocka_unit_test(test_bytes_of_a_window),
        cmocka_unit_test(test_links_are_shared),
        cmocka_unit_test(test_what_is_left_is_handed_on),
        cmocka_unit_test(test_shares_are_fair),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_a_lost_message_is_named),
        cmocka_unit_test(test_a_missing_device_is_refused),
        cmocka_unit_test(test_twins_share_a_program),
        cmocka_unit_test(test_error_bar),
    };
    return test_run(tests);
}
