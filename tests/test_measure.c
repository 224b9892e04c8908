/* Running programs without communication, and measuring what their instructions take. */
#include "base/timer.h"
#include "profile/measure.h"
#include "program/work.h"
#include "runtime/pin.h"
#include "session.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <time.h>

static const char *backend_name(void)
{
    return session_has_backend("cpu") ? "cpu" : "reference";
}

/* A plan of a small network, and a profile of its own. */
struct bench {
    struct graph *graph;
    struct plan *plan;
    const struct backend *backend;
    profile *profile;
    device *device;
    struct program_set set;
    struct measure_request request;
};

/* Lowers the plan, as the request wants it. */
static void bench_lower(struct bench *b)
{
    assert_ok(b->backend->device_open(&(struct device_options){.threads = 1}, &b->device));
    struct program_options o = {.backend = b->backend,
                                .device = b->device,
                                .training = true,
                                .n_states = 1,
                                .plan = b->plan};
    assert_ok(program_create_all(b->graph, &o, NULL, true, &b->set));
    b->request = (struct measure_request){
        .programs = (const struct program *const *)b->set.programs, .how.budget_s = 0.01};
}

static void bench_free_programs(struct bench *b)
{
    program_destroy_all(&b->set);
    b->backend->device_close(b->device);
}

/* Goes on with another backend of the same kind. */
static void bench_use(struct bench *b, const struct backend *backend)
{
    bench_free_programs(b);
    b->backend = backend;
    bench_lower(b);
}

/* False if the strategy cannot use so many workers. */
static bool bench_open_variant(struct bench *b, const char *model, const char *strategy,
                               int n_workers, const struct graph_variant *variant)
{
    static int number;
    struct plan_request how = {.n_workers = n_workers};
    char path[PATH_MAX], name[64];
    *b = (struct bench){0};
    assert_ok(network_build(model, variant, &b->graph));
    if (plan_build(strategy, b->graph, &how, &b->plan) != STATUS_OK) {
        session_expect_refusal(strategy, n_workers);
        graph_destroy(b->graph);
        return false;
    }
    assert_ok(backend_find(backend_name(), &b->backend));
    (void)snprintf(name, sizeof name, "profile%d.db", number++);
    assert_ok(profile_open(test_path(path, name), &b->profile));
    bench_lower(b);
    return true;
}

static bool bench_open_sized(struct bench *b, const char *model, const char *strategy,
                             int n_workers, int64_t batch)
{
    const struct graph_variant variant = {batch, 3, 32, 32, 10, true, -1};
    return bench_open_variant(b, model, strategy, n_workers, &variant);
}

static bool bench_open(struct bench *b, const char *model, const char *strategy, int n_workers)
{
    return bench_open_sized(b, model, strategy, n_workers, 8);
}

static void bench_close(struct bench *b)
{
    bench_free_programs(b);
    profile_close(b->profile);
    plan_destroy(b->plan);
    graph_destroy(b->graph);
}

static device *open_device(const struct bench *b)
{
    device *d;
    assert_ok(b->backend->device_open(&(struct device_options){.threads = 1}, &d));
    return d;
}

static struct program *lower(const struct bench *b, device *d, int worker)
{
    struct program *p;
    struct program_options o = {.backend = b->backend,
                                .device = d,
                                .training = true,
                                .n_states = 1,
                                .plan = b->plan,
                                .worker = worker};
    assert_ok(program_create(b->graph, &o, &p));
    return p;
}

static bool computes(const struct program *p, int i)
{
    return p->instrs[i].stream == STREAM_COMPUTE;
}

