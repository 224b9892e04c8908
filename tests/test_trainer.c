/* The training loop: it learns, it repeats itself bit by bit, and neither a stop nor a kill at any
 * moment can be seen in the result. */
#include "testing.h"
#include "training.h"

#include "base/log.h"
#include "base/random.h"
#include "runtime/stop.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <time.h>

/* Where every step takes fifty times as long, fewer of them are made. */
#if defined(__SANITIZE_THREAD__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

/* ---- what a run reports ---------------------------------------------------------------------- */

enum { MAX_STEPS = 64, MAX_EPOCHS = 8 };

struct record {
    int n_steps, n_epochs, n_done;
    struct trainer_step steps[MAX_STEPS];
    struct trainer_epoch epochs[MAX_EPOCHS];
    struct trainer_done done;
    int fail_at; /* step at which on_step refuses; 0: never */
};

static enum status record_step(const struct trainer_step *s, void *user)
{
    struct record *r = user;
    assert_true(r->n_steps < MAX_STEPS);
    r->steps[r->n_steps++] = *s;
    if (r->fail_at && s->step == r->fail_at)
        return status_fail(STATUS_FAILED, "the listener has had enough");
    return STATUS_OK;
}

static enum status record_epoch(const struct trainer_epoch *e, void *user)
{
    struct record *r = user;
    assert_true(r->n_epochs < MAX_EPOCHS);
    r->epochs[r->n_epochs++] = *e;
    return STATUS_OK;
}

static enum status record_done(const struct trainer_done *d, void *user)
{
    struct record *r = user;
    r->n_done++;
    r->done = *d;
    return STATUS_OK;
}

static const struct trainer_callbacks recording = {record_step, record_epoch, record_done};

static void train(const struct trainer_options *o, struct record *r)
{
    *r = (struct record){0};
    assert_ok(run_training(o, &recording, r));
}

static uint64_t weights_of(const char *name, int64_t expected_step)
{
    int64_t step = 0;
    uint64_t sum = 0;
    assert_ok(sum_checkpoint(name, &step, &sum));
    assert_int_equal(step, expected_step);
    return sum;
}

/* ---- learning -------------------------------------------------------------------------------- */

static void test_learns_and_reports(void **state)
{
    (void)state;
    static struct record r;
    struct trainer_options o = small_run(NULL);
    train(&o, &r);
    assert_true(r.n_steps == 15 && r.n_epochs == 3 && r.n_done == 1);
    assert_near(r.steps[0].loss, log(4), 0.3);
    assert_true(r.epochs[2].train_loss < 0.5 * r.epochs[0].train_loss);
    for (int i = 0; i < r.n_steps; i++) {
        const struct trainer_step *s = &r.steps[i];
        assert_int_equal(s->step, i + 1);
        assert_int_equal(s->epoch, i / 5 + 1);
        assert_int_equal(s->n_samples, i % 5 == 4 ? 6 : 16);
        assert_true(s->steps_total == 15 && s->learning_rate == 0.05);
        assert_true(s->compute_ns > 0 && s->compute_ns <= s->step_ns && s->wait_ns <= s->step_ns);
        assert_true(s->images_per_s > 0 && (s->eta_s > 0 || i == 14));
    }
    /* The epoch's loss is the mean over samples, not over batches. */
    double sum = 0;
    for (int i = 0; i < 5; i++)
        sum += r.steps[i].loss * (double)r.steps[i].n_samples;
    assert_true(r.epochs[0].train_loss == sum / 70);
    assert_true(r.epochs[2].evaluated && r.epochs[2].test_accuracy > 0.7);
    assert_true(r.done.evaluated && r.done.test_accuracy == r.epochs[2].test_accuracy);
    assert_true(r.done.steps == 15 && r.done.steps_run == 15);
    assert_true(r.done.median_step_s > 0 && r.done.memory_bytes > 0);
    assert_true(r.done.last_loss == r.steps[14].loss);
}

