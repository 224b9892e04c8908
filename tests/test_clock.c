/* The clock on costs and machines made by hand: what it says is what a formula says. Random plans
 * are in test_clock_plans. */
#include "base/random.h"
#include "clock/parts.h"
#include "plan_suite.h"
#include "scene.h"

enum { LINK_BYTES_PER_S = 1000000000 };

/* Times that come out of the same sums in another order. */
#define assert_seconds(actual, expected) assert_near(actual, expected, 1e-9)

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

static void test_pace(void **state)
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
    s.workers[1].pace = 1.5;
    assert_seconds(scene_step(&s), 0.75);
    assert_seconds(s.result.workers[0].wait_s, 0.25);
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
        /* The slowest stage, and once what lies before and behind it, or less: what waits for the
         * first backward can do the next forward. */
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
    struct meeting meetings[FLOWS];
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
    c->run.meetings = c->meetings;
    assert_ok(arena_create(&c->run.scratch));
    assert_ok(flows_init(&c->run));
    for (int i = 0; i < LINKS; i++)
        c->resources[i].capacity = (double)(1 + draw(seed, 1, i) % 9);
    for (int i = 0; i < FLOWS; i++) {
        struct load *load = &c->meetings[i].load;
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

/* Nobody takes more than there is (half: every other flow has ended); and who could go faster by
 * himself has no less than anybody else of a link that is full. */
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

static void test_communication_takes_cores(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    split_in_two_buckets(&s);
    place_on_cores(&s, "1x2:cpu");
    /* The first sum is hidden behind the last backward, which pays 0.4 s for it. */
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], true, 0, -1), 10);
    const struct clock_result *r = scene_run(&s);
    assert_seconds(r->step_s, 10.4 + 1);
    assert_seconds(r->workers[1].compute_s, 10.4);
    assert_seconds(r->workers[1].wait_s, 1);
    assert_seconds(r->workers[1].communicate_s, 2);
    /* Whoever is asleep must be woken to go on behind the second sum, after a sleep of 1 s. */
    s.machine->wake_s = 0.01;
    s.machine->deep_wake_s = 0.02;
    assert_seconds(scene_step(&s), 10.4 + 1 + 0.02);
    s.options.free_communication = true;
    assert_seconds(scene_step(&s), 10);
    scene_close(&s);
}

/* Who comes last rings for those who sleep, which delays what it brings, and itself if it has
 * anything else to do. */
static void test_sleepers_are_rung_for(void **state)
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
    s.machine->wake_s = s.machine->deep_wake_s = 0.5;
    assert_seconds(scene_step(&s), before_s + 0.25 + 1);
    scene_close(&s);
}

/* So does a message: one micro-batch's gradient is sent, for 1 s, during the other's backward. */
static void test_messages_take_cores(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    scene_split(&s, "gpipe", &(struct plan_request){.n_workers = 2, .micro_batches = 2});
    place_on_cores(&s, "1x2:cpu");
    int backward = scene_find_run(s.programs[1], true, 0, 0);
    scene_cost(&s, 1, backward, 10);
    (void)scene_run(&s);
    assert_seconds(scene_took(&s, 1, scene_find_kind(s.programs[1], INSTR_SEND, 0)), 1);
    assert_seconds(scene_took(&s, 1, backward), 10.4);
    scene_close(&s);
}

/* Between hosts the links decide how long a message takes, the curves what it costs the cores; a
 * sum over as many as were measured takes what was measured. */
static void test_networks_take_cores(void **state)
{
    (void)state;
    struct machine_curve network[2] = {curves[0], curves[1]};
    network[0].nodes = network[1].nodes = 2;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    split_in_two_buckets(&s);
    place_on_cores(&s, "2x1:cpu,intra=1e9GB/s,intra_latency=0,inter=1e9GB/s,latency=0");
    s.machine->curves = network;
    for (int w = 0; w < 2; w++)
        scene_cost(&s, w, scene_find_run(s.programs[w], true, 0, -1), 10);
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

/* Two sums at once want 0.8 s of a core: they do not hinder each other. Three, of 1.2 s, do. */
static void test_cores_are_shared_by_sums(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, suite_build("lenet5", 8));
    split_in_two_buckets(&s);
    place_on_cores(&s, "1x2:cpu");
    assert_seconds(scene_step(&s), 1);
    scene_split(&s, "data", &(struct plan_request){.n_workers = 2, .bucket_bytes = 40000});
    assert_int_equal(s.programs[0]->n_reductions, 3);
    assert_seconds(scene_step(&s), 1.2);
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
                 "worker 1 never ends send");
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
    /* Half the spread of what was measured, all of a fit's, 30 % of a roofline. */
    assert_near(r->error_s, sqrt(0.1 * 0.1 + 0.2 * 0.2 + 0.3 * 0.3), 1e-12);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker),
        cmocka_unit_test(test_a_step_on_cpus_has_a_fixed_part),
        cmocka_unit_test(test_pace),
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
        cmocka_unit_test(test_communication_takes_cores),
        cmocka_unit_test(test_sleepers_are_rung_for),
        cmocka_unit_test(test_messages_take_cores),
        cmocka_unit_test(test_networks_take_cores),
        cmocka_unit_test(test_networks_buffer_messages),
        cmocka_unit_test(test_messages_between_hosts_stream),
        cmocka_unit_test(test_nodes_share_a_host),
        cmocka_unit_test(test_cores_are_shared_by_sums),
        cmocka_unit_test(test_busy_neighbours),
        cmocka_unit_test(test_data_for_gpus),
        cmocka_unit_test(test_data_on_one_core),
        cmocka_unit_test(test_data_while_waiting),
        cmocka_unit_test(test_a_lost_message_is_named),
        cmocka_unit_test(test_a_missing_device_is_refused),
        cmocka_unit_test(test_twins_share_a_program),
        cmocka_unit_test(test_error_bar),
    };
    return test_run(tests);
}
