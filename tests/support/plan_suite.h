/* plan_suite.h: the networks and plans that every promise about plans is held to: trained as one
 * worker trains (test_transparency), and predicted to the byte (test_predict).
 *
 * All networks x all strategies x these numbers of workers, and plans made by hand.
 */
#ifndef CLEAVE_TESTS_PLAN_SUITE_H
#define CLEAVE_TESTS_PLAN_SUITE_H

#include "model/network.h"
#include "plan/plan.h"
#include "testing.h"

enum { SUITE_NETWORKS = 7, SUITE_WORKERS = 4 };
extern const char *const suite_networks[SUITE_NETWORKS];
extern const int suite_workers[SUITE_WORKERS];

/* How many (network, strategy, number of workers) there are: the size of the matrix. */
int suite_size(void);

/* The smallest images that the network takes, or nearly. */
struct graph_variant suite_variant(const char *model, int64_t batch);

struct graph *suite_build(const char *model, int64_t batch);

/* ---- plans made by hand ---- */

/* Batches are of 7 for lenet5, else of 12. */
struct suite_plan {
    const char *what, *model, *text;
};

enum { SUITE_PLANS = 15 };
extern const struct suite_plan suite_plans[SUITE_PLANS];

struct graph *suite_build_for(const struct suite_plan *p);

/* ---- asynchronous plans ---- */

enum { SUITE_WINDOW = 6, SUITE_PIPEDREAMS = 5, SUITE_SERVERS = 3, SUITE_SERVER_SAMPLES = 3 };

/* Of lenet5 with batches of 8. */
extern const struct plan_request suite_pipedreams[SUITE_PIPEDREAMS];

/* Of lenet5 with 3 samples for every worker that is no server. */
extern const struct plan_request suite_servers[SUITE_SERVERS];

/* ---- few samples ---- */

/* Data parallelism over four workers. */
struct suite_batch {
    const char *model;
    int64_t batch;
};
enum { SUITE_SMALL = 2 };
extern const struct suite_batch suite_small[SUITE_SMALL];

#endif