static void test_convolutions_learn(void **state)
{
    (void)state;
    static struct record r;
    struct trainer_options o = small_run(NULL);
    o.model = "lenet5";
    o.data = "synthetic:1x28x28/10/256";
    o.epochs = 2;
    o.evaluate = false;
    o.rule = (struct update_rule){
        .kind = UPDATE_ADAMW, .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    train(&o, &r);
    assert_false(r.epochs[1].evaluated || r.done.evaluated);
    assert_true(r.epochs[1].train_loss < 0.7 * r.epochs[0].train_loss);
}

static void test_schedule_reaches_the_steps(void **state)
{
    (void)state;
    static struct record r;
    struct trainer_options o = small_run(NULL);
    o.schedule = (struct schedule){.kind = SCHEDULE_STEP, .drop_epochs = 1, .drop_factor = 0.5};
    o.schedule.warmup_steps = 2;
    train(&o, &r);
    assert_near(r.steps[0].learning_rate, 0.025, 1e-15);
    assert_near(r.steps[4].learning_rate, 0.05, 1e-15);
    assert_near(r.steps[5].learning_rate, 0.025, 1e-15);
    assert_near(r.steps[14].learning_rate, 0.0125, 1e-15);
}

/* The evaluation does not disturb the training, whatever its batches. */
static void test_evaluation_leaves_no_trace(void **state)
{
    (void)state;
    static struct record with, without, odd;
    struct trainer_options o = small_run(NULL);
    train(&o, &with);
    o.eval_batch = 13;
    train(&o, &odd);
    o.evaluate = false;
    train(&o, &without);
    for (int i = 0; i < 15; i++)
        assert_true(with.steps[i].loss == without.steps[i].loss);
    assert_near(odd.done.test_loss, with.done.test_loss, 1e-6);
    assert_near(odd.done.test_accuracy, with.done.test_accuracy, 1e-12);
}

static void test_batch_of_everything(void **state)
{
    (void)state;
    static struct record r;
    struct trainer_options o = small_run(NULL);
    o.batch = 1000;
    train(&o, &r);
    assert_true(r.n_steps == 3 && r.steps[0].n_samples == 70);
    o.batch = 16;
    o.data_limit = 16;
    train(&o, &r);
    assert_true(r.n_steps == 3 && r.steps[2].n_samples == 16);
}

/* ---- repeating ------------------------------------------------------------------------------- */

static void test_same_seed_same_bits(void **state)
{
    (void)state;
    char place[PATH_MAX], a[PATH_MAX], b[PATH_MAX], c[PATH_MAX];
    make_place("seed", place, a);
    (void)snprintf(b, sizeof b, "%.4000s/b", place);
    (void)snprintf(c, sizeof c, "%.4000s/c", place);
    struct trainer_options o = small_run(a);
    o.augment = true;
    assert_ok(run_training(&o, NULL, NULL));
    o.checkpoint = b;
    o.loader_threads = 3;
    o.evaluate = false;
    assert_ok(run_training(&o, NULL, NULL));
    o.checkpoint = c;
    o.seed = 2;
    assert_ok(run_training(&o, NULL, NULL));
    assert_true(weights_of(a, 15) == weights_of(b, 15));
    assert_true(weights_of(a, 15) != weights_of(c, 15));
}

/* Stops after every stride-th step in turn, resumes, and compares with a run that never stopped:
 * weights, losses, epoch summaries. The last batch of each epoch is short. */
static void check_resume(struct trainer_options o, const char *folder, int stride)
{
    char place[PATH_MAX], name[PATH_MAX], whole[PATH_MAX];
    static struct record straight, first, second;
    make_place(folder, place, whole);
    o.checkpoint = whole;
    train(&o, &straight);
    uint64_t expected = weights_of(whole, 15);
    for (int stop = 1; stop < 15; stop += stride) {
        (void)snprintf(name, sizeof name, "%.4000s/at%d", place, stop);
        o.checkpoint = name;
        o.max_steps = stop;
        o.resume = false;
        train(&o, &first);
        o.max_steps = 0;
        o.resume = true;
        train(&o, &second);
        assert_int_equal(first.n_steps + second.n_steps, 15);
        for (int i = stop; i < 15; i++)
            assert_that(second.steps[i - stop].loss == straight.steps[i].loss,
                        "stopped after %d: step %d has loss %.9g, not %.9g", stop, i + 1,
                        second.steps[i - stop].loss, straight.steps[i].loss);
        int ended = first.n_epochs;
        assert_int_equal(ended + second.n_epochs, 3);
        for (int i = ended; i < 3; i++)
            assert_true(second.epochs[i - ended].train_loss == straight.epochs[i].train_loss &&
                        second.epochs[i - ended].test_loss == straight.epochs[i].test_loss);
        assert_that(weights_of(name, 15) == expected, "stopped after %d: other weights", stop);
    }
}

static void test_resume_is_invisible(void **state)
{
    (void)state;
    struct trainer_options o = small_run(NULL);
    o.augment = true;
    assert_ok(schedule_parse("cosine:0.1", &o.schedule));
    o.schedule.warmup_steps = 3;
    o.rule.nesterov = true;
    check_resume(o, "resume-sgd", SLOW ? 7 : 1);
    o.rule.kind = UPDATE_ADAMW;
    o.rule.learning_rate = 1e-3;
    check_resume(o, "resume-adamw", SLOW ? 14 : 4);
    o.rule = (struct update_rule){.kind = UPDATE_SGD, .learning_rate = 0.05};
    check_resume(o, "resume-plain", SLOW ? 14 : 6);
}

/* A larger network with dropout and batch norm: its masks go on from the right step. */
static void test_resume_with_dropout(void **state)
{
    (void)state;
    if (SLOW)
        skip_because("under the thread sanitizer every step takes fifty times as long");
    char place[PATH_MAX], whole[PATH_MAX], cut[PATH_MAX], dry[PATH_MAX];
    make_place("dropout", place, whole);
    (void)snprintf(cut, sizeof cut, "%.4000s/cut", place);
    (void)snprintf(dry, sizeof dry, "%.4000s/dry", place);
    struct trainer_options o = small_run(whole);
    o.model = "mobilenetv2";
    o.data = "synthetic:3x33x33/4/3"; /* the large form */
    o.batch = 2;
    o.epochs = 1;
    o.evaluate = false;
    o.rule = (struct update_rule){.kind = UPDATE_SGD, .learning_rate = 1e-3};
    assert_ok(run_training(&o, NULL, NULL));
    o.checkpoint = cut;
    o.max_steps = 1;
    assert_ok(run_training(&o, NULL, NULL));
    o.max_steps = 0;
    o.resume = true;
    assert_ok(run_training(&o, NULL, NULL));
    assert_true(weights_of(whole, 2) == weights_of(cut, 2));
    o.checkpoint = dry;
    o.drop_probability = 0;
    assert_ok(run_training(&o, NULL, NULL));
    assert_true(weights_of(whole, 2) != weights_of(dry, 2)); /* it does have dropout */
}

static void test_finished_run_can_be_lengthened(void **state)
{
    (void)state;
    char place[PATH_MAX], a[PATH_MAX], b[PATH_MAX];
    static struct record r;
    make_place("longer", place, a);
    (void)snprintf(b, sizeof b, "%.4000s/b", place);
    struct trainer_options o = small_run(a);
    train(&o, &r);
    double accuracy = r.done.test_accuracy;
    o.checkpoint = b;
    o.epochs = 1;
    train(&o, &r);
    o.resume = true;
    o.epochs = 3;
    train(&o, &r);
    assert_int_equal(r.n_steps, 10);
    assert_true(weights_of(a, 15) == weights_of(b, 15));
    train(&o, &r); /* nothing left to do but to say how good it is */
    assert_true(r.n_steps == 0 && r.n_epochs == 0 && r.n_done == 1 && r.done.steps == 15);
    assert_true(r.done.evaluated && r.done.test_accuracy == accuracy);
}

static void test_weights_file(void **state)
{
    (void)state;
    char path[PATH_MAX], copy[PATH_MAX];
    struct trainer_options o = small_run(NULL);
    trainer *t;
    assert_ok(trainer_create(&o, &t));
    assert_ok(trainer_run(t, NULL, NULL));
    assert_ok(trainer_save_weights(t, test_path(path, "w.safetensors")));
    trainer_destroy(t);
    o.weights = path;
    o.seed = 9;
    assert_ok(trainer_create(&o, &t));
    assert_ok(trainer_save_weights(t, test_path(copy, "copy.safetensors")));
    trainer_destroy(t);
    size_t n_first, n_second;
    char *first = test_read_file(path, &n_first), *second = test_read_file(copy, &n_second);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    free(first);
    free(second);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#define REFUSED(change, status, part)                       \
    do {                                                    \
        struct trainer_options o = small_run(NULL);         \
        trainer *t = NULL;                                  \
        change;                                             \
        assert_fails(trainer_create(&o, &t), status, part); \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    REFUSED(o.model = "mpl", STATUS_USAGE, "did you mean 'mlp'?");
    REFUSED(o.data = "fashion-mist", STATUS_USAGE, "fashion-mnist");
    REFUSED(o.backend = "referense", STATUS_USAGE, "did you mean 'reference'?");
    REFUSED(o.batch = 0, STATUS_USAGE, "batch is 0, it must be at least 1");
    REFUSED(o.batch = -3, STATUS_USAGE, "batch is -3");
    REFUSED(o.eval_batch = -1, STATUS_USAGE, "evaluation batch");
    REFUSED(o.epochs = 0, STATUS_USAGE, "there is no end");
    REFUSED(o.rule.learning_rate = NAN, STATUS_USAGE, "learning rate");
    REFUSED(o.rule.learning_rate = -1, STATUS_USAGE, "learning rate is -1");
    REFUSED(o.rule.momentum = 1, STATUS_USAGE, "momentum");
    REFUSED((o.rule.nesterov = true, o.rule.momentum = 0), STATUS_USAGE, "Nesterov");
    REFUSED(o.resume = true, STATUS_USAGE, "must be named");
    REFUSED(o.checkpoint = "/dev/null/all", STATUS_FAILED, "/dev/null: cannot save");
    REFUSED(o.weights = "/nowhere/w", STATUS_FAILED, "/nowhere/w: cannot open");
    REFUSED(o.model = "alexnet", STATUS_USAGE, ""); /* 8x8 images do not fit */
}

static void test_refuses_to_resume_another_run(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], json[PATH_MAX];
    make_place("other", place, name);
    struct trainer_options first = small_run(name);
    first.epochs = 1;
    assert_ok(run_training(&first, NULL, NULL));
    (void)snprintf(json, sizeof json, "%.4000s.json", name);
#define OTHER(change, part) \
    REFUSED((o.checkpoint = json, o.resume = true, change), STATUS_USAGE, part)
    OTHER(o.batch = 8, "batch is 16 there, 8 was asked for");
    OTHER(o.seed = 2, "seed is 1 there");
    OTHER(o.data_limit = 64, "training samples is 70 there, 64");
    OTHER(o.data = "synthetic:1x8x8/5/70", "data is");
    OTHER(o.rule.kind = UPDATE_ADAMW, "optimizer is sgd there");
    OTHER(o.rule.momentum = 0, "momentum is 0.9 there");
#undef OTHER
}

static void test_errors_name_the_step(void **state)
{
    (void)state;
    static struct record r;
    struct trainer_options o = small_run(NULL);
    o.rule.learning_rate = 1e30;
    assert_fails(run_training(&o, &recording, &r), STATUS_FAILED, "step 2: the loss is");
    r = (struct record){.fail_at = 7};
    o = small_run(NULL);
    assert_fails(run_training(&o, &recording, &r), STATUS_FAILED, "had enough");
    assert_int_equal(r.n_steps, 7);
}

/* ---- being stopped and being killed ---------------------------------------------------------- */

/* The run that the children make: some milliseconds of saving after every step. */
static struct trainer_options hunted_run(const char *name)
{
    struct trainer_options o = small_run(name);
    o.epochs = 8;
    o.augment = true;
    o.rule.kind = UPDATE_ADAMW;
    o.rule.learning_rate = 1e-3;
    o.checkpoint_every_steps = 1;
    o.resume = true;
    return o;
}
enum { HUNTED_STEPS = 8 * 5 };

/* A child that trains to the end, or until it is stopped; it exits with the status. The message of
 * its end goes to `to`. */
static pid_t start_child(const struct trainer_options *o, int to)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0)
        return child;
    enum status st = stop_install();
    if (st == STATUS_OK)
        st = run_training(o, NULL, NULL);
    const char *message = status_message();
    if (to >= 0 && write(to, message, strlen(message)) < 0)
        _exit(99);
    if (to < 0 && st != STATUS_OK)
        print_error("child: %s\n", message);
    _exit((int)st);
}

