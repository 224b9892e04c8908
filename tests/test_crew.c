/* Many workers train as one: the same losses under any plan, checkpoints that know nothing of the
 * plan, processes that act together, and failures that end all of them with their cause. */
#include "session.h"
#include "testing.h"
#include "training.h"

#include "base/log.h"
#include "base/timer.h"
#include "model/network.h"
#include "runtime/crew.h"
#include "runtime/stop.h"

/* The rooms of data and of programs each have a buffer and a stream of their own. */
#define buffer data_buffer
#define stream data_stream
#include "data/source.h"
#undef buffer
#undef stream

#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* ---- runs ---- */

enum { MAX_STEPS = 64, MAX_PROCESSES = 4 };

struct record {
    int n_steps, n_epochs;
    double losses[MAX_STEPS];
    int64_t steps[MAX_STEPS], n_samples[MAX_STEPS];
    double test_loss, test_accuracy;
    struct trainer_done done;
    int fail_at, signal_at;  /* steps; 0: never */
    const char *remove_at_3; /* a folder that vanishes after step 3 */
};

static enum status record_step(const struct trainer_step *s, void *user)
{
    struct record *r = user;
    r->steps[r->n_steps] = s->step;
    r->n_samples[r->n_steps] = s->n_samples;
    r->losses[r->n_steps++] = s->loss;
    if (s->step == r->fail_at)
        return status_fail(STATUS_FAILED, "the listener has had enough");
    if (s->step == r->signal_at)
        ask_to_stop(SIGTERM);
    if (s->step == 3 && r->remove_at_3) {
        char lock[PATH_MAX];
        (void)snprintf(lock, sizeof lock, "%s/run.lock", r->remove_at_3);
        (void)unlink(lock);
        (void)rmdir(r->remove_at_3);
    }
    return STATUS_OK;
}

static enum status record_epoch(const struct trainer_epoch *e, void *user)
{
    struct record *r = user;
    r->n_epochs++;
    r->test_loss = e->test_loss;
    r->test_accuracy = e->test_accuracy;
    return STATUS_OK;
}

static enum status record_done(const struct trainer_done *d, void *user)
{
    ((struct record *)user)->done = *d;
    return STATUS_OK;
}

static const struct trainer_callbacks recording = {record_step, record_epoch, record_done};

/* LeNet-5 on 70 samples in batches of 16: ten steps, the fifth and the last with 6 samples. */
static struct trainer_options lenet_run(const char *plan, int workers)
{
    struct trainer_options o = trainer_default_options();
    o.model = "lenet5";
    o.data = "synthetic:1x28x28/10/70";
    o.batch = 16;
    o.epochs = 2;
    o.backend = training_backend;
    o.precision = strcmp(training_backend, "reference") == 0 ? PRECISION_DOUBLE : PRECISION_FLOAT;
    o.threads = 1;
    o.rule.learning_rate = 0.02;
    o.plan = plan;
    o.workers = workers;
    return o;
}

static void train(const struct trainer_options *o, struct record *r)
{
    *r = (struct record){0};
    assert_ok(run_training(o, &recording, r));
}

/* From step `first` (0: all) on the losses are those of the other run. */
static void assert_same_run(const struct record *r, const struct record *expected, int first,
                            double tolerance, const char *what)
{
    assert_int_equal(r->n_steps, expected->n_steps - first);
    for (int i = 0; i < r->n_steps; i++) {
        double wanted = expected->losses[first + i];
        assert_int_equal(r->steps[i], first + i + 1);
        assert_int_equal(r->n_samples[i], expected->n_samples[first + i]);
        assert_that(fabs(r->losses[i] - wanted) <= tolerance, "%s: step %d has loss %.9g, not %.9g",
                    what, first + i + 1, r->losses[i], wanted);
    }
    assert_true(r->test_accuracy == expected->test_accuracy);
    assert_near(r->test_loss, expected->test_loss, tolerance);
}

static double tolerance(void)
{
    return strcmp(training_backend, "reference") == 0 ? 1e-5 : 1e-4;
}

static const struct {
    const char *plan;
    int workers;
} splits[] = {{"data", 1}, {"data", 2}, {"data", 3},  {"model", 2}, {"model", 3},
              {"1f1b", 2}, {"1f1b", 3}, {"gpipe", 2}, {"owt", 3},   {"ps", 3}};
enum { N_SPLITS = sizeof splits / sizeof *splits };

