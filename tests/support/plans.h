/* plans.h: plans of networks at hand, their cuts as text, and whether two are the same, for tests.
 *
 *     struct graph *g = build(0); // lenet5
 *     struct plan *p = make(g, "model", 4);
 *     assert_string_equal(cuts_text(p, g, "conv1"), "k 4");
 *     check_round_trip(p, g); // written and read back, nothing has changed
 */
#ifndef CLEAVE_TESTS_PLANS_H
#define CLEAVE_TESTS_PLANS_H

#include "model/network.h"
#include "plan/plan.h"
#include "plan/shared.h"
#include "testing.h"

enum { NETWORKS = 7 };

/* Network k of NETWORKS, with batches of 8. */
struct graph *build(int k);

int find_node(const struct graph *g, const char *name);

struct plan *make(const struct graph *g, const char *strategy, int n_workers);

/* "n 2 o 2" of a layer, in a buffer that the next call reuses. */
const char *cuts_text(const struct plan *p, const struct graph *g, const char *name);

/* ---- there and back ---- */

void assert_same_plan(const struct plan *a, const struct plan *b, const struct graph *g);

void check_round_trip(const struct plan *p, const struct graph *g);

#endif