static void sleep_ns(int64_t n_ns)
{
    struct timespec t = {.tv_sec = n_ns / 1000000000, .tv_nsec = n_ns % 1000000000};
    (void)nanosleep(&t, NULL);
}

static uint64_t straight_weights(const char *folder)
{
    char name[PATH_MAX];
    (void)snprintf(name, sizeof name, "%.4000s/straight", folder);
    struct trainer_options o = hunted_run(name);
    o.checkpoint_every_steps = 0;
    o.checkpoint_each_epoch = false;
    assert_ok(run_training(&o, NULL, NULL));
    return weights_of(name, HUNTED_STEPS);
}

/* Waits until n_events of the folder's life (files made, written, renamed, removed) have passed, at
 * most a second. */
static void wait_for_events(int watch, int n_events)
{
    char buffer[4096] __attribute__((aligned(8)));
    while (n_events > 0) {
        struct pollfd p = {.fd = watch, .events = POLLIN};
        if (poll(&p, 1, 1000) <= 0)
            return;
        ssize_t n = read(watch, buffer, sizeof(struct inotify_event) + NAME_MAX + 1);
        for (ssize_t at = 0; at < n; n_events--) {
            const struct inotify_event *e = (const struct inotify_event *)(buffer + at);
            at += (ssize_t)(sizeof *e + e->len);
        }
    }
}

