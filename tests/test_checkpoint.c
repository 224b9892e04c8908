/* Checkpoints: a round trip keeps everything, damage is noticed, and a failed save harms nothing.
 */
#include "testing.h"
#include "training.h"

#include "base/log.h"
#include "runtime/initialise.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- a network with everything that has state: batch norm, dropout, momentum ---- */

struct bench {
    struct graph *graph;
    const struct backend *backend;
    device *device;
    struct program *program;
    executor *executor;
    struct tensor_store tensors; /* the executor's */
    struct update_rule rule;
};

enum { BATCH = 4, CHANNELS = 2, SIDE = 6, CLASSES = 3 };

static enum status build_graph(int64_t width, struct graph **out)
{
    struct graph_variant v = {.batch = BATCH,
                              .channels = CHANNELS,
                              .height = SIDE,
                              .width = SIDE,
                              .classes = CLASSES,
                              .drop_probability = -1};
    graph_builder *b;
    TRY(graph_builder_create("tiny", &v, &b));
    int x = graph_add_conv(b, "conv", 0, width, (struct graph_window){3, 1, 1}, 1, true);
    x = graph_add_batch_norm(b, "bn", x, 1e-5);
    x = graph_add_simple(b, "relu", OP_RELU, x);
    x = graph_add_simple(b, "flatten", OP_FLATTEN, x);
    x = graph_add_dropout(b, "drop", x, 0.5);
    x = graph_add_linear(b, "fc", x, CLASSES);
    return graph_builder_finish(b, x, out);
}

static void bench_open(struct bench *b, int64_t width, enum update_kind kind)
{
    *b = (struct bench){.rule = {.kind = kind,
                                 .learning_rate = 0.1,
                                 .momentum = 0.9,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .epsilon = 1e-8}};
    struct device_options options = {.threads = 1};
    assert_ok(build_graph(width, &b->graph));
    assert_ok(backend_find("reference", &b->backend));
    assert_ok(b->backend->device_open(&options, &b->device));
    struct program_options p = {.backend = b->backend,
                                .device = b->device,
                                .training = true,
                                .n_states = update_rule_states(&b->rule)};
    assert_ok(program_create(b->graph, &p, &b->program));
    const struct program *programs[] = {b->program};
    assert_ok(executor_create(programs, 1, NULL, &b->executor));
    b->tensors = tensor_store_of_executor(b->executor);
    assert_ok(initialise_parameters(b->graph, b->executor, 5));
}

static void bench_close(struct bench *b)
{
    executor_destroy(b->executor);
    program_destroy(b->program);
    graph_destroy(b->graph);
    b->backend->device_close(b->device);
}

static void bench_step(struct bench *b, int64_t step)
{
    float images[BATCH * CHANNELS * SIDE * SIDE];
    int32_t labels[BATCH];
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)((i * 7 + (size_t)step * 13) % 11) / 11 - 0.5f;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (i + (int)step) % CLASSES;
    struct executor_batch batch = {images, labels, 0};
    struct step_state state = {5, (uint32_t)step};
    struct executor_result result;
    b->rule.step = step;
    assert_ok(executor_step(b->executor, 0, &batch, &state, &b->rule, &result));
}

static struct checkpoint_state bench_state(const struct bench *b, int64_t step)
{
    struct checkpoint_state s = {.model = "tiny",
                                 .data = "none \"at\" all",
                                 .channels = CHANNELS,
                                 .height = SIDE,
                                 .width = SIDE,
                                 .classes = CLASSES,
                                 .batch = BATCH,
                                 .n_train = 10,
                                 .seed = UINT64_MAX,
                                 .drop_probability = 0.1,
                                 .rule = b->rule,
                                 .schedule = {SCHEDULE_STEP, 30, 0.1, 0, 7},
                                 .step = step,
                                 .epoch = 2,
                                 .position = 1,
                                 .loss_sum = 1.0 / 3,
                                 .n_seen = 4};
    return s;
}