static void test_any_plan_trains_alike(void **state)
{
    (void)state;
    static struct record alone, many;
    struct trainer_options o = lenet_run(NULL, 0);
    train(&o, &alone);
    assert_true(alone.n_steps == 10 && alone.n_epochs == 2 && alone.done.bytes_moved == 0);
    assert_true(alone.losses[9] < alone.losses[0]);
    for (int i = 0; i < N_SPLITS; i++) {
        o = lenet_run(splits[i].plan, splits[i].workers);
        train(&o, &many);
        assert_same_run(&many, &alone, 0, tolerance(), splits[i].plan);
        assert_true(many.done.bytes_moved > 0 || splits[i].workers == 1);
    }
}

/* More workers than samples in the last batch: some have nothing to do there. */
static void test_hardly_any_samples(void **state)
{
    (void)state;
    static struct record alone, many;
    struct trainer_options o = lenet_run(NULL, 0);
    o.data = "synthetic:1x28x28/10/18";
    train(&o, &alone);
    assert_int_equal(alone.n_samples[1], 2);
    o.plan = "data";
    o.workers = 5;
    train(&o, &many);
    assert_same_run(&many, &alone, 0, tolerance(), "data");
    o.plan = "1f1b"; /* 8 micro-batches of 2 samples */
    o.workers = 3;
    o.request.micro_batches = 8;
    train(&o, &many);
    assert_same_run(&many, &alone, 0, tolerance(), "1f1b");
}

static void test_same_plan_same_bits(void **state)
{
    (void)state;
    static struct record first, second;
    for (int i = 0; i < N_SPLITS; i++) {
        struct trainer_options o = lenet_run(splits[i].plan, splits[i].workers);
        o.epochs = 1;
        train(&o, &first);
        train(&o, &second);
        assert_same_run(&second, &first, 0, 0, splits[i].plan);
    }
}

/* Two windows of 4 and two steps of their own, of which the last is short. */
static void test_windows(void **state)
{
    (void)state;
    static struct record whole, first, second;
    char place[PATH_MAX], name[PATH_MAX];
    make_place("windows", place, name);
    struct trainer_options o = lenet_run("pipedream", 2);
    o.data = "synthetic:1x28x28/10/150";
    o.epochs = 1;
    o.request.window = 4;
    train(&o, &whole);
    assert_int_equal(whole.n_steps, 10);
    assert_int_equal(whole.n_samples[9], 6);
    assert_true(whole.losses[9] < whole.losses[0]);
    o.checkpoint = name;
    o.max_steps = 4;
    train(&o, &first);
    o.max_steps = 0;
    o.resume = true;
    train(&o, &second);
    assert_same_run(&second, &whole, 4, 0, "pipedream");
}

/* A graph and a plan that the caller has made, in place of their names. */
static void test_values_in_place_of_names(void **state)
{
    (void)state;
    static struct record named, given;
    struct graph_variant v = {.batch = 16,
                              .channels = 1,
                              .height = 28,
                              .width = 28,
                              .classes = 10,
                              .small_form = true,
                              .drop_probability = -1};
    struct plan_request request = {.n_workers = 2};
    struct graph *graph, *resized, *other;
    struct plan *plan;
    assert_ok(network_build("lenet5", &v, &graph));
    assert_ok(plan_build("gpipe", graph, &request, &plan));
    v.height = v.width = 32;
    assert_ok(network_build("lenet5", &v, &other));
    struct trainer_options o = lenet_run("gpipe", 2);
    train(&o, &named);
    o.plan = o.model = NULL;
    o.workers = 0;
    o.graph = graph;
    o.resolved_plan = plan;
    train(&o, &given);
    assert_same_run(&given, &named, 0, 0, "given as values");
    assert_ok(graph_resize(graph, 8, &resized));
    o.graph = resized;
    train(&o, &given);
    assert_same_run(&given, &named, 0, 0, "given for another batch");
    o.graph = other;
    trainer *t;
    assert_fails(trainer_create(&o, &t), STATUS_USAGE, "takes 16x1x32x32 images of 10 classes");
    plan_destroy(plan);
    graph_destroy(graph);
    graph_destroy(resized);
    graph_destroy(other);
}

/* ---- checkpoints ---- */

static void weights_under(struct trainer_options o, const char *path)
{
    trainer *t;
    assert_ok(trainer_create(&o, &t));
    assert_true(trainer_get_info(t)->resumed && trainer_get_info(t)->first_step == 7);
    assert_ok(trainer_save_weights(t, path));
    trainer_destroy(t);
}