/* Kills a child again and again, half the time at a random moment, half the time right at an event
 * of a save. Returns true if it was killed, false if it came to its end before. */
static bool hunt_once(const struct trainer_options *o, const char *folder, uint64_t round)
{
    struct random_key key = {11, RANDOM_TEST, 1};
    uint32_t chance = random_word(key, 0, round);
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_true(watch >= 0);
    assert_true(inotify_add_watch(watch, folder,
                                  IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVE | IN_DELETE) >=
                0);
    pid_t child = start_child(o, -1);
    if (round % 2)
        sleep_ns(chance % 40000000);
    else
        wait_for_events(watch, 1 + (int)(chance % 40));
    int how;
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &how, 0), child);
    (void)close(watch);
    assert_true(WIFSIGNALED(how) || (WIFEXITED(how) && WEXITSTATUS(how) == 0));
    return WIFSIGNALED(how);
}

static void test_killed_at_any_moment(void **state)
{
    (void)state;
    enum { IN_A_ROW = SLOW ? 4 : 20, N_KILLS = 2 * IN_A_ROW };
    char place[PATH_MAX], name[PATH_MAX], started[PATH_MAX];
    make_place("killed", place, name);
    uint64_t expected = straight_weights(place);
    int n_kills = 0, n_leftovers = 0;
    int64_t step = 0, before = 0;
    for (uint64_t round = 0; n_kills < N_KILLS; round++) {
        (void)snprintf(started, sizeof started, "%.4000s/run%d", place, n_kills / IN_A_ROW);
        struct trainer_options o = hunted_run(started);
        bool killed = hunt_once(&o, place, round);
        n_kills += killed;
        uint64_t sum;
        if (checkpoint_exists(started)) {
            assert_ok(sum_checkpoint(started, &step, &sum));
            assert_that(step >= before || n_kills % IN_A_ROW <= 1, "fell back from %lld to %lld",
                        (long long)before, (long long)step);
            before = step;
        }
        n_leftovers += count_files(place) > 2 + 2 * (1 + n_kills / IN_A_ROW);
        if (!killed || n_kills % IN_A_ROW == 0) { /* to the end, and once more from the beginning */
            assert_ok(run_training(&o, NULL, NULL));
            assert_true(weights_of(started, HUNTED_STEPS) == expected);
            char path[PATH_MAX + 8];
            (void)snprintf(path, sizeof path, "%s.json", started);
            assert_int_equal(unlink(path), 0);
            before = 0;
        }
    }
    assert_true(n_leftovers > 0 || SLOW); /* some kills did hit a save */
}