static void assert_same_tensors(struct bench *a, struct bench *b)
{
    float x[4096], y[4096];
    for (int i = 0; i < a->graph->n_params; i++)
        for (int which = TENSOR_WEIGHT; which <= a->program->n_states; which++) {
            const struct graph_param *p = &a->graph->params[i];
            if (which != TENSOR_WEIGHT && !p->spec.trained)
                continue;
            size_t n_bytes = (size_t)shape_elements(&p->spec.shape) * sizeof *x;
            assert_true(n_bytes <= sizeof x);
            assert_ok(executor_read(a->executor, i, (enum executor_tensor)which, x));
            assert_ok(executor_read(b->executor, i, (enum executor_tensor)which, y));
            assert_that(memcmp(x, y, n_bytes) == 0, "%s, tensor %d differs", p->name, which);
        }
}

/* ---- sound files ----------------------------------------------------------------------------- */

static void check_continues(enum update_kind kind, const char *folder)
{
    char place[PATH_MAX], name[PATH_MAX];
    make_place(folder, place, name);
    struct bench straight, first, second;
    bench_open(&straight, 8, kind);
    bench_open(&first, 8, kind);
    bench_open(&second, 8, kind);
    for (int64_t step = 1; step <= 6; step++)
        bench_step(&straight, step);
    for (int64_t step = 1; step <= 3; step++)
        bench_step(&first, step);
    struct checkpoint_state saved = bench_state(&first, 3);
    assert_ok(checkpoint_save(name, &saved, NULL, first.graph, &first.tensors));

    checkpoint *c;
    assert_true(checkpoint_exists(name));
    assert_ok(checkpoint_open(name, &c));
    assert_ok(checkpoint_match(c, &saved));
    assert_ok(checkpoint_read(c, second.graph, &second.tensors));
    checkpoint_close(c);
    assert_same_tensors(&first, &second);
    for (int64_t step = 4; step <= 6; step++)
        bench_step(&second, step);
    assert_same_tensors(&straight, &second);
    bench_close(&straight);
    bench_close(&first);
    bench_close(&second);
}

static void test_continuing_gives_the_same_bits(void **state)
{
    (void)state;
    check_continues(UPDATE_SGD, "sgd");
    check_continues(UPDATE_ADAMW, "adamw");
}

static void test_state_goes_round(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX];
    make_place("round", place, name);
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 12);
    assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
    checkpoint *c;
    assert_ok(checkpoint_open(name, &c));
    const struct checkpoint_state *r = checkpoint_get_state(c);
    assert_string_equal(r->model, s.model);
    assert_string_equal(r->data, s.data);
    assert_true(r->seed == UINT64_MAX && r->step == 12 && r->epoch == 2 && r->position == 1);
    assert_true(r->loss_sum == 1.0 / 3 && r->n_seen == 4 && r->drop_probability == 0.1);
    assert_true(r->schedule.kind == SCHEDULE_STEP && r->schedule.warmup_steps == 7);
    assert_true(r->rule.epsilon == 1e-8 && r->rule.kind == UPDATE_SGD);
    checkpoint_close(c);
    bench_close(&b);
}

static void test_pytorch_names(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], path[PATH_MAX];
    make_place("names", place, name);
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 1);
    assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
    safetensors *f;
    (void)snprintf(path, sizeof path, "%.4000s-1.safetensors", name);
    assert_ok(safetensors_open(path, &f));
    static const char *const names[] = {"conv.weight",
                                        "conv.bias",
                                        "bn.weight",
                                        "bn.bias",
                                        "bn.running_mean",
                                        "bn.running_var",
                                        "fc.weight",
                                        "fc.bias",
                                        "optimizer/conv.weight/0",
                                        "optimizer/bn.bias/0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_that(safetensors_find(f, names[i]), "no %s", names[i]);
    assert_null(safetensors_find(f, "optimizer/bn.running_mean/0"));
    assert_null(safetensors_find(f, "optimizer/fc.bias/1"));
    assert_int_equal(safetensors_count(f), 8 + 6);
    safetensors_close(f);
    bench_close(&b);
}

