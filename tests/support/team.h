/* team.h: a plan run for real, every worker a thread, for tests: same weights and batches whatever
 * the plan, so that losses can be compared.
 *
 *     struct team_run run = {.graph = g, .plan = plan, .backend = "reference",
 *                            .precision = PRECISION_DOUBLE, .rule = sgd, .n_steps = 10};
 *     double losses[10];
 *     assert_ok(team_train(&run, losses));
 */
#ifndef CLEAVE_TESTS_TEAM_H
#define CLEAVE_TESTS_TEAM_H

#include "session.h"
#include "verify/verify.h"

#include <math.h>
#include <pthread.h>

enum { TEAM_MAX_WORKERS = 16 };

struct team_run {
    const struct graph *graph;
    const struct plan *plan; /* NULL: one worker */
    const char *backend;
    enum precision precision;
    int threads; /* per worker; 0: 1 */
    struct update_rule rule;
    int n_steps;
    bool evaluate;    /* the losses of an evaluation after the training are added at the end */
    double timeout_s; /* 0: 60 */
    bool check;       /* the programs are proved sound before they run */
    /* What element of parameter `number` the weights start with; NULL: team_weight. */
    float (*weight)(const struct graph_param *param, int number, int64_t element);
    float *weights; /* out, unless NULL: all parameters whole, one after the other, in row order;
                       NaN where no worker holds any (team_weight_elements of them) */
    double spread;  /* out, with weights: the largest difference of two workers' copies */
    uint64_t hash;  /* out: of all weights of all workers, bit by bit */
    int64_t sent_bytes, counted_bytes; /* out: what the programs say, what the transport counted */
    int64_t expected_bytes; /* out: the same for all runs of both programs; == counted_bytes */
    int64_t memory_bytes[TEAM_MAX_WORKERS]; /* out: what each worker's executor allocated */
};

/* ---- weights ---- */

float team_weight(const struct graph_param *param, int number, int64_t element);

int64_t team_weight_elements(const struct graph *g);

/* ---- all of them ---- */

/* losses has n_steps entries, and one more with `evaluate`. */
enum status team_train(struct team_run *r, double *losses);

#endif
