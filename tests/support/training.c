#include "training.h"

const char *training_backend = "reference";

struct trainer_options small_run(const char *name)
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

enum status run_training(const struct trainer_options *o, const struct trainer_callbacks *calls,
                         void *user)
{
    trainer *t = NULL;
    TRY(trainer_create(o, &t));
    enum status st = trainer_run(t, calls, user);
    trainer_destroy(t);
    return st;
}

void ask_to_stop(int signal_number)
{
    (void)kill(getpid(), signal_number);
    for (int i = 0; i < 10000 && !stop_requested(); i++)
        (void)usleep(1000);
    assert_int_equal(stop_requested(), signal_number);
}

enum status sum_checkpoint(const char *name, int64_t *step, uint64_t *sum)
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

int count_files(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

void make_place(const char *folder, char folder_path[PATH_MAX], char name[PATH_MAX])
{
    static int number; /* a test that runs twice (ON_CPU) wants a folder for each */
    char own[128];
    (void)snprintf(own, sizeof own, "%s-%d", folder, number++);
    if (mkdir(test_path(folder_path, own), 0777) != 0)
        fail_msg("%s: cannot make it", folder_path);
    (void)snprintf(name, PATH_MAX, "%.4000s/run", folder_path);
}

/* ---- the same test on the cpu backend: ON_CPU(test) in the list of tests ---- */

int use_cpu(void **state)
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

int use_reference(void **state)
{
    (void)state;
    training_backend = "reference";
    return 0;
}