/* Waits until the checkpoint is there, so that the child is in the middle of its run. */
static void wait_for_checkpoint(const char *name)
{
    for (int i = 0; i < 20000 && !checkpoint_exists(name); i++)
        sleep_ns(1000000);
    assert_true(checkpoint_exists(name));
}

static void check_stopped(int signal_number, const char *signal_name, const char *folder)
{
    char place[PATH_MAX], name[PATH_MAX], text[1024] = {0}, expected[64];
    make_place(folder, place, name);
    uint64_t weights = straight_weights(place);
    struct trainer_options o = hunted_run(name);
    int ends[2], how;
    assert_int_equal(pipe(ends), 0);
    pid_t child = start_child(&o, ends[1]);
    wait_for_checkpoint(name);
    assert_int_equal(kill(child, signal_number), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_that(WIFEXITED(how), "%s: the child died by signal %d", signal_name, WTERMSIG(how));
    assert_int_equal(WEXITSTATUS(how), STATUS_STOPPED);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
    int64_t step = 0;
    uint64_t sum;
    assert_ok(sum_checkpoint(name, &step, &sum));
    (void)snprintf(expected, sizeof expected, "stopped by %s at step %lld; saved to ", signal_name,
                   (long long)step);
    assert_that(strstr(text, expected) && strstr(text, name), "'%s' for '%s'", text, expected);
    assert_ok(run_training(&o, NULL, NULL));
    assert_true(weights_of(name, HUNTED_STEPS) == weights);
}

static void test_stopped_by_a_signal(void **state)
{
    (void)state;
    check_stopped(SIGTERM, "SIGTERM", "sigterm");
    check_stopped(SIGINT, "SIGINT", "sigint");
}

/* In this process: the signal comes at a known step; and again while the epoch is evaluated. */
static enum status raise_at_step(const struct trainer_step *s, void *user)
{
    if (s->step == *(const int *)user)
        ask_to_stop(SIGTERM);
    return STATUS_OK;
}

static void test_stop_is_exact(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX];
    make_place("exact", place, name);
    static const struct trainer_callbacks raising = {.on_step = raise_at_step};
    struct trainer_options o = small_run(NULL);
    o.overwrite = true;
    for (int step = 3; step <= 15; step += 6) {
        assert_ok(stop_install());
        assert_fails(run_training(&o, &raising, &step), STATUS_STOPPED, "nothing was saved");
        stop_remove();
        assert_ok(stop_install());
        o.checkpoint = name;
        enum status st = run_training(&o, &raising, &step);
        assert_int_equal(stop_requested(), SIGTERM);
        stop_remove();
        char part[64];
        (void)snprintf(part, sizeof part, "stopped by SIGTERM at step %d; saved to", step);
        assert_fails(st, STATUS_STOPPED, part);
        (void)weights_of(name, step);
        o.checkpoint = NULL;
    }
}

