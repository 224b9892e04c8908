/* search_subject.h: a network and a machine, for tests of the search.
 *
 *     struct subject s;
 *     take_network(&s, "vgg16", 128, "1x4:p100");
 *     drop_subject(&s);
 */
#ifndef CLEAVE_TESTS_SEARCH_SUBJECT_H
#define CLEAVE_TESTS_SEARCH_SUBJECT_H

#include "machine/machine.h"
#include "model/network.h"
#include "predict/predict.h"
#include "profile/costs.h"
#include "testing.h"

#include <string.h>

struct subject {
    struct graph *graph;
    struct machine *machine;
    struct cost_source sources[8];
};

void take_machine(struct subject *s, const char *text);

void take_network(struct subject *s, const char *name, int64_t batch, const char *machine);

void drop_subject(struct subject *s);

/* Lowers and runs the clock. */
struct prediction *predict(const struct subject *s, const struct plan *plan);

double clock_step_s(const struct subject *s, const struct plan *plan);

/* Stops a search at its (*user + 1)-th question. */
bool stop_after(void *user, double best, double bound);

#endif