/* A checkpoint that another plan reads and writes again has the same bits. */
static void check_weights_go_round(const char *name)
{
    char first_path[PATH_MAX], path[PATH_MAX];
    size_t n_first, n;
    struct trainer_options o = lenet_run("serial", 1);
    o.checkpoint = name;
    o.resume = true;
    weights_under(o, test_path(first_path, "serial.safetensors"));
    char *first = test_read_file(first_path, &n_first);
    for (int i = 0; i < N_SPLITS; i++) {
        o.plan = splits[i].plan;
        o.workers = splits[i].workers;
        weights_under(o, test_path(path, "split.safetensors"));
        char *bytes = test_read_file(path, &n);
        assert_that(n == n_first && memcmp(bytes, first, n) == 0, "%s on %d", o.plan, o.workers);
        free(bytes);
    }
    free(first);
}

/* Copies the checkpoint's two files under another name in the same folder: same tensor file. */
static void copy_checkpoint(const char *from, const char *to)
{
    char path[PATH_MAX + 8];
    size_t n;
    (void)snprintf(path, sizeof path, "%s.json", from);
    char *bytes = test_read_file(path, &n);
    (void)snprintf(path, sizeof path, "%s.json", to);
    test_write_file(path, bytes, n);
    free(bytes);
}

static void test_checkpoints_know_no_plan(void **state)
{
    (void)state;
    static struct record alone, cut, rest;
    char place[PATH_MAX], name[PATH_MAX], other[PATH_MAX];
    make_place("plans", place, name);
    struct trainer_options o = lenet_run(NULL, 0);
    train(&o, &alone);
    o = lenet_run("data", 2);
    o.checkpoint = name;
    o.max_steps = 7;
    train(&o, &cut);
    assert_int_equal(cut.n_steps, 7);
    check_weights_go_round(name);
    static const struct {
        const char *plan;
        int workers;
    } later[] = {{"model", 3}, {"serial", 1}, {"1f1b", 2}, {"ps", 3}, {"data", 2}};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        (void)snprintf(other, sizeof other, "%.4000s/later%zu", place, i);
        copy_checkpoint(name, other);
        o = lenet_run(later[i].plan, later[i].workers);
        o.checkpoint = other;
        o.checkpoint_each_epoch = false; /* would remove the tensors that are shared */
        o.resume = true;
        train(&o, &rest);
        assert_same_run(&rest, &alone, 7, tolerance(), later[i].plan);
    }
}

/* ---- processes: here threads with an end of their own each, which the crew cannot tell ---- */

struct process {
    struct trainer_options options;
    struct record *record; /* of the root */
    enum status status;
    struct status_error error;
    pthread_t thread;
};

static void *run_process(void *user)
{
    struct process *p = user;
    p->status = run_training(&p->options, &recording, p->record);
    if (p->status != STATUS_OK)
        status_take(p->status, &p->error);
    return NULL;
}

/* Runs as so many processes; *record is what the root reports. */
static void run_processes(struct trainer_options o, int size, struct process *all,
                          struct record *record)
{
    comm *ends[MAX_PROCESSES];
    static struct record unheard[MAX_PROCESSES];
    assert_ok(comm_threads_create(size, 20, ends));
    for (int i = 0; i < size; i++) {
        unheard[i] = (struct record){0};
        all[i] = (struct process){.options = o, .record = i ? &unheard[i] : record};
        all[i].options.process = ends[i];
        assert_int_equal(pthread_create(&all[i].thread, NULL, run_process, &all[i]), 0);
    }
    for (int i = 0; i < size; i++)
        (void)pthread_join(all[i].thread, NULL);
    for (int i = 0; i < size; i++) {
        ends[i]->table->destroy(ends[i]);
        assert_true(i == 0 || unheard[i].n_steps == 0); /* only the root reports */
    }
}

static void assert_all(const struct process *all, int size, enum status status, const char *part)
{
    for (int i = 0; i < size; i++)
        assert_that(all[i].status == status && strstr(all[i].error.message, part),
                    "process %d: status %d, '%s' instead of '%s'", i, (int)all[i].status,
                    all[i].error.message, part);
}

