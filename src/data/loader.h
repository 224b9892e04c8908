/* loader.h: batches, decoded by threads ahead of the step that needs them.
 *
 * An epoch is one pass over the dataset in an order that depends on (seed, epoch) alone, cut into
 * global batches; a worker asks only for its part [first, first + count) of each. Threads fill a
 * ring of `depth` buffers allocated at creation:
 *
 *       released        held by the caller      ready      being filled     waiting
 *     ... 3 | 4       |         5             |  6  7    |       8        |  9 ...
 *                     ^ loader_release        ^ loader_next
 *
 * Batch b of an epoch has the same bits whatever the threads, the depth and the starting point, so
 * a run resumed at (epoch, batch) sees what one never stopped would have seen. Nothing is allocated
 * between loader_start and the end of the epoch by the loader (decoders of image files may).
 *
 *     loader *l;
 *     struct loader_options o = {.batch = 128, .seed = 1, .shuffle = true};
 *     TRY(loader_create(d, &o, &l));
 *     for (int64_t epoch = 0; epoch < 5; epoch++) {
 *         TRY(loader_start(l, epoch, 0));
 *         for (;;) {
 *             struct batch b;
 *             TRY(loader_next(l, &b));
 *             if (b.n_global == 0)
 *                 break;
 *             ... b.images, b.labels ...
 *             loader_release(l);
 *         }
 *     }
 *     loader_destroy(l);
 *
 * One thread at a time may call these functions on a loader.
 */
#ifndef CLEAVE_DATA_LOADER_H
#define CLEAVE_DATA_LOADER_H

#include "data/dataset.h"

enum { LOADER_MOST_THREADS = 256 };

/* Zero means the default everywhere but in batch, which must be given. */
struct loader_options {
    int64_t batch;  /* samples of the global batch */
    uint64_t seed;  /* of the order and of the augmentation */
    bool shuffle;   /* else in the dataset's order */
    bool augment;   /* random flip, and for small images a crop after padding by 4 pixels; a
                       function of (seed, epoch, sample) */
    bool drop_last; /* leave out a last batch with fewer than `batch` samples */
    int threads;    /* default: 1 for data in memory, else the online cores */
    int depth;      /* buffers in the ring; default 3 */
    int64_t first;  /* this worker's part of every global batch ... */
    int64_t count;  /* ... default: all from `first` on */
    /* The parts are exact: a count of 0 is none, and a last batch with fewer than `batch` samples
     * has a part of its own. Else its part is what `first` and `count` leave of it. */
    bool exact_parts;
    int64_t short_first, short_count;
    double timeout_s; /* the longest loader_next waits; default 300 */
    /* Above 0: samples that cannot be read are replaced (dataset_read_or_next), and batches say
     * so; `skip_corrupt` is how many others may be tried for one. */
    int64_t skip_corrupt;
};

struct batch {
    const float *images;   /* [n_samples, c, h, w], aligned to 64 bytes; the loader's */
    const int32_t *labels; /* [n_samples]; the loader's */
    int64_t first;         /* where this worker's part begins in the global batch */
    int64_t n_samples;     /* this worker's; less than asked for, even 0, in a short last batch */
    int64_t n_global;      /* of the whole batch; 0 only at the end of the epoch */
    int64_t index;         /* the batch's place in its epoch, from 0 */
    int64_t wait_ns;       /* how long the caller waited for it */
    const struct dataset_replaced *replaced; /* [n_replaced], by place; until the release */
    int n_replaced;
};

typedef struct loader loader;

/* Allocates the ring and starts the threads, idle. Keeps the dataset alive. STATUS_USAGE for a
 * batch below 1 or a part outside it. */
enum status loader_create(dataset *d, const struct loader_options *options, loader **out) MUST_USE;
/* At any moment, also in the middle of an epoch; NULL is fine. A read that does not return within
 * 5 s (or timeout_s, if less) is left behind with its thread, which cleans up when it comes back.
 */
void loader_destroy(loader *l);

/* Global batches in an epoch; 0 if drop_last leaves none. */
int64_t loader_batches(const loader *l);

/* Begins (or begins again) at batch `first_batch` of `epoch`, 0 <= first_batch <= loader_batches.
 * Batches still held are given back. */
enum status loader_start(loader *l, int64_t epoch, int64_t first_batch) MUST_USE;

/* Hands over the next batch, or one with n_global = 0 (and n_samples = 0) at the end of the epoch.
 * Fails with the error of the decoding thread when it comes to a batch that could not be read, and
 * with STATUS_TIMEOUT, naming the sample, after timeout_s. */
enum status loader_next(loader *l, struct batch *out) MUST_USE;

/* Gives back the oldest batch still held; at most `depth` may be held at once. */
void loader_release(loader *l);

#endif