static void test_old_files_go_and_others_stay(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], path[PATH_MAX];
    make_place("old", place, name);
    static const char *const others[] = {"run-5-100.safetensors", "run-5.json",
                                         "runs-1.safetensors", "run-x.safetensors",
                                         "run-7.safetensors.bak"};
    static const char *const stale[] = {"run-7.safetensors.tmp", "run-7.safetensors",
                                        "run-3.1.safetensors", "run.json.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        (void)snprintf(path, sizeof path, "%.4000s/%s", place, others[i]);
        test_write_file(path, "x", 1);
    }
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++) {
        (void)snprintf(path, sizeof path, "%.4000s/%s", place, stale[i]);
        test_write_file(path, "x", 1);
    }
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    for (int64_t step = 1; step <= 3; step++) {
        struct checkpoint_state s = bench_state(&b, step);
        assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
        assert_int_equal(count_files(place), 2 + sizeof others / sizeof *others);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        (void)snprintf(path, sizeof path, "%.4000s/%s", place, others[i]);
        assert_that(access(path, F_OK) == 0, "%s is gone", others[i]);
    }
    bench_close(&b);
}

/* The tensor file that the present NAME.json names is never written to, even by the same step. */
static void test_same_step_twice(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX];
    make_place("twice", place, name);
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 4);
    for (int i = 0; i < 3; i++) {
        char before[PATH_MAX];
        (void)snprintf(before, sizeof before, "%.4000s-4%s.safetensors", name, i % 2 ? "" : ".1");
        assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
        assert_int_not_equal(access(before, F_OK), 0);
        assert_int_equal(count_files(place), 2);
        checkpoint *c;
        assert_ok(checkpoint_open(name, &c));
        checkpoint_close(c);
    }
    bench_close(&b);
}

static void test_weights_alone(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct bench a, b, wide;
    bench_open(&a, 8, UPDATE_SGD);
    bench_open(&b, 8, UPDATE_SGD);
    bench_open(&wide, 9, UPDATE_SGD);
    assert_ok(initialise_parameters(a.graph, a.executor, 77));
    assert_ok(checkpoint_save_weights(test_path(path, "w.safetensors"), NULL, a.graph, &a.tensors));
    assert_ok(checkpoint_load_weights(path, b.graph, &b.tensors));
    assert_same_tensors(&a, &b);
    assert_fails(checkpoint_load_weights(path, wide.graph, &wide.tensors), STATUS_FAILED,
                 "tensor 'conv.weight' has shape 8x2x3x3, the network's has 9x2x3x3");
    static const struct safetensors_entry entry = {"conv.weight", {4, {8, 2, 3, 3}}};
    static const float zeros[8 * 2 * 3 * 3];
    safetensors_writer *w;
    struct safetensors_sum sum;
    assert_ok(safetensors_writer_open(path, &entry, 1, NULL, &w));
    assert_ok(safetensors_writer_put(w, zeros));
    assert_ok(safetensors_writer_finish(w, &sum));
    safetensors_writer_close(w);
    assert_fails(checkpoint_load_weights(path, b.graph, &b.tensors), STATUS_FAILED,
                 "there is no tensor 'conv.bias'");
    assert_same_tensors(&a, &b); /* and none was written */
    bench_close(&a);
    bench_close(&b);
    bench_close(&wide);
}

/* In place of the library's: notes when a folder is synchronised, and whether `watched` was in its
 * place by then. With `fails` that fails, and this process can open no more files. */
static const char *watched;
static int n_syncs_after;
static bool fails;
static struct rlimit open_files;