static void test_processes_train_like_threads(void **state)
{
    (void)state;
    static struct record threads, processes;
    struct process all[MAX_PROCESSES];
    char place[PATH_MAX], name[PATH_MAX];
    make_place("processes", place, name);
    for (int i = 1; i < N_SPLITS; i++) {
        struct trainer_options o = lenet_run(splits[i].plan, splits[i].workers);
        train(&o, &threads);
        o.workers = 0;
        o.checkpoint = name;
        o.max_steps = 4;
        o.resume = false;
        o.overwrite = true;
        processes = (struct record){0};
        run_processes(o, splits[i].workers, all, &processes);
        assert_all(all, splits[i].workers, STATUS_OK, "");
        o.max_steps = 0;
        o.resume = true;
        o.overwrite = false;
        run_processes(o, splits[i].workers, all, &processes);
        assert_all(all, splits[i].workers, STATUS_OK, "");
        /* A checkpoint has floats: in double precision the second part begins a little elsewhere */
        assert_same_run(&processes, &threads, 0, o.precision == PRECISION_FLOAT ? 0 : 1e-5,
                        splits[i].plan);
        assert_true(processes.done.bytes_moved == threads.done.bytes_moved);
        assert_true(processes.done.memory_bytes == threads.done.memory_bytes);
    }
}

static void test_processes_end_together(void **state)
{
    (void)state;
    static struct record r;
    struct process all[MAX_PROCESSES];
    char place[PATH_MAX], name[PATH_MAX];
    make_place("vanishes", place, name);
    struct trainer_options o = lenet_run("data", 0);

    o.model = "lenet6"; /* the mistake of all */
    run_processes(o, 3, all, &r);
    assert_all(all, 3, STATUS_USAGE, "did you mean 'lenet5'?");
    o = lenet_run("data", 2);
    run_processes(o, 3, all, &r);
    assert_all(all, 3, STATUS_USAGE, "2 workers were asked for, but 3 processes started");

    o = lenet_run("data", 0); /* the root's alone: only it looks at the checkpoint's place */
    o.checkpoint = "/dev/null/all";
    run_processes(o, 3, all, &r);
    assert_all(all, 3, STATUS_FAILED, "/dev/null: cannot save");

    o.checkpoint = name; /* the root cannot save at the end of the epoch */
    r = (struct record){.remove_at_3 = place};
    run_processes(o, 3, all, &r);
    assert_all(all, 3, STATUS_FAILED, "run-5.safetensors: cannot write");
    assert_true(crew_failed_together());

    o = lenet_run("data", 0); /* the root's listener refuses: the others lose it */
    r = (struct record){.fail_at = 2};
    run_processes(o, 3, all, &r);
    assert_int_equal(all[0].status, STATUS_FAILED);
    assert_all(all + 1, 2, STATUS_LOST, "had enough");

    o.rule.learning_rate = 1e30;
    r = (struct record){0};
    run_processes(o, 3, all, &r);
    assert_all(all, 3, STATUS_FAILED, "the loss is");
}

/* A closed pipe is no signal: the first one after it, however late, must not end the process while
 * it saves. */
