/* mutations.h: ways to break the programs of a team, each of which the checker must see.
 *
 *     struct mutant m;
 *     mutant_begin(&m, &team);
 *     if (mutations[k].apply(&m)) // false: there is nothing of the kind to break
 *         assert_true(team_check(&m.team) != STATUS_OK); // m.what describes the fault
 *     arena_destroy(m.memory);
 */
#ifndef CLEAVE_TESTS_MUTATIONS_H
#define CLEAVE_TESTS_MUTATIONS_H

#include "lowered.h"

/* ---- random numbers and copies to be changed ---- */

extern uint64_t random_state;

/* A team of which some programs are copied, to be changed. */
struct mutant {
    struct team team;
    struct program changed[MAX_WORKERS];
    arena *memory;
    char what[160];
};

void mutant_begin(struct mutant *m, const struct team *t);

struct mutation {
    const char *name;
    bool (*apply)(struct mutant *m); /* false: there is nothing of the kind to break */
};
enum { N_MUTATIONS = 19 };
extern const struct mutation mutations[N_MUTATIONS];

#endif