int fsync(int fd)
{
    struct stat info;
    if (watched && fstat(fd, &info) == 0 && S_ISDIR(info.st_mode))
        n_syncs_after += access(watched, F_OK) == 0;
    if (fails && n_syncs_after > 0) {
        const struct rlimit none = {0, open_files.rlim_max};
        (void)setrlimit(RLIMIT_NOFILE, &none);
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

/* A file of weights outlasts a loss of power: its folder is synchronised after the rename. */
static void test_weights_last(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    watched = test_path(path, "lasting.safetensors");
    n_syncs_after = 0;
    assert_ok(checkpoint_save_weights(path, NULL, b.graph, &b.tensors));
    assert_int_equal(n_syncs_after, 1);
    watched = NULL;
    bench_close(&b);
}

/* NAME.json is in its place, but cannot be read after the failure: its tensors must stay. */
static void test_doubt_removes_nothing(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], json[PATH_MAX];
    make_place("doubt", place, name);
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 4);
    (void)snprintf(json, sizeof json, "%.*s.json", PATH_MAX - 6, name);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &open_files), 0);
    watched = json;
    n_syncs_after = 0;
    fails = true;
    enum status st = checkpoint_save(name, &s, NULL, b.graph, &b.tensors);
    fails = false;
    watched = NULL;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &open_files), 0);
    assert_int_equal(st, STATUS_FAILED);
    status_clear();
    checkpoint *c;
    assert_ok(checkpoint_open(name, &c));
    assert_ok(checkpoint_read(c, b.graph, &b.tensors));
    checkpoint_close(c);
    bench_close(&b);
}

/* ---- checkpoints that do not fit ------------------------------------------------------------- */

static void test_differences_are_named(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX];
    make_place("differ", place, name);
    struct bench b, wide;
    bench_open(&b, 8, UPDATE_SGD);
    bench_open(&wide, 9, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 4), other;
    assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
    checkpoint *c;
    assert_ok(checkpoint_open(name, &c));

#define DIFFERS(member, value, part)                                   \
    do {                                                               \
        other = s;                                                     \
        other.member = (value);                                        \
        assert_fails(checkpoint_match(c, &other), STATUS_USAGE, part); \
    } while (0)
    DIFFERS(model[0], 'T', "model is 'tiny' there, 'Tiny' was asked for");
    DIFFERS(data[0], 'N', "data is");
    DIFFERS(batch, 5, "batch is 4 there, 5 was asked for");
    DIFFERS(height, 7, "height");
    DIFFERS(classes, 10, "classes is 3");
    DIFFERS(seed, 1, "seed is 18446744073709551615 there, 1 was asked for");
    DIFFERS(n_train, 11, "training samples is 10");
    DIFFERS(precision, PRECISION_DOUBLE, "precision is float there, double");
    DIFFERS(augment, true, "augmentation is off there, on");
    DIFFERS(drop_probability, 0.2, "drop probability is 0.1");
    DIFFERS(rule.kind, UPDATE_ADAMW, "optimizer is sgd there, adamw");
    DIFFERS(rule.momentum, 0, "momentum is 0.9 there, 0");
#undef DIFFERS
    other = s;
    other.step = 99; /* the place and the length of the run may differ */
    assert_ok(checkpoint_match(c, &other));
    assert_fails(checkpoint_read(c, wide.graph, &wide.tensors), STATUS_FAILED,
                 "tensor 'conv.weight' has shape 8x2x3x3");
    checkpoint_close(c);
    bench_close(&b);
    bench_close(&wide);
}

static void test_missing_checkpoint(void **state)
{
    (void)state;
    char name[PATH_MAX];
    checkpoint *c;
    assert_false(checkpoint_exists(test_path(name, "absent")));
    assert_fails(checkpoint_open(name, &c), STATUS_FAILED,
                 "absent.json: cannot open: No such file");
    /* One that lies on a disk that is not there now must not be taken for none. */
    char away[PATH_MAX];
    assert_int_equal(symlink("not-mounted/a.json", test_path(away, "away.json")), 0);
    assert_true(checkpoint_exists(test_path(name, "away")));
    assert_fails(checkpoint_open(name, &c), STATUS_FAILED, "away.json: cannot open");
    assert_fails(checkpoint_open("", &c), STATUS_USAGE, "not a usable name");
    assert_fails(checkpoint_open("folder/", &c), STATUS_USAGE, "not a usable name");
}