static void test_a_signal_after_a_closed_pipe(void **state)
{
    (void)state;
    int how;
    pid_t child = fork();
    if (child == 0) {
        if (stop_install() != STATUS_OK)
            _exit(1);
        stop_request(SIGPIPE);
        (void)kill(getpid(), SIGTERM);
        (void)usleep(200000);
        _exit(stop_requested() == SIGPIPE ? 6 : 2);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_that(WIFEXITED(how) && WEXITSTATUS(how) == 6, "it ended with %#x", (unsigned)how);
}

static void test_processes_stop_together(void **state)
{
    (void)state;
    static struct record r;
    struct process all[MAX_PROCESSES];
    char place[PATH_MAX], name[PATH_MAX];
    make_place("stops", place, name);
    struct trainer_options o = lenet_run("1f1b", 0);
    o.checkpoint = name;
    r = (struct record){.signal_at = 3};
    assert_ok(stop_install());
    run_processes(o, 2, all, &r);
    stop_remove();
    /* The others hear of it with the results of the next step. */
    assert_all(all, 2, STATUS_STOPPED, "stopped by SIGTERM at step 4; saved to");
    int64_t step;
    uint64_t sum;
    assert_ok(sum_checkpoint(name, &step, &sum));
    assert_int_equal(step, 4);
}

/* All processes hear the words of each after a run. */
struct speaker {
    struct crew_options options;
    struct crew_words words;
    enum status status;
    pthread_t thread;
};

static enum status speak(struct speaker *s)
{
    crew *c;
    TRY(crew_create(&s->options, &c));
    enum status st = crew_start_epoch(c, CREW_TRAIN, 0, 0);
    struct step_state now = {1, 1};
    struct update_rule rule = {.kind = UPDATE_SGD, .learning_rate = 0.01, .step = 1};
    struct crew_result result;
    if (st == STATUS_OK)
        st = crew_run(c, CREW_TRAIN, &now, &rule, &result, &s->words);
    crew_destroy(c);
    return st;
}

static void *speak_on_thread(void *user)
{
    struct speaker *s = user;
    s->status = speak(s);
    return NULL;
}

/* ---- asynchronous servers ---- */

static struct trainer_options asynchronous_run(const char *name)
{
    struct trainer_options o = lenet_run("ps", 3);
    o.request.asynchronous = true;
    o.rule.kind = UPDATE_ADAMW;
    o.rule.learning_rate = 0.002;
    o.checkpoint = name;
    return o;
}

/* Each worker goes on with a copy of its own, which a checkpoint keeps: in the middle of an epoch,
 * between threads and processes, the run goes on with the same bits. */
static void test_stale_copies_are_saved(void **state)
{
    (void)state;
    char place[PATH_MAX], whole[PATH_MAX], cut[PATH_MAX];
    static struct record r;
    struct process all[MAX_PROCESSES];
    uint64_t expected, sum;
    int64_t step;
    make_place("stale", place, whole);
    (void)snprintf(cut, sizeof cut, "%.4000s/cut", place);
    struct trainer_options o = asynchronous_run(whole);
    train(&o, &r);
    assert_ok(sum_checkpoint(whole, &step, &expected));
    for (int by_processes = 0; by_processes < 2; by_processes++) {
        o = asynchronous_run(cut);
        o.overwrite = true;
        o.max_steps = 3;
        train(&o, &r);
        o.max_steps = 0;
        o.overwrite = false;
        o.resume = true;
        if (by_processes) {
            o.workers = 0;
            run_processes(o, 3, all, &r);
            assert_all(all, 3, STATUS_OK, "");
        } else {
            train(&o, &r);
        }
        assert_ok(sum_checkpoint(cut, &step, &sum));
        assert_that(sum == expected, "%s", by_processes ? "processes" : "threads");
    }
}

/* The loss that is printed is that of the weights that are saved; testing changes no bit. */
static void test_stale_copies_are_not_tested(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], untested[PATH_MAX];
    double loss, saved_loss, accuracy;
    uint64_t sum, untested_sum;
    int64_t step;
    trainer *t;
    make_place("tested", place, name);
    (void)snprintf(untested, sizeof untested, "%.4000s/untested", place);
    struct trainer_options o = asynchronous_run(name);
    assert_ok(trainer_create(&o, &t));
    assert_ok(trainer_run(t, NULL, NULL));
    assert_ok(trainer_evaluate(t, &loss, &accuracy));
    trainer_destroy(t);
    o = lenet_run("serial", 1);
    o.rule.kind = UPDATE_ADAMW;
    o.checkpoint = name;
    o.resume = true;
    assert_ok(trainer_create(&o, &t));
    assert_ok(trainer_evaluate(t, &saved_loss, &accuracy));
    trainer_destroy(t);
    assert_that(fabs(loss - saved_loss) < 1e-4, "%.9g for %.9g", loss, saved_loss);

    o = asynchronous_run(untested);
    o.evaluate = false;
    assert_ok(run_training(&o, NULL, NULL));
    assert_ok(sum_checkpoint(name, &step, &sum));
    assert_ok(sum_checkpoint(untested, &step, &untested_sum));
    assert_true(sum == untested_sum);
}

/* The largest change of a weight by the first step. */
static double largest_change(const struct trainer_options *o)
{
    char path[2][PATH_MAX];
    safetensors *file[2];
    trainer *t;
    double most = 0;
    assert_ok(trainer_create(o, &t));
    assert_ok(trainer_save_weights(t, test_path(path[0], "before.safetensors")));
    assert_ok(trainer_run(t, NULL, NULL));
    assert_ok(trainer_save_weights(t, test_path(path[1], "after.safetensors")));
    trainer_destroy(t);
    for (int i = 0; i < 2; i++)
        assert_ok(safetensors_open(path[i], &file[i]));
    for (int k = 0; k < safetensors_count(file[0]); k++) {
        const struct safetensors_tensor *tensor = safetensors_get(file[0], k);
        float *v[2];
        for (int i = 0; i < 2; i++) {
            v[i] = malloc((size_t)tensor->n_bytes);
            assert_ok(
                safetensors_read_floats(file[i], safetensors_find(file[i], tensor->name), v[i]));
        }
        for (size_t i = 0; i < (size_t)tensor->n_bytes / sizeof **v; i++)
            most = fmax(most, fabs((double)v[1][i] - (double)v[0][i]));
        free(v[0]);
        free(v[1]);
    }
    safetensors_close(file[0]);
    safetensors_close(file[1]);
    return most;
}

