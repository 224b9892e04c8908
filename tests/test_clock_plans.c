/* Laws of every plan on every machine: random networks under random plans with random costs.
 *
 *     CLEAVE_TEST_CASES=5000 test_clock_plans     more of them
 *     CLEAVE_TEST_SEED=17 test_clock_plans        others; a case's seed is this plus its number
 */
#include "random_plans.h"
#include "scene.h"

enum { DEFAULT_CASES = TEST_UNDER_SANITIZER ? 40 : 250 };

/* Rounding: seconds that were summed in another order, over thousands of events. */
static const double ROUNDING = 1e-9;

/* ---- scenes ---- */

static struct plan *draw_plan(struct draw *d, const struct graph *g)
{
    struct plan *plan = NULL;
    for (int tries = 0; tries < 20 && !plan; tries++) {
        struct sketch s = draw_sketch(d, g);
        char *text = write_sketch(g, &s);
        if (plan_parse(text, strlen(text), "random", g, &plan) != STATUS_OK)
            status_clear();
        free(text);
    }
    return plan;
}

/* 0 to 100 us; now and then nothing. */
static void draw_costs(struct draw *d, struct scene *s)
{
    for (int w = 0; w < s->n; w++)
        for (int i = 0; i < s->programs[w]->n_instrs; i++)
            scene_cost(s, w, i, 1e-6 * (draw_chance(d, 10) ? 0 : draw_number(d, 1, 100)));
}

/* Messages are of some kilobytes: links are slow, so that they count. */
static const char *const machines[] = {
    "1x7:p100,intra=20MB/s,intra_latency=5us",
    "2x4:p100,intra=100MB/s,intra_latency=2us,inter=10MB/s,latency=20us",
    "7x1:v100,inter=30MB/s,latency=50us",
    "1x2:p100,intra=300MB/s,2x2:k40+p100,intra=20MB/s,1x1:k80,inter=15MB/s,latency=10us",
    "1x7:cpu",
    "2x4:cpu,intra=100MB/s,inter=10MB/s,latency=20us",
};
enum { N_MACHINES = sizeof machines / sizeof *machines };

static const struct machine_point message_points[] = {
    {64, 3e-6, 2e-6, 0}, {4096, 6e-6, 5e-6, 0}, {1e6, 4e-4, 3e-4, 0}};
static const struct machine_point sum_points[] = {
    {64, 1e-5, 8e-6, 0}, {4096, 3e-5, 2e-5, 0}, {1e6, 1e-3, 9e-4, 0}};
static struct machine_curve curves[] = {
    {"threads", false, COMM_GATHER, 2, 1, 3, message_points},
    {"threads", true, COMM_RING, 4, 1, 3, sum_points},
};

static void place(struct scene *s, int machine)
{
    scene_place(s, machines[machine]);
    s->machine->curves = curves;
    s->machine->n_curves = machine % 2 ? 2 : 0; /* or a guess replaces missing measurements */
    s->machine->wake_s = 8e-6;
    s->machine->step_s = 2e-5;
}

/* ---- the laws ---- */

static bool is_cpu(const struct scene *s)
{
    return s->machine->kinds[0].class == MACHINE_CPU;
}

static void check_workers(const struct scene *s)
{
    const struct clock_result *r = &s->result;
    int64_t bytes = 0;
    for (int w = 0; w < s->n; w++) {
        const struct clock_worker_result *own = &r->workers[w];
        double run_s = r->run_s * (1 + ROUNDING), sum = scene_sum(s, w);
        assert_true(own->compute_s >= sum * (1 - ROUNDING));
        assert_true(is_cpu(s) || own->compute_s <= sum * (1 + ROUNDING));
        assert_true(own->wait_s >= 0 && own->compute_s + own->wait_s <= run_s);
        assert_true(own->communicate_s >= 0 && own->communicate_s <= run_s);
        assert_int_equal(own->sent_bytes, program_sent_bytes(s->programs[w]));
        bytes += own->sent_bytes;
        for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
            assert_int_equal(own->memory_bytes[k], s->programs[w]->slab_bytes[k]);
    }
    assert_int_equal(r->bytes_moved * s->programs[0]->n_steps, bytes);
    assert_near(r->step_s * s->programs[0]->n_steps, r->run_s, ROUNDING);
}

/* Instructions of the computing stream do not overlap; nothing begins before what it waits for. */
static void check_times(const struct scene *s)
{
    for (int w = 0; w < s->n; w++) {
        const struct program *p = s->programs[w];
        const struct clock_time *t = s->result.workers[w].times;
        double at = 0;
        for (int i = 0; i < p->n_instrs; i++) {
            assert_true(t[i].end_s >= t[i].begin_s && t[i].end_s <= s->result.run_s);
            for (int k = 0; k < p->instrs[i].n_waits; k++)
                assert_true(t[i].begin_s >= t[p->instrs[i].waits[k]].end_s);
            if (p->instrs[i].stream == STREAM_COMMUNICATE)
                continue;
            assert_true(t[i].begin_s >= at);
            at = t[i].end_s;
        }
    }
}