/* Rather than after the first epoch. */
static void test_what_cannot_be_described(void **state)
{
    (void)state;
    char name[PATH_MAX];
    struct checkpoint_state s = {.model = "tiny", .data = "imagefolder:photos"};
    assert_ok(checkpoint_check_state(test_path(name, "run"), &s, NULL));
    assert_fails(checkpoint_check_state(test_path(name, "r\xe9sum\xe9"), &s, NULL), STATUS_FAILED,
                 "not UTF-8");
    (void)snprintf(s.data, sizeof s.data, "imagefolder:\xe9t\xe9");
    assert_fails(checkpoint_check_state(test_path(name, "run"), &s, NULL), STATUS_FAILED,
                 "not UTF-8");
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Opens a checkpoint that was damaged: an error that names a file, or else the same state. */
static bool damage_is_noticed(const char *name, const struct checkpoint_state *expected)
{
    checkpoint *c;
    enum status st = checkpoint_open(name, &c);
    if (st == STATUS_OK) {
        const struct checkpoint_state *s = checkpoint_get_state(c);
        assert_true(s->step == expected->step && s->seed == expected->seed &&
                    s->loss_sum == expected->loss_sum && s->rule.epsilon == expected->rule.epsilon);
        checkpoint_close(c);
        return false;
    }
    assert_int_equal(st, STATUS_FAILED);
    assert_non_null(strstr(status_message(), "run"));
    status_clear();
    return true;
}

static void test_damage_is_noticed(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], json[PATH_MAX], tensors[PATH_MAX];
    make_place("damage", place, name);
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 4);
    assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
    bench_close(&b);
    (void)snprintf(json, sizeof json, "%.4000s.json", name);
    (void)snprintf(tensors, sizeof tensors, "%.4000s-4.safetensors", name);
    const char *const paths[] = {json, tensors};
    for (int file = 0; file < 2; file++) {
        size_t n_bytes, n_survived = 0;
        char *bytes = test_read_file(paths[file], &n_bytes);
        size_t stride = file == 0 ? 1 : 37; /* all of the JSON, a sample of the tensors */
        for (size_t at = 0; at < n_bytes; at += stride) {
            char kept = bytes[at];
            bytes[at] ^= (char)(1 << at % 8);
            test_write_file(paths[file], bytes, n_bytes);
            n_survived += !damage_is_noticed(name, &s);
            bytes[at] = kept;
            test_write_file(paths[file], bytes, at);
            assert_that(damage_is_noticed(name, &s) || (file == 0 && at + 1 >= n_bytes),
                        "file %d cut to %zu of %zu bytes", file, at, n_bytes);
        }
        /* "1e-08" and "1E-08" are the same number; nothing else may pass. */
        assert_in_range(n_survived, 0, file == 0 ? 2 : 0);
        test_write_file(paths[file], bytes, n_bytes);
        assert_false(damage_is_noticed(name, &s));
        free(bytes);
    }
    assert_int_equal(unlink(tensors), 0);
    assert_true(damage_is_noticed(name, &s));
}

static void test_foreign_json(void **state)
{
    (void)state;
    char path[PATH_MAX], name[PATH_MAX];
    checkpoint *c;
    static const char *const texts[] = {"",
                                        "[]",
                                        "{}",
                                        "3",
                                        "{\"cleave_checkpoint\": \"1\"}",
                                        "{\"cleave_checkpoint\": 1}",
                                        "{\"cleave_checkpoint\": 2}"};
    (void)test_path(name, "foreign");
    (void)test_path(path, "foreign.json");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        test_write_file(path, texts[i], strlen(texts[i]));
        assert_fails(checkpoint_open(name, &c), STATUS_FAILED, "foreign.json");
    }
}

/* ---- a disk that refuses --------------------------------------------------------------------- */

/* Right checksums, and numbers that would overflow. */
static void test_ranges(void **state)
{
    (void)state;
    char name[PATH_MAX];
    struct bench b;
    checkpoint *c;
    bench_open(&b, 8, UPDATE_SGD);
    (void)test_path(name, "ranges");
    for (int i = 0; i < 4; i++) {
        struct checkpoint_state s = bench_state(&b, 4);
        int64_t *const numbers[] = {&s.step, &s.epoch, &s.position, &s.n_seen};
        static const char *const parts[] = {"'step'", "'epoch'", "'position'", "'n_seen'"};
        *numbers[i] = INT64_MAX;
        assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
        assert_fails(checkpoint_open(name, &c), STATUS_FAILED, parts[i]);
    }
    bench_close(&b);
}

