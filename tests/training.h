/* training.h: what the tests of checkpoints and of the trainer share: small runs, and
 * what they leave behind. Included after testing.h. */
#ifndef CLEAVE_TESTS_TRAINING_H
#define CLEAVE_TESTS_TRAINING_H

#include "runtime/checkpoint.h"
#include "runtime/safetensors.h"
#include "runtime/stop.h"
#include "runtime/trainer.h"

#include <dirent.h>
#include <signal.h>

/* What the runs compute with; one thread, since these tests fork. */
static const char *training_backend = "reference";

/* 70 samples in batches of 16: five steps an epoch, the last with 6 samples. */
static inline struct trainer_options small_run(const char *name)
{
    struct trainer_options o = trainer_default_options();
    o.model = "mlp";
    o.data = "synthetic:1x8x8/4/70";
    o.batch = 16;
    o.epochs = 3;
    o.backend = training_backend;
    o.threads = 1;
    o.checkpoint = name;
    o.rule.learning_rate = 0.05;
    return o;
}

/* Creates, runs and destroys a trainer. */
static inline enum status run_training(const struct trainer_options *o,
                                       const struct trainer_callbacks *calls, void *user)
{
    trainer *t = NULL;
    TRY(trainer_create(o, &t));
    enum status st = trainer_run(t, calls, user);
    trainer_destroy(t);
    return st;
}

/* Asks this process to stop, and returns when it has heard of it; another thread takes it. */
static inline void ask_to_stop(int signal_number)
{
    (void)kill(getpid(), signal_number);
    for (int i = 0; i < 10000 && !stop_requested(); i++)
        (void)usleep(1000);
    assert_int_equal(stop_requested(), signal_number);
}

/* The sum over the tensors of the checkpoint NAME, and the step it stands at. */
static inline enum status sum_checkpoint(const char *name, int64_t *step, uint64_t *sum)
{
    checkpoint *c = NULL;
    safetensors *f = NULL;
    struct safetensors_sum whole = {0};
    TRY(checkpoint_open(name, &c));
    *step = checkpoint_get_state(c)->step;
    enum status st = safetensors_open(checkpoint_get_tensors_path(c), &f);
    if (st == STATUS_OK)
        st = safetensors_get_sum(f, &whole);
    safetensors_close(f);
    checkpoint_close(c);
    *sum = whole.xxh64;
    return st;
}

/* Entries of a folder, those that begin with a dot not counted. */
static inline int count_files(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

/* A new folder inside the test's own; the name of a checkpoint in it goes to `name`. */
static inline void make_place(const char *folder, char folder_path[PATH_MAX], char name[PATH_MAX])
{
    static int number; /* a test that runs twice (ON_CPU) wants a folder for each */
    char own[128];
    (void)snprintf(own, sizeof own, "%s-%d", folder, number++);
    if (mkdir(test_path(folder_path, own), 0777) != 0)
        fail_msg("%s: cannot make it", folder_path);
    (void)snprintf(name, PATH_MAX, "%.4000s/run", folder_path);
}

/* ---- the same test on the cpu backend: ON_CPU(test) in the list of tests ---- */

static inline int use_cpu(void **state)
{
    const struct backend *cpu;
    (void)state;
    if (backend_find("cpu", &cpu) != STATUS_OK) {
        status_clear();
        print_message("this build has no cpu backend: reference again\n");
        return 0;
    }
    training_backend = "cpu";
    return 0;
}

static inline int use_reference(void **state)
{
    (void)state;
    training_backend = "reference";
    return 0;
}

#define ON_CPU(test)                                        \
    {                                                       \
#test " on cpu", test, use_cpu, use_reference, NULL \
    }

#endif
