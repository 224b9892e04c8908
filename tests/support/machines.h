/* machines.h: machines out of texts, and whether two are the same, for tests.
 *
 *     struct machine *m = parse("2x2:p100");
 *     assert_round_trip(m); // written and read back, nothing has changed
 *     machine_destroy(m);
 */
#ifndef CLEAVE_TESTS_MACHINES_H
#define CLEAVE_TESTS_MACHINES_H

#include "machine/machine.h"
#include "testing.h"

/* The nodes of a machine file, where they do not matter. */
#define NODES "\"nodes\": [{\"devices\": [\"p100\"]}]"

struct machine *parse(const char *text);

char *write_text(const struct machine *m);

void assert_same_parts(const struct machine *a, const struct machine *b);

void assert_same_kinds(const struct machine *a, const struct machine *b);

/* Every field, bit by bit. */
void assert_same(const struct machine *a, const struct machine *b);

void assert_round_trip(const struct machine *m);

struct machine *parse_json(const char *text);

#endif