/* Every byte that leaves a device comes to another, and all of it was sent by somebody. Within a
 * CPU host nothing is on a link. */
static void check_links(const struct scene *s)
{
    const struct machine *m = s->machine;
    double out = 0, in = 0, out_of_nodes = 0, into_nodes = 0;
    for (int i = 0; i < m->n_devices; i++) {
        out += s->result.link_bytes[m->device_out[i]];
        in += s->result.link_bytes[m->device_in[i]];
    }
    for (int i = 0; m->n_nodes > 1 && i < m->n_nodes; i++) {
        out_of_nodes += s->result.link_bytes[m->node_out[i]];
        into_nodes += s->result.link_bytes[m->node_in[i]];
    }
    assert_near(in, out, ROUNDING);
    assert_near(into_nodes, out_of_nodes, ROUNDING);
    assert_true(out_of_nodes <= out * (1 + ROUNDING));
    if (is_cpu(s))
        assert_true(out <= (double)s->result.bytes_moved * (1 + ROUNDING));
    else
        assert_near(out, s->result.bytes_moved, ROUNDING);
}

static void check_again(struct scene *s)
{
    struct clock_result before = s->result;
    (void)scene_run(s);
    assert_true(s->result.step_s == before.step_s && s->result.error_s == before.error_s);
    assert_memory_equal(s->result.link_bytes, before.link_bytes,
                        (size_t)s->machine->n_links * sizeof *before.link_bytes);
    for (int w = 0; w < s->n; w++) {
        const struct clock_worker_result *a = &s->result.workers[w], *b = &before.workers[w];
        assert_true(a->compute_s == b->compute_s && a->wait_s == b->wait_s &&
                    a->communicate_s == b->communicate_s && a->load_s == b->load_s);
        assert_memory_equal(a->times, b->times,
                            (size_t)s->programs[w]->n_instrs * sizeof *a->times);
    }
}

/* ---- faster machines ---- */

struct tally {
    int n_run, n_slower;
    double most; /* slower than before, relatively, with more bandwidth */
};

static void check_free(struct scene *s)
{
    double step_s = s->result.step_s;
    s->options.free_communication = true;
    double free_s = scene_step(s);
    s->options.free_communication = false;
    assert_that(free_s <= step_s * (1 + ROUNDING), "%g s, with free communication %g", step_s,
                free_s);
    double most = 0;
    for (int w = 0; w < s->n; w++)
        most = fmax(most, scene_sum(s, w));
    assert_true(s->result.run_s >= most * (1 - ROUNDING));
}

/* Sharing has anomalies: a message that comes sooner can meet, and delay, another one. They
 * are rare and small. */
static void check_bandwidth(struct draw *d, struct scene *s, double step_s, struct tally *tally)
{
    enum { OF_ALL = -1 };
    struct machine *m = s->machine;
    int which = draw_chance(d, 50) ? OF_ALL : draw_number(d, 0, m->n_links - 1);
    double factor = 1 + 0.1 * draw_number(d, 1, 30);
    for (int i = 0; i < m->n_links; i++)
        m->links[i].bytes_per_s *= which == OF_ALL || which == i ? factor : 1;
    double faster_s = scene_step(s);
    assert_that(faster_s <= 1.02 * step_s, "%g s, with %g times the bandwidth of link %d %g s",
                step_s, factor, which, faster_s);
    tally->n_slower += faster_s > step_s * (1 + ROUNDING);
    tally->most = fmax(tally->most, faster_s / step_s - 1);
}

/* ---- all of them ---- */

static void run_case(uint64_t seed, struct tally *tally)
{
    struct draw d = draw_begin(seed, 1);
    struct scene s;
    scene_open(&s, draw_graph(&d, &(struct graph_wish){0}));
    struct plan *plan = draw_plan(&d, s.graph);
    if (plan) {
        scene_take(&s, plan);
        draw_costs(&d, &s);
        place(&s, (int)(seed % N_MACHINES));
        double step_s = scene_step(&s);
        check_workers(&s);
        check_times(&s);
        check_links(&s);
        check_again(&s);
        check_free(&s);
        check_bandwidth(&d, &s, step_s, tally);
        tally->n_run++;
    }
    scene_close(&s);
}

static void test_random_plans(void **state)
{
    (void)state;
    struct tally tally = {0};
    uint64_t seed = test_seed();
    long long n_cases = test_count(DEFAULT_CASES);
    for (long long i = 0; i < n_cases; i++)
        run_case(seed + (uint64_t)i, &tally);
    print_message("%d cases; more bandwidth made %d slower, by up to %.3g %%\n", tally.n_run,
                  tally.n_slower, 100 * tally.most);
    assert_true(tally.n_run >= n_cases * 3 / 4);
    assert_true(tally.n_slower <= 2 + n_cases / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans),
    };
    return test_run(tests);
}