/* The costs of a worker's instructions, all of which must be known. */
static double sum_costs(const struct bench *b, const struct profile_setting *s, int worker,
                        const char *what)
{
    device *d = open_device(b);
    struct program *p = lower(b, d, worker);
    double sum = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        char key[WORK_KEY_BYTES];
        struct profile_cost cost = {0};
        if (!computes(p, i))
            continue;
        program_instr_key(p, i, key, sizeof key);
        assert_that(profile_find(b->profile, s, key, &cost), "%s: '%s' was not measured", what,
                    key);
        assert_that(cost.seconds > 0 && cost.seconds < 60 && cost.spread >= 0 && cost.count >= 3,
                    "%s: '%s': %g s, spread %g, %d times", what, key, cost.seconds, cost.spread,
                    cost.count);
        sum += cost.seconds;
    }
    program_destroy(p);
    b->backend->device_close(d);
    return sum;
}

/* ---- measuring one worker ---- */

static int count_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; tasks && (e = readdir(tasks));)
        n += e->d_name[0] != '.';
    if (tasks)
        (void)closedir(tasks);
    return n;
}

/* One worker of a plan with a batch, made to measure. */
struct soloist {
    device *device;
    struct program *program;
    executor *executor;
    struct fixture_batch numbers;
    struct executor_batch batch;
};

static const struct update_rule still = {.kind = UPDATE_SGD, .momentum = 0.9};

static void soloist_open(struct soloist *s, const struct bench *b, int worker)
{
    s->device = open_device(b);
    s->program = lower(b, s->device, worker);
    const struct program *const programs[] = {s->program};
    assert_ok(executor_create_measuring(programs, 1, &s->executor));
    s->numbers = fixture_make_batch(b->graph, 0);
    s->batch = (struct executor_batch){.images = s->numbers.images, .labels = s->numbers.labels};
}

static void soloist_close(struct soloist *s, const struct bench *b)
{
    fixture_free_batch(&s->numbers);
    executor_destroy(s->executor);
    program_destroy(s->program);
    b->backend->device_close(s->device);
}

/* A worker is measured with no other worker there: communicating instructions are left out, and no
 * thread is started for it. */
static void test_reaches_nobody(void **state)
{
    static const char *const strategies[] = {"data",  "model",     "spatial",
                                             "gpipe", "pipedream", "ps"};
    (void)state;
    for (size_t k = 0; k < sizeof strategies / sizeof strategies[0]; k++)
        for (int worker = 0; worker < 2; worker++) {
            struct bench b;
            struct soloist s;
            assert_true(bench_open(&b, "lenet5", strategies[k], 2));
            int before = count_threads(), n_communicating = 0;
            soloist_open(&s, &b, worker);
            assert_ok(executor_measure(s.executor, 0, &s.batch, &still));
            assert_int_equal(count_threads(), before);
            const struct executor_time *times = executor_get_times(s.executor, 0);
            for (int i = 0; i < s.program->n_instrs; i++) {
                bool timed = times[i].end_ns > times[i].begin_ns && times[i].begin_ns > 0;
                assert_that(timed == computes(s.program, i), "%s: instruction %d", strategies[k],
                            i);
                n_communicating += !computes(s.program, i);
            }
            assert_true(n_communicating > 0);
            soloist_close(&s, &b);
            bench_close(&b);
        }
}

static void test_wrong_executors(void **state)
{
    struct bench b;
    struct soloist s;
    struct executor_result result;
    struct step_state step = {.seed = 1};
    (void)state;
    assert_true(bench_open(&b, "lenet5", "serial", 1));
    soloist_open(&s, &b, 0);
    assert_fails(executor_step(s.executor, 0, &s.batch, &step, &still, &result), STATUS_FAILED,
                 "only measure");
    executor *trains;
    const struct program *const programs[] = {s.program};
    assert_ok(executor_create(programs, 1, NULL, &trains));
    assert_fails(executor_measure(trains, 0, &s.batch, &still), STATUS_FAILED, "measuring");
    executor_destroy(trains);
    soloist_close(&s, &b);
    bench_close(&b);
}

struct kinds {
    int64_t n, zero, denormal, wild;
};

