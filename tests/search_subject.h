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
#include "profile/costs.h"
#include "testing.h"

#include <string.h>

struct subject {
    struct graph *graph;
    struct machine *machine;
    struct cost_source sources[8];
};

static inline void take_machine(struct subject *s, const char *text)
{
    assert_ok(machine_parse(text, &s->machine));
    assert_true(s->machine->n_kinds <= 8);
    memset(s->sources, 0, sizeof s->sources);
    for (int i = 0; i < s->machine->n_kinds; i++)
        s->sources[i].kind = &s->machine->kinds[i];
}

static inline void take_network(struct subject *s, const char *name, int64_t batch,
                                const char *machine)
{
    struct graph_variant v = {.batch = batch,
                              .channels = 3,
                              .height = 224,
                              .width = 224,
                              .classes = 1000,
                              .drop_probability = -1};
    assert_ok(network_build(name, &v, &s->graph));
    take_machine(s, machine);
}

static inline void drop_subject(struct subject *s)
{
    graph_destroy(s->graph);
    machine_destroy(s->machine);
}

/* Stops a search at its (*user + 1)-th question. */
static inline bool stop_after(void *user, double best, double bound)
{
    int *left = user;
    (void)best;
    (void)bound;
    return --*left < 0;
}

#endif