/* What a user of the weights needs is in both files. */
static void test_subject(void **state)
{
    (void)state;
    static const float mean[] = {.286f, .5f}, deviation[] = {.353f, .25f};
    static const char *const names[] = {"a \"cat\"", "d\xf6g"};
    const struct checkpoint_subject subject = {"small", 2, mean, deviation, 2, names};
    char name[PATH_MAX], path[PATH_MAX];
    struct bench b;
    safetensors *f;
    size_t n;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 4);
    assert_ok(checkpoint_save(test_path(name, "about"), &s, &subject, b.graph, &b.tensors));
    char *text = test_read_file(test_path(path, "about.json"), &n);
    assert_non_null(strstr(text, "\"form\": \"small\""));
    assert_non_null(strstr(text, "\"a \\\"cat\\\"\""));
    assert_non_null(strstr(text, "\"d?g\"")); /* no UTF-8 */
    free(text);
    assert_ok(safetensors_open(test_path(path, "about-4.safetensors"), &f));
    assert_string_equal(safetensors_metadata(f, "form"), "small");
    assert_string_equal(safetensors_metadata(f, "mean"), "[0.286,0.5]");
    assert_string_equal(safetensors_metadata(f, "std"), "[0.353,0.25]");
    assert_string_equal(safetensors_metadata(f, "class_names"), "[\"a \\\"cat\\\"\",\"d?g\"]");
    assert_non_null(safetensors_metadata(f, "input"));
    safetensors_close(f);
    checkpoint *c; /* and is in nobody's way */
    assert_ok(checkpoint_open(name, &c));
    checkpoint_close(c);
    bench_close(&b);
}

static void test_one_run_at_a_time(void **state)
{
    (void)state;
    char name[PATH_MAX];
    lock_file *lock, *second;
    assert_ok(checkpoint_lock(test_path(name, "locked"), &lock));
    assert_fails(checkpoint_lock(name, &second), STATUS_USAGE, "another run saves there: process ");
    lock_file_release(lock);
    assert_ok(checkpoint_lock(name, &lock));
    lock_file_release(lock);
}

static void test_no_folder(void **state)
{
    (void)state;
    char name[PATH_MAX], file[PATH_MAX];
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 4);
    (void)test_path(name, "nowhere/deep/run");
    assert_fails(checkpoint_save(name, &s, NULL, b.graph, &b.tensors), STATUS_FAILED,
                 "run-4.safetensors: cannot write: No such file");
    assert_ok(checkpoint_make_place(name));
    assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
    test_write_file(test_path(file, "plain"), "x", 1);
    (void)test_path(name, "plain/run");
    assert_fails(checkpoint_make_place(name), STATUS_FAILED, "plain: cannot save");
    assert_fails(checkpoint_save(name, &s, NULL, b.graph, &b.tensors), STATUS_FAILED,
                 "Not a directory");
    bench_close(&b);
}

/* Every limit on a file's size from nothing to enough: the save fails at every place in turn. */
static void test_writes_that_fail(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX];
    make_place("limit", place, name);
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 1);
    assert_ok(checkpoint_save(name, &s, NULL, b.graph, &b.tensors));
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    int n_failed = 0;
    for (rlim_t limit = 0;; limit = limit * 5 / 4 + 1) {
        small = before;
        small.rlim_cur = limit;
        s.step++;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        enum status st = checkpoint_save(name, &s, NULL, b.graph, &b.tensors);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        if (st == STATUS_OK)
            break;
        n_failed++;
        assert_fails(st, STATUS_FAILED, "cannot write: File too large");
        assert_int_equal(count_files(place), 2);
        checkpoint *c;
        assert_ok(checkpoint_open(name, &c));
        assert_int_equal(checkpoint_get_state(c)->step, 1);
        checkpoint_close(c);
    }
    assert_true(n_failed > 10);
    bench_close(&b);
}

/* The description cannot be put in place: a folder is in the way. */
static void test_commit_that_fails(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], path[PATH_MAX];
    make_place("commit", place, name);
    (void)snprintf(path, sizeof path, "%.4000s.json", name);
    assert_int_equal(mkdir(path, 0777), 0);
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 1);
    assert_fails(checkpoint_save(name, &s, NULL, b.graph, &b.tensors), STATUS_FAILED, "run.json");
    assert_int_equal(count_files(place), 1);
    bench_close(&b);
}

