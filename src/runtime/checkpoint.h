/* checkpoint.h: a run put on disk, so that continuing gives the same bits as never having stopped.
 *
 * A checkpoint called NAME is two files:
 *
 *     NAME.json               what the run is and where it stands, the tensor file's name, size and
 *                             checksum, and a checksum of itself
 *     NAME-STEP.safetensors   weights and running statistics under PyTorch's state_dict names, then
 *                             optimizer state as "optimizer/WEIGHT/0" and "optimizer/WEIGHT/1",
 *                             and, where workers of asynchronous servers go on with copies of
 *                             their own, "worker/NUMBER/WEIGHT"
 *
 * A kill at any instant leaves a checkpoint that loads, because every save writes a tensor file of
 * a new name and NAME.json, replaced in one rename, is the moment at which it counts:
 *
 *     NAME-20.safetensors      whole (base/whole_file.h) | killed here: NAME.json still names
 *     NAME.json                being written beside it   | NAME-10.safetensors, which is there
 *     NAME.json                renamed, folder synced      <- from here on it is step 20
 *     NAME-10.safetensors      removed, with all other tensor and temporary files of NAME
 *
 * Files called NAME-<digits>[.<digits>].safetensors therefore belong to the checkpoint NAME: copy
 * or rename one to keep it. Weights are saved as 32-bit floats; a run in double precision continues
 * from rounded values.
 *
 *     TRY(checkpoint_lock("runs/a", &lock));       // no other run saves there
 *     TRY(checkpoint_save("runs/a", &state, &subject, graph, &tensors));
 *     ...
 *     checkpoint *c;
 *     TRY(checkpoint_open("runs/a", &c));
 *     TRY_GOTO(st, checkpoint_match(c, &state), out);
 *     TRY_GOTO(st, checkpoint_read(c, graph, &tensors), out);
 *     state = *checkpoint_get_state(c);
 */
#ifndef CLEAVE_RUNTIME_CHECKPOINT_H
#define CLEAVE_RUNTIME_CHECKPOINT_H

#include "base/lock_file.h"
#include "model/graph.h"
#include "runtime/schedule.h"
#include "runtime/tensor_store.h"

enum { CHECKPOINT_VERSION = 1, CHECKPOINT_TEXT_BYTES = 1024, CHECKPOINT_NAME_BYTES = 256 };

struct checkpoint_state {
    /* what the run is; must be the same to continue */
    char model[64], data[CHECKPOINT_TEXT_BYTES];
    int64_t channels, height, width, classes;
    int64_t batch, n_train;
    uint64_t seed;
    enum precision precision;
    bool augment;
    double drop_probability; /* negative: the network's own */
    /* how it learns; of these only rule.kind and the number of state tensors must be the same */
    struct update_rule rule; /* learning_rate is the base rate; step is not saved */
    struct schedule schedule;
    int64_t schedule_steps; /* its length; 0: not known, in checkpoints of earlier versions */
    char groups[80];        /* graph_groups_text; "": not known, likewise */
    /* where it stands */
    int64_t step;     /* steps done */
    int64_t epoch;    /* the epoch it is in, from 0 */
    int64_t position; /* batches done of that epoch; all of them: only its evaluation is missing */
    double loss_sum;  /* over the samples seen in that epoch */
    int64_t n_seen;
};

/* What a user of the weights needs beside them; it goes into both files. All zero, or NULL in place
 * of it: nothing is known. */
struct checkpoint_subject {
    const char *form;         /* of the network: "small" or "large" */
    int n_channels;           /* 0: no images that were normalised */
    const float *mean, *std;  /* [n_channels], of pixels in [0, 1] */
    int n_names;              /* 0: the classes have no names */
    const char *const *names; /* [n_names] */
};

/* Saves as above. On failure (no space, quota, device error, read-only or missing folder) the error
 * names the path and the cause, the former checkpoint stays, and temporary files are removed. */
enum status checkpoint_save(const char *name, const struct checkpoint_state *state,
                            const struct checkpoint_subject *subject, const struct graph *graph,
                            const struct tensor_store *tensors) MUST_USE;

/* Fails early where describing the run would: a path that is not UTF-8. */
enum status checkpoint_check_state(const char *name, const struct checkpoint_state *state,
                                   const struct checkpoint_subject *subject) MUST_USE;

/* Makes the folder, and fails early where a save would: not writable, an unusable name. */
enum status checkpoint_make_place(const char *name) MUST_USE;

/* Keeps the checkpoint for this run, by a lock on NAME.lock. STATUS_USAGE names the process that
 * has it. */
enum status checkpoint_lock(const char *name, lock_file **out) MUST_USE;

/* The failure (STATUS_USAGE) of a run that would replace the checkpoint that is there. */
enum status checkpoint_refuse_overwrite(const char *name) MUST_USE;

/* Whether NAME.json is there, readable or not: false only if it is surely absent. */
bool checkpoint_exists(const char *name);

typedef struct checkpoint checkpoint;

/* Reads NAME.json and verifies both files' checksums. */
enum status checkpoint_open(const char *name, checkpoint **out) MUST_USE;
void checkpoint_close(checkpoint *c); /* NULL is fine */
const struct checkpoint_state *checkpoint_get_state(const checkpoint *c);
/* The path of its safetensors file. Valid until checkpoint_close. */
const char *checkpoint_get_tensors_path(const checkpoint *c);

/* STATUS_USAGE naming the difference, if a run like *wanted cannot continue from c. A difference in
 * how it learns is allowed, with a warning. */
enum status checkpoint_match(const checkpoint *c, const struct checkpoint_state *wanted) MUST_USE;

/* All tensors of the checkpoint into the store. Nothing is written unless all of them are there
 * in the right shapes. */
enum status checkpoint_read(checkpoint *c, const struct graph *graph,
                            const struct tensor_store *tensors) MUST_USE;

/* Weights alone, from and to a safetensors file. Reading ignores tensors that the network does not
 * have (num_batches_tracked, optimizer state) and names the first that is missing or misshapen. */
enum status checkpoint_load_weights(const char *path, const struct graph *graph,
                                    const struct tensor_store *tensors) MUST_USE;
enum status checkpoint_save_weights(const char *path, const struct checkpoint_subject *subject,
                                    const struct graph *graph,
                                    const struct tensor_store *tensors) MUST_USE;

#endif