/* AdamW's correction makes each of a weight's first updates at most the learning rate long. The
 * server updates once for each of its two workers: with one count for both, the second would
 * be 1.34 times as long. */
static void test_servers_count_updates(void **state)
{
    (void)state;
    struct trainer_options o = asynchronous_run(NULL);
    o.rule.weight_decay = 0;
    o.max_steps = 1;
    o.evaluate = false;
    double change = largest_change(&o) / o.rule.learning_rate;
    assert_that(change > 1.9 && change < 2.02, "%g learning rates", change);
}

static void test_words_reach_everybody(void **state)
{
    (void)state;
    struct graph_variant v = {.batch = 8,
                              .channels = 1,
                              .height = 28,
                              .width = 28,
                              .classes = 10,
                              .small_form = true,
                              .drop_probability = -1};
    struct crew_options o = {.timeout_s = 20, .threads = 1, .train_loader = {.batch = 8}};
    struct plan_request request = {.n_workers = 3};
    struct graph *graph;
    struct plan *plan;
    struct speaker speakers[3];
    comm *ends[3];
    assert_ok(network_build("mlp", &v, &graph));
    assert_ok(plan_build("data", graph, &request, &plan));
    assert_ok(backend_find("reference", &o.backend));
    assert_ok(dataset_open("synthetic:1x28x28/10/16", DATASET_TRAIN, NULL, &o.train_set));
    assert_ok(comm_threads_create(3, 20, ends));
    o.plan = plan;
    o.graphs[CREW_TRAIN] = graph;
    for (int i = 0; i < 3; i++) {
        o.process = ends[i];
        speakers[i] = (struct speaker){.options = o};
        speakers[i].words = (struct crew_words){.stop = i == 1 ? SIGTERM : 0, .save = i == 2};
        assert_int_equal(pthread_create(&speakers[i].thread, NULL, speak_on_thread, &speakers[i]),
                         0);
    }
    for (int i = 0; i < 3; i++)
        (void)pthread_join(speakers[i].thread, NULL);
    for (int i = 0; i < 3; i++) {
        ends[i]->table->destroy(ends[i]);
        assert_int_equal(speakers[i].status, STATUS_OK);
        assert_true(speakers[i].words.stop == SIGTERM && speakers[i].words.save == 1);
    }
    dataset_close(o.train_set);
    plan_destroy(plan);
    graph_destroy(graph);
}

/* ---- failures of one worker ---- */

/* Noise whose sample number `bad` cannot be read, or takes its time. */
struct fake {
    int64_t bad;
    bool fails;
    double sleep_s;
};

static enum status fake_generate(void *self_, int64_t index, float *pixels, int32_t *label)
{
    const struct fake *self = self_;
    if (index == self->bad && self->fails)
        return status_fail(STATUS_FAILED, "sample %lld is broken", (long long)index);
    if (index == self->bad)
        (void)usleep((useconds_t)(self->sleep_s * 1e6));
    for (int i = 0; i < 28 * 28; i++)
        pixels[i] = (float)((index * 31 + i * 7) % 13) / 13;
    *label = (int32_t)(index % 10);
    return STATUS_OK;
}

static void fake_close(void *self)
{
    (void)self;
}

static dataset *fake_open(struct fake *self)
{
    static const struct source_calls calls = {.generate = fake_generate, .close = fake_close};
    struct source source = {.calls = &calls, .self = self};
    source.info = (struct dataset_info){.name = "fake",
                                        .channels = 1,
                                        .height = 28,
                                        .width = 28,
                                        .classes = 10,
                                        .n_samples = 64,
                                        .n_train = 64,
                                        .in_memory = true,
                                        .form = DATASET_FORM_SMALL};
    dataset *d;
    assert_ok(dataset_create(&source, NULL, &d));
    return d;
}

/* Two steps of 32 samples in their order under a plan; the status of the first that fails, whose
 * message is left for the caller. */
