/* training.h: what the tests of checkpoints and of the trainer share: small runs, and
 * what they leave behind. */
#ifndef CLEAVE_TESTS_TRAINING_H
#define CLEAVE_TESTS_TRAINING_H

#include "runtime/checkpoint.h"
#include "runtime/safetensors.h"
#include "runtime/stop.h"
#include "runtime/trainer.h"
#include "testing.h"

#include <dirent.h>
#include <signal.h>

/* What the runs compute with; one thread, since these tests fork. */
extern const char *training_backend;

/* 70 samples in batches of 16: five steps an epoch, the last with 6 samples. */
struct trainer_options small_run(const char *name);

/* Creates, runs and destroys a trainer. */
enum status run_training(const struct trainer_options *o, const struct trainer_callbacks *calls,
                         void *user);

/* Asks this process to stop, and returns when it has heard of it; another thread takes it. */
void ask_to_stop(int signal_number);

/* The sum over the tensors of the checkpoint NAME, and the step it stands at. */
enum status sum_checkpoint(const char *name, int64_t *step, uint64_t *sum);

/* Entries of a folder, those that begin with a dot not counted. */
int count_files(const char *folder);

/* A new folder inside the test's own; the name of a checkpoint in it goes to `name`. */
void make_place(const char *folder, char folder_path[PATH_MAX], char name[PATH_MAX]);

/* ---- the same test on the cpu backend: ON_CPU(test) in the list of tests ---- */

int use_cpu(void **state);

int use_reference(void **state);

#define ON_CPU(test)                                        \
    {                                                       \
#test " on cpu", test, use_cpu, use_reference, NULL \
    }
#endif
