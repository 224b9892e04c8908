/* work.h: keys, families and amounts of computing instructions: all that their time depends on.
 *
 * A key is text: two instructions with the same key take the same time on the same device under the
 * same load. Where no time is known, the family says which others to compare with, and flops and
 * bytes how large the work is.
 */
#ifndef CLEAVE_PROGRAM_WORK_H
#define CLEAVE_PROGRAM_WORK_H

#include "program/program.h"

enum { WORK_KEY_BYTES = 512, WORK_FAMILY_BYTES = 96 };

struct work_amount {
    double flops;
    enum arithmetic arithmetic; /* of the flops */
    double bytes;   /* read and written, each tensor once; those that batch norm sums, twice */
    bool convolves; /* there are ways to do it in fewer operations than flops */
};

struct instr_work {
    char family[WORK_FAMILY_BYTES];
    struct work_amount amount;
};

/* The amount of a computing instruction without its family. */
struct work_amount program_instr_amount(const struct program *p, int i);
/* It takes no time whatever the device: a group whose output is its input. */
bool program_instr_is_free(const struct program *p, int i);
void program_instr_work(const struct program *p, int i, struct instr_work *work);
/* "" if it is free. */
const char *program_instr_key(const struct program *p, int i, char *key, size_t size);

/* The same without a program, for pieces that were not lowered: one pass of a group that gets so
 * many gradients; the sum of gradients, times an activation's slope; an update. Fill *work. */
void work_of_group(const struct group_spec *spec, enum pass pass, int n_gradients,
                   struct instr_work *work);
void work_of_fold(int n_addends, bool activates, double n_bytes, enum element type,
                  struct instr_work *work);
void work_of_update(int states, double n_bytes, enum element type, struct instr_work *work);

enum cost_origin { COST_NONE, COST_MEASURED, COST_FITTED, COST_ROOFLINE, COST_ORIGIN_COUNT };

/* The time of a computing instruction. */
struct instr_cost {
    double alone_s; /* no other worker of the host computes */
    double busy_s;  /* all of them do */
    double spread;  /* relative: about how far a single time, or the estimate, is off */
    enum cost_origin origin;
};

#endif