static struct kinds count_kinds(const struct soloist *s, int param, enum executor_tensor which)
{
    const struct shape *shape = &s->program->graph->params[param].spec.shape;
    struct kinds k = {.n = shape_elements(shape)};
    float *values = malloc((size_t)k.n * sizeof *values);
    assert_non_null(values);
    assert_ok(executor_read(s->executor, param, which, values));
    for (int64_t i = 0; i < k.n; i++) {
        k.zero += values[i] == 0;
        k.denormal += fpclassify(values[i]) == FP_SUBNORMAL;
        k.wild += !isfinite(values[i]);
    }
    free(values);
    return k;
}

/* Numbers that take a processor longer than others would make a round slower than training:
 * weights stay as they are, and the gradients that reach the first layers are of the usual kind. */
static void check_numbers(const char *model)
{
    struct bench b;
    struct soloist s;
    assert_true(bench_open_sized(&b, model, "serial", 1, 2));
    soloist_open(&s, &b, 0);
    for (int round = 0; round < 3; round++)
        assert_ok(executor_measure(s.executor, 0, &s.batch, &still));
    for (int i = 0; i < b.graph->n_params; i++) {
        if (!b.graph->params[i].spec.trained)
            continue;
        struct kinds w = count_kinds(&s, i, TENSOR_WEIGHT), m = count_kinds(&s, i, TENSOR_STATE_0);
        const char *name = b.graph->params[i].name;
        assert_that(w.zero + w.denormal + w.wild <= w.n / 100, "%s: weights of %s", model, name);
        assert_that(m.denormal + m.wild <= m.n / 100, "%s: gradients of %s: %lld of %lld denormal",
                    model, name, (long long)m.denormal, (long long)m.n);
    }
    soloist_close(&s, &b);
    bench_close(&b);
}

static void test_numbers(void **state)
{
    static const char *const models[] = {"mlp",      "lenet5",      "vgg11",
                                         "resnet18", "mobilenetv2", "resnet101"};
    int n = TEST_UNDER_SANITIZER ? 4 : 6;
    (void)state;
    if (!session_has_backend("cpu"))
        n = 2;
    for (int i = 0; i < n; i++)
        check_numbers(models[i]);
}

/* ---- measuring ---- */

static void test_fills_all(void **state)
{
    struct bench b;
    struct measure_result first, second;
    (void)state;
    assert_true(bench_open(&b, "lenet5", "data", 2));
    b.request.how.look_only = true;
    assert_ok(profile_measure(b.profile, &b.request, &first));
    assert_int_equal(first.n_measured, 0);
    assert_int_equal(first.n_missing, first.n_keys);
    b.request.how.look_only = false;
    assert_ok(profile_measure(b.profile, &b.request, &first));
    assert_true(first.n_keys > 20);
    assert_int_equal(first.n_missing, first.n_keys);
    assert_int_equal(first.n_measured, first.n_keys);
    assert_int_equal(first.setting.threads, 1);
    assert_int_equal(first.setting.load, pin_count_cores() > 1 ? 2 : 1);
    assert_non_null(strstr(first.setting.device, b.backend->name));
    assert_null(strstr(first.setting.device, "threads"));
    for (int w = 0; w < 2; w++)
        (void)sum_costs(&b, &first.setting, w, "lenet5 data");
    assert_ok(profile_measure(b.profile, &b.request, &second));
    assert_int_equal(second.n_keys, first.n_keys);
    assert_int_equal(second.n_missing, 0);
    assert_int_equal(second.n_measured, 0);
    assert_string_equal(second.setting.device, first.setting.device);
    bench_close(&b);
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Others may disturb the measuring by a lot, but not every time. */
static bool sum_is_near(void)
{
    enum { ROUNDS = 9 };
    struct bench b;
    struct soloist s;
    struct measure_result result;
    double seconds[ROUNDS];
    assert_true(bench_open(&b, "lenet5", "data", 2));
    b.request.how.budget_s = 0.2;
    assert_ok(profile_measure(b.profile, &b.request, &result));
    double sum = sum_costs(&b, &result.setting, 0, "lenet5 data");
    soloist_open(&s, &b, 0);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start_ns = timer_now_ns();
        assert_ok(executor_measure(s.executor, 0, &s.batch, &still));
        seconds[i] = (double)(timer_now_ns() - start_ns) * 1e-9;
    }
    qsort(seconds, ROUNDS, sizeof seconds[0], compare_numbers);
    double step = seconds[ROUNDS / 2];
    print_message("sum of costs %.3f ms, a measured step %.3f ms\n", sum * 1e3, step * 1e3);
    soloist_close(&s, &b);
    bench_close(&b);
    return sum < 2 * step && step < 2 * sum;
}