static enum status run_fake(struct fake *fake, const char *strategy, int workers, double timeout_s)
{
    struct graph_variant v = {.batch = 32,
                              .channels = 1,
                              .height = 28,
                              .width = 28,
                              .classes = 10,
                              .small_form = true,
                              .drop_probability = -1};
    struct plan_request request = {.n_workers = workers};
    struct crew_options o = {.timeout_s = timeout_s, .threads = 1, .train_loader = {.batch = 32}};
    struct graph *graph;
    struct plan *plan;
    crew *c = NULL;
    assert_ok(network_build("lenet5", &v, &graph));
    assert_ok(plan_build(strategy, graph, &request, &plan));
    assert_ok(backend_find("reference", &o.backend));
    o.plan = plan;
    o.graphs[CREW_TRAIN] = graph;
    o.train_set = fake_open(fake);
    assert_ok(crew_create(&o, &c));
    assert_ok(crew_start_epoch(c, CREW_TRAIN, 0, 0));
    enum status st = STATUS_OK;
    for (uint32_t step = 1; step <= 2 && st == STATUS_OK; step++) {
        struct step_state now = {1, step};
        struct update_rule rule = {.kind = UPDATE_SGD, .learning_rate = 0.01, .step = step};
        struct crew_result result;
        st = crew_run(c, CREW_TRAIN, &now, &rule, &result, NULL);
        assert_true(st != STATUS_OK || result.n_samples == 32);
    }
    crew_destroy(c);
    plan_destroy(plan);
    graph_destroy(graph);
    dataset_close(o.train_set);
    return st;
}

static void test_a_worker_fails(void **state)
{
    (void)state;
    struct fake fine = {.bad = -1}, broken = {.bad = 32 + 20, .fails = true};
    assert_ok(run_fake(&fine, "data", 3, 20));
    /* Sample 52 is in the second worker's part of the second batch: [42, 53). */
    assert_fails(run_fake(&broken, "data", 3, 20), STATUS_FAILED, "worker 1, step 2, instruction");
    assert_fails(run_fake(&broken, "data", 3, 20), STATUS_FAILED, "sample 52 is broken");
    assert_fails(run_fake(&broken, "layers", 3, 20), STATUS_FAILED, "sample 52 is broken");
    assert_fails(run_fake(&broken, "serial", 1, 20), STATUS_FAILED, "step 2, instruction");
}

static void test_a_worker_is_late(void **state)
{
    (void)state;
    /* Longer than the others compute. */
    struct fake slow = {.bad = 20, .sleep_s = TEST_UNDER_SANITIZER ? 8 : 1.5};
    assert_ok(run_fake(&slow, "data", 3, 20));
    int64_t start_ns = timer_now_ns();
    assert_fails(run_fake(&slow, "data", 3, 0.2), STATUS_TIMEOUT, "nothing moved for 0.2 s");
    assert_true(timer_now_ns() - start_ns < 30 * INT64_C(1000000000));
}

/* ---- the trace ---- */

static bool is_phase(const json_t *e, const char *phase)
{
    return strcmp(json_string_value(json_object_get(e, "ph")), phase) == 0;
}

static int64_t integer(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Slices of a track follow each other; sends and receives have a peer and bytes. */
static void check_slices(const json_t *events, int n_by_category[4])
{
    static const char *const categories[] = {"compute", "communicate", "wait", "load"};
    double ends[MAX_PROCESSES][16] = {{0}};
    size_t i;
    const json_t *e;
    json_array_foreach(events, i, e)
    {
        if (!is_phase(e, "X"))
            continue;
        int64_t pid = integer(e, "pid"), tid = integer(e, "tid");
        const char *category = json_string_value(json_object_get(e, "cat"));
        assert_true(pid >= 0 && pid < MAX_PROCESSES && tid >= 0 && tid < 16);
        assert_true(number(e, "dur") >= 0);
        assert_that(number(e, "ts") >= ends[pid][tid] - 0.002, "slice %zu begins too early", i);
        ends[pid][tid] = number(e, "ts") + number(e, "dur");
        for (int k = 0; k < 4; k++)
            n_by_category[k] += strcmp(category, categories[k]) == 0;
        if (strcmp(category, "communicate") == 0)
            assert_true(tid > 0 && integer(json_object_get(e, "args"), "bytes") > 0);
        else
            assert_int_equal(tid, 0);
    }
}

static void check_trace(const char *path, int n_steps)
{
    json_error_t error;
    json_t *trace = json_load_file(path, 0, &error);
    assert_that(trace, "%s: %s", path, error.text);
    int n[4] = {0};
    check_slices(json_object_get(trace, "traceEvents"), n);
    assert_int_equal(n[3], 2 * n_steps); /* both workers load in every step */
    assert_true(n[0] > 20 * n_steps && n[1] > 0 && n[2] > 0);
    assert_int_equal(integer(json_object_get(trace, "otherData"), "workers"), 2);
    json_decref(trace);
}

static void test_trace(void **state)
{
    (void)state;
    static struct record r;
    struct process all[MAX_PROCESSES];
    char path[PATH_MAX];
    struct trainer_options o = lenet_run("data", 2);
    o.trace = test_path(path, "threads.trace");
    train(&o, &r);
    check_trace(path, 10);
    o.epochs = 8; /* 40 steps, of which the last 20 are kept */
    o.evaluate = false;
    o.trace = test_path(path, "processes.trace");
    r = (struct record){0};
    run_processes(o, 2, all, &r);
    assert_all(all, 2, STATUS_OK, "");
    check_trace(path, 20);
    o.trace = "/nowhere/at/all";
    assert_fails(run_training(&o, NULL, NULL), STATUS_FAILED, "/nowhere/at/all: cannot write");
}

/* ---- memory ---- */

static void set_memory_limit(int64_t n_bytes)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)n_bytes);
    assert_int_equal(setenv("CLEAVE_MEMORY_LIMIT", text, 1), 0);
}