static bool is_blocked(int signal_number)
{
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    return sigismember(&mask, signal_number);
}

static void *look_from_a_thread(void *blocked)
{
    *(bool *)blocked = is_blocked(SIGTERM) && is_blocked(SIGINT);
    return NULL;
}

/* oneDNN's matrix products cannot be interrupted: a handler's frame would lie in the heap. */
static void test_signals_spare_computing_threads(void **state)
{
    (void)state;
    pthread_t thread;
    bool blocked = false;
    for (int again = 0; again < 2; again++) {
        assert_ok(stop_install());
        assert_ok(stop_install()); /* once more does no harm */
        assert_true(is_blocked(SIGTERM) && is_blocked(SIGINT));
        assert_int_equal(pthread_create(&thread, NULL, look_from_a_thread, &blocked), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(blocked);
        ask_to_stop(again ? SIGINT : SIGTERM);
        stop_remove();
        assert_true(!is_blocked(SIGTERM) && !is_blocked(SIGINT) && !stop_requested());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns_and_reports),
        cmocka_unit_test(test_convolutions_learn),
        cmocka_unit_test(test_schedule_reaches_the_steps),
        cmocka_unit_test(test_evaluation_leaves_no_trace),
        cmocka_unit_test(test_batch_of_everything),
        cmocka_unit_test(test_same_seed_same_bits),
        cmocka_unit_test(test_resume_is_invisible),
        cmocka_unit_test(test_resume_with_dropout),
        cmocka_unit_test(test_finished_run_can_be_lengthened),
        cmocka_unit_test(test_weights_file),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refuses_to_resume_another_run),
        cmocka_unit_test(test_errors_name_the_step),
        cmocka_unit_test(test_killed_at_any_moment),
        cmocka_unit_test(test_stopped_by_a_signal),
        cmocka_unit_test(test_stop_is_exact),
        cmocka_unit_test(test_signals_spare_computing_threads),
        ON_CPU(test_same_seed_same_bits),
        ON_CPU(test_resume_is_invisible),
        ON_CPU(test_resume_with_dropout),
        ON_CPU(test_killed_at_any_moment),
        ON_CPU(test_stopped_by_a_signal),
    };
    log_set_level(LOG_QUIET);
    return test_run(tests);
}