static void test_sum_is_near(void **state)
{
    (void)state;
    for (int attempt = 0; attempt < 5; attempt++)
        if (sum_is_near())
            return;
    fail_msg("costs do not sum up to what a step takes");
}

/* Every strategy, also with more workers than there are cores; and each program by itself. */
static void test_strategies(void **state)
{
    static const int workers[] = {1, 2, 3};
    (void)state;
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        for (size_t k = 0; k < sizeof workers / sizeof workers[0]; k++) {
            struct bench b;
            struct measure_result result;
            char what[64];
            (void)snprintf(what, sizeof what, "%s %d", s->name, workers[k]);
            if (!bench_open(&b, "lenet5", s->name, workers[k]))
                continue;
            b.request.alone = true;
            b.request.most_at_once = 2;
            enum status st = profile_measure(b.profile, &b.request, &result);
            assert_that(st == STATUS_OK, "%s: %s", what, status_message());
            assert_that(result.n_measured == result.n_missing, "%s: %d of %d", what,
                        result.n_measured, result.n_missing);
            assert_true(result.setting.load <= 2 && result.alone.load == 1);
            for (int w = 0; w < workers[k]; w++) {
                (void)sum_costs(&b, &result.setting, w, what);
                (void)sum_costs(&b, &result.alone, w, what);
            }
            assert_ok(profile_measure(b.profile, &b.request, &result));
            assert_int_equal(result.n_missing, 0);
            bench_close(&b);
        }
}

/* ---- cores that are not equally fast ---- */

static struct {
    const struct backend *real;
    pthread_t slow; /* whose kernels take twice as long as the others' */
} unequal;

static enum status run_unequally(group *g, enum pass pass, stream *s, const struct group_args *args,
                                 const struct step_state *step)
{
    int64_t start_ns = timer_now_ns();
    TRY(unequal.real->group_run(g, pass, s, args, step));
    int64_t rest_ns = 2000000; /* of the others; the slow one takes as long again, all in all */
    if (pthread_equal(pthread_self(), unequal.slow))
        rest_ns += timer_now_ns() - start_ns + rest_ns;
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)rest_ns}, NULL);
    return STATUS_OK;
}

/* Two workers that do the same but for the last layer, whose 9 outputs cannot be halved: how much
 * longer they take that wait for each other than their costs say. */
static double find_slowest(const struct backend *backend)
{
    const struct graph_variant variant = {8, 3, 32, 32, 9, true, -1};
    struct bench b;
    struct measure_result result;
    struct measure_factors factors;
    assert_true(bench_open_variant(&b, "lenet5", "owt", 2, &variant));
    bench_use(&b, backend);
    assert_ok(profile_measure(b.profile, &b.request, &result));
    measure_find_factors(b.profile, &result.setting, b.graph, b.plan, &factors);
    assert_true(factors.start_s > 0 && factors.cold == 1);
    bench_close(&b);
    return factors.slowest;
}

/* That one of them is slow is their cores' doing, and not what their programs take. */
static void test_a_slow_core_is_waited_for(void **state)
{
    (void)state;
    if (pin_count_cores() < 2)
        skip_because("this host has one core");
    assert_ok(backend_find("reference", &unequal.real));
    unequal.slow = pthread_self(); /* the first worker's thread is the caller's */
    struct backend backend = *unequal.real;
    backend.group_run = run_unequally;
    double slowest = 0; /* 4/3, or a little less; others may want the cores, too */
    for (int tries = 0; tries < 5 && !(slowest > 1.2 && slowest < 1.4); tries++)
        slowest = find_slowest(&backend);
    assert_that(slowest > 1.2 && slowest < 1.4, "%g", slowest);
}

