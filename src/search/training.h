/* training.h: a training that runs a slice of a few steps whenever it is asked to, and sleeps in
 * between: a program that runs meanwhile meets the machine as fast or as slow as the training does.
 *
 *     TRY(training_open(&request, &t));                    // built; it sleeps
 *     TRY(training_let(t));                                // a slice of it
 *     int64_t n = training_times(t, &times_ns);            // of the steps that count so far
 *     training_close(t);
 */
#ifndef CLEAVE_SEARCH_TRAINING_H
#define CLEAVE_SEARCH_TRAINING_H

#include "predict/forecast.h"

#include <stdint.h>

struct training_request {
    const struct forecast_options *forecast; /* the data, the backend, the threads and the run */
    const struct graph *graph;               /* of a step */
    const struct plan *plan;
    double slice_s;     /* about how long a slice is; at least two windows of steps ... */
    double long_s;      /* ... but where a step takes as long as this cold caches are nothing: one
                           window is enough, and it counts; 0: never */
    int64_t most_steps; /* that count, rounded up to whole windows; 0: no limit */
};

typedef struct training training;

/* Sets the trainer's options of such a run. */
struct trainer_options;
void training_tell(const struct forecast_run *run, struct trainer_options *to);

enum status training_open(const struct training_request *request, training **out) MUST_USE;
void training_close(training *t); /* NULL is fine */

/* Runs a slice, unless as many steps as wanted have counted. Its first window of steps, with cold
 * caches, does not count (but see long_s), nor do steps that are not in a whole window; of the
 * first slice the first window never does. */
enum status training_let(training *t) MUST_USE;

/* Valid until the next slice. */
int64_t training_times(const training *t, const int64_t **times_ns);

int64_t training_memory_bytes(const training *t); /* of the largest worker */
int64_t training_bytes_moved(const training *t);  /* by all workers, in a step */

#endif