/* Runs in a child with mounts of its own. Returns 0, a line number where something was wrong, or
 * NO_MOUNTS where this machine does not allow it. */
enum { NO_MOUNTS = 255 };
static bool enter_own_mounts(const char *folder, const char *size)
{
    int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
    return unshare(flags) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", folder, "tmpfs", 0, size) == 0;
}

static bool stands_at(const char *name, int64_t step)
{
    checkpoint *c;
    if (checkpoint_open(name, &c) != STATUS_OK)
        return false;
    bool there = checkpoint_get_state(c)->step == step;
    checkpoint_close(c);
    return there;
}

static int on_small_disk(const char *folder, const char *name, const char *filler)
{
    if (!enter_own_mounts(folder, "size=256k"))
        return NO_MOUNTS;
    struct bench b;
    bench_open(&b, 8, UPDATE_SGD);
    struct checkpoint_state s = bench_state(&b, 1);
    child_check(checkpoint_save(name, &s, NULL, b.graph, &b.tensors) == STATUS_OK);
    /* Pages are given out whole: leave room for none, then one, two ... until a save fits. */
    FILE *f = fopen(filler, "wb");
    int n_pages = 0, n_failed = 0;
    static const char page[4096];
    while (f && fwrite(page, 1, sizeof page, f) == sizeof page && fflush(f) == 0)
        n_pages++;
    child_check(f && n_pages > 2);
    (void)fclose(f);
    for (; n_pages >= 0; n_pages--) {
        child_check(truncate(filler, (off_t)n_pages * 4096) == 0);
        s.step++;
        if (checkpoint_save(name, &s, NULL, b.graph, &b.tensors) == STATUS_OK)
            break;
        n_failed++;
        child_check(strstr(status_message(), "No space left on device"));
        child_check(strstr(status_message(), name));
        status_clear();
        child_check(stands_at(name, 1) && count_files(folder) == 3);
    }
    child_check(n_failed >= 2);
    child_check(stands_at(name, s.step) && count_files(folder) == 3);

    child_check(mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    s.step++;
    child_check(checkpoint_make_place(name) == STATUS_FAILED);
    child_check(strstr(status_message(), "Read-only file system"));
    status_clear();
    child_check(checkpoint_save(name, &s, NULL, b.graph, &b.tensors) == STATUS_FAILED);
    child_check(strstr(status_message(), "Read-only file system"));
    status_clear();
    child_check(stands_at(name, s.step - 1));
    bench_close(&b);
    return 0;
}

static void test_full_and_read_only_disk(void **state)
{
    (void)state;
    char place[PATH_MAX], name[PATH_MAX], filler[PATH_MAX];
    make_place("disk", place, name);
    (void)snprintf(filler, sizeof filler, "%.4000s/filler", place);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(on_small_disk(place, name, filler));
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == NO_MOUNTS)
        skip_because("mounting a small disk is not allowed");
    assert_int_equal(WEXITSTATUS(how), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_continuing_gives_the_same_bits),
        cmocka_unit_test(test_state_goes_round),
        cmocka_unit_test(test_pytorch_names),
        cmocka_unit_test(test_old_files_go_and_others_stay),
        cmocka_unit_test(test_same_step_twice),
        cmocka_unit_test(test_weights_alone),
        cmocka_unit_test(test_weights_last),
        cmocka_unit_test(test_doubt_removes_nothing),
        cmocka_unit_test(test_differences_are_named),
        cmocka_unit_test(test_missing_checkpoint),
        cmocka_unit_test(test_what_cannot_be_described),
        cmocka_unit_test(test_damage_is_noticed),
        cmocka_unit_test(test_foreign_json),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_subject),
        cmocka_unit_test(test_one_run_at_a_time),
        cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_writes_that_fail),
        cmocka_unit_test(test_commit_that_fails),
        cmocka_unit_test(test_full_and_read_only_disk),
    };
    log_set_level(LOG_QUIET);
    return test_run(tests);
}