/* Each plan has the factors of its own workers; a plan that was not measured has those of another
 * in the setting. */
static void test_each_plan_has_its_own_factors(void **state)
{
    (void)state;
    struct bench b;
    struct measure_factors factors;
    const struct profile_setting setting = {"a processor", 1, 2};
    const struct profile_entry general = {
        .key = "slowest", .work = {.family = "slowest"}, .cost = {1.3, 0, 1, 0}};
    const struct profile_entry own = {.key = "slowest of lenet5 8, data 2",
                                      .work = {.family = "slowest"},
                                      .cost = {1.1, 0, 1, 0}};
    assert_true(bench_open(&b, "lenet5", "data", 2));
    measure_find_factors(b.profile, &setting, b.graph, b.plan, &factors);
    assert_true(factors.slowest == 1 && factors.cold == 1 && factors.start_s == 0);
    assert_ok(profile_add(b.profile, &setting, &general, 1));
    measure_find_factors(b.profile, &setting, b.graph, b.plan, &factors);
    assert_true(factors.slowest == 1.3);
    assert_ok(profile_add(b.profile, &setting, &own, 1));
    measure_find_factors(b.profile, &setting, b.graph, b.plan, &factors);
    assert_true(factors.slowest == 1.1);
    bench_close(&b);
}

/* ---- costs of a bad minute ---- */

static struct {
    const struct backend *real;
    double longer; /* every kernel takes so many times as long */
    bool naps;     /* because the core is another program's meanwhile */
    int n_runs;
} minute;

static enum status run_in_a_minute(group *g, enum pass pass, stream *s,
                                   const struct group_args *args, const struct step_state *step)
{
    int64_t start_ns = timer_now_ns();
    minute.n_runs++;
    TRY(minute.real->group_run(g, pass, s, args, step));
    int64_t took_ns = timer_now_ns() - start_ns;
    int64_t until_ns = start_ns + (int64_t)(minute.longer * (double)took_ns);
    if (minute.naps)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(until_ns - timer_now_ns())}, NULL);
    while (timer_now_ns() < until_ns)
        ;
    return STATUS_OK;
}

/* Asks for the plan as another process would, later. */
static double ask_again(struct bench *b, const char *path, struct measure_result *result)
{
    profile_close(b->profile);
    assert_ok(profile_open(path, &b->profile));
    assert_ok(profile_measure(b->profile, &b->request, result));
    return sum_costs(b, &result->setting, 0, "a plan of another minute");
}

static void test_a_bad_minute_does_not_stay(void **state)
{
    (void)state;
    struct bench b;
    struct measure_result result;
    struct backend backend;
    char path[PATH_MAX];
    assert_true(bench_open_sized(&b, "lenet5", "serial", 1, 32));
    assert_ok(backend_find("reference", &minute.real));
    backend = *minute.real;
    backend.group_run = run_in_a_minute;
    bench_use(&b, &backend);
    (void)test_path(path, "minutes.db");
    minute.longer = 5;
    double bad_s = ask_again(&b, path, &result), good_s;
    assert_int_equal(result.n_measured, result.n_keys);
    assert_ok(profile_measure(b.profile, &b.request, &result)); /* checked once in a process */
    assert_int_equal(result.n_measured, 0);

    minute.n_runs = 0; /* unless something contradicts it */
    b.request.how.again = true;
    assert_ok(profile_measure(b.profile, &b.request, &result));
    assert_true(minute.n_runs >= 3);
    b.request.how.again = false;
    bad_s = sum_costs(&b, &result.setting, 0, "measured again");

    minute.longer = 1;
    minute.n_runs = 0;
    assert_ok(profile_measure(b.profile, &b.request, &result));
    assert_int_equal(result.n_measured, 0);
    assert_int_equal(minute.n_runs, 0);
    b.request.how.look_only = true;
    assert_true(ask_again(&b, path, &result) == bad_s);
    b.request.how.look_only = false;
    good_s = ask_again(&b, path, &result);
    assert_int_equal(result.n_missing, 0);
    assert_int_equal(result.n_measured, result.n_keys);
    assert_that(good_s < bad_s / 2, "%g s, then %g s", bad_s, good_s);

    bool is_calm = result.disturbed == 0; /* this host has no other programs now */
    minute.naps = true; /* costs measured beside other programs replace nothing better */
    minute.longer = 5;
    bad_s = ask_again(&b, path, &result);
    assert_that(!is_calm || bad_s < 2 * good_s, "%g s, then %g s", good_s, bad_s);
    minute.naps = false;
    bench_close(&b);
}