/* The workers of a host count together, be they threads or processes, and to the byte. */
static void test_does_not_fit(void **state)
{
    (void)state;
    static struct record r;
    struct process all[MAX_PROCESSES];
    struct trainer_options o = lenet_run("data", 2);
    o.epochs = 1;
    train(&o, &r);
    int64_t both = 2 * r.done.memory_bytes; /* 16 samples each: they need the same */
    trainer *t;
    set_memory_limit(both);
    train(&o, &r);
    set_memory_limit(both - 1);
    assert_fails(trainer_create(&o, &t), STATUS_NO_FIT, "2 workers of it need ");
    assert_fails(trainer_create(&o, &t), STATUS_NO_FIT, ", activations ");
    run_processes(o, 2, all, &r);
    assert_all(all, 2, STATUS_NO_FIT, "2 workers of it need ");
    set_memory_limit(both);
    r = (struct record){0};
    run_processes(o, 2, all, &r);
    assert_all(all, 2, STATUS_OK, "");
    assert_int_equal(setenv("CLEAVE_MEMORY_LIMIT", "much", 1), 0);
    assert_fails(trainer_create(&o, &t), STATUS_USAGE, "CLEAVE_MEMORY_LIMIT 'much' must be");
    assert_int_equal(unsetenv("CLEAVE_MEMORY_LIMIT"), 0);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    trainer *t;
    struct trainer_options o = lenet_run("dato", 2);
    assert_fails(trainer_create(&o, &t), STATUS_USAGE, "did you mean 'data'?");
    o = lenet_run("serial", 2);
    assert_fails(trainer_create(&o, &t), STATUS_USAGE, "2");
    o = lenet_run("plans/none.json", 2);
    assert_fails(trainer_create(&o, &t), STATUS_FAILED, "plans/none.json");
    o = lenet_run("layers", 400);
    assert_fails(trainer_create(&o, &t), STATUS_USAGE, "");
    o = lenet_run("data", 2);
    o.timeout_s = 0;
    assert_fails(trainer_create(&o, &t), STATUS_USAGE, "time-out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_plan_trains_alike),
        cmocka_unit_test(test_hardly_any_samples),
        cmocka_unit_test(test_checkpoints_know_no_plan),
        cmocka_unit_test(test_words_reach_everybody),
        cmocka_unit_test(test_a_worker_fails),
        cmocka_unit_test(test_a_worker_is_late),
        cmocka_unit_test(test_refusals),
        ON_CPU(test_any_plan_trains_alike),
        ON_CPU(test_hardly_any_samples),
        ON_CPU(test_same_plan_same_bits),
        ON_CPU(test_windows),
        ON_CPU(test_values_in_place_of_names),
        ON_CPU(test_checkpoints_know_no_plan),
        ON_CPU(test_processes_train_like_threads),
        ON_CPU(test_stale_copies_are_saved),
        ON_CPU(test_stale_copies_are_not_tested),
        ON_CPU(test_servers_count_updates),
        ON_CPU(test_processes_end_together),
        ON_CPU(test_processes_stop_together),
        cmocka_unit_test(test_a_signal_after_a_closed_pipe),
        ON_CPU(test_trace),
        ON_CPU(test_does_not_fit),
    };
    log_set_level(LOG_QUIET);
    return test_run(tests);
}
