/* lowered.h: the programs of all workers of a plan, and plans to lower, for tests of the checker.
 *
 *     struct team t; // with described_open and described_close around the tests
 *     if (team_create(&t, "lenet5", "gpipe", &(struct plan_request){.n_workers = 3}, true)) {
 *         assert_ok(team_check(&t));
 *         team_destroy(&t);
 *     }
 */
#ifndef CLEAVE_TESTS_LOWERED_H
#define CLEAVE_TESTS_LOWERED_H

#include "described.h"
#include "verify/verify.h"

enum { MAX_WORKERS = 7 };

/* All workers' programs of one step. */
struct team {
    char name[96];
    struct graph *graph;
    struct plan *plan;
    int n;
    struct program *programs[MAX_WORKERS];
};

/* False if the strategy cannot use so many workers. */
bool team_create(struct team *t, const char *model, const char *strategy,
                 const struct plan_request *request, bool training);

void team_create_from(struct team *t, const char *model, const char *plan, bool training);

void team_destroy(struct team *t);

enum status team_check(const struct team *t);

/* ---- plans written by hand ---- */

struct written_plan {
    const char *model, *plan;
};
enum { N_WRITTEN = 9, N_BROKEN = 4 }; /* test_mutations breaks the programs of the first N_BROKEN */
extern const struct written_plan written[N_WRITTEN];

/* ---- flattens that have no instruction ---- */

enum { N_FLATTENED = 3 };
void team_create_flattened(struct team *t, int i, bool training);

#endif