/* ---- being watched and stopped ---- */

struct watcher {
    int n_calls, stop_at;
    double share;
};

static enum status watch(void *user, double share, const char *what)
{
    struct watcher *w = user;
    assert_true(share >= w->share && share <= 1 && strlen(what) > 0);
    w->share = share;
    w->n_calls++;
    return STATUS_OK;
}

static bool stop_later(void *user)
{
    const struct watcher *w = user;
    return w->stop_at && w->n_calls >= w->stop_at;
}

static void test_stops(void **state)
{
    struct bench b;
    struct measure_result result;
    struct watcher w = {.stop_at = 2};
    (void)state;
    assert_true(bench_open(&b, "lenet5", "gpipe", 2));
    b.request.how.callbacks = (struct measure_callbacks){watch, stop_later, &w};
    assert_fails(profile_measure(b.profile, &b.request, &result), STATUS_STOPPED, "lenet5");
    assert_int_equal(result.n_measured, 0);
    w = (struct watcher){0};
    assert_ok(profile_measure(b.profile, &b.request, &result));
    assert_int_equal(result.n_measured, result.n_keys);
    assert_true(w.n_calls > 3);
    bench_close(&b);
}

/* ---- data ---- */

static void test_feed(void **state)
{
    struct bench b;
    struct profile_cost first, second;
    struct feed_request r = {.data = "synthetic:3x32x32/10/500", .batch = 64, .budget_s = 0.02};
    bool measured;
    (void)state;
    assert_true(bench_open(&b, "lenet5", "serial", 1));
    assert_ok(profile_measure_feed(b.profile, &r, &first, &measured));
    assert_true(measured && first.seconds > 0 && first.seconds < 0.1 && first.count >= 8);
    assert_ok(profile_measure_feed(b.profile, &r, &second, &measured));
    assert_true(!measured && second.seconds == first.seconds);
    r.augment = true;
    assert_ok(profile_measure_feed(b.profile, &r, &second, &measured));
    assert_true(measured);
    r.data = "synthetic:1x8x8/4/3"; /* fewer samples than a batch */
    assert_ok(profile_measure_feed(b.profile, &r, &second, &measured));
    assert_true(measured && second.seconds > 0);
    r.data = "synthetic:nothing";
    assert_fails(profile_measure_feed(b.profile, &r, &second, &measured), STATUS_USAGE, "nothing");
    struct watcher w = {.stop_at = 1};
    r.data = "synthetic:3x16x16/10/500";
    r.callbacks = (struct measure_callbacks){watch, stop_later, &w};
    assert_fails(profile_measure_feed(b.profile, &r, &second, NULL), STATUS_STOPPED, "synthetic");
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reaches_nobody),
        cmocka_unit_test(test_wrong_executors),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_fills_all),
        cmocka_unit_test(test_sum_is_near),
        cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_feed),
        cmocka_unit_test(test_a_slow_core_is_waited_for),
        cmocka_unit_test(test_each_plan_has_its_own_factors),
        cmocka_unit_test(test_a_bad_minute_does_not_stay),
    };
    return test_run(tests);
}
