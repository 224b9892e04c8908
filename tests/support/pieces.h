/* pieces.h: an op cut along its loops, for tests: every piece runs by itself on regions of the
 * whole's tensors, and the assembled results are compared with those of the uncut op.
 *
 *     struct opdevice fast, exact;
 *     open_both(&fast, &exact, 2);
 *     truth_open(&t, &exact, opcase_find("wide linear"));
 *     choose_cut(&dice, &t.c.spec, 0, &cut);
 *     legal = run_cut(&fast, &t, &dice, &cut); // fails the test where results differ
 *     truth_close(&t);
 */
#ifndef CLEAVE_TESTS_PIECES_H
#define CLEAVE_TESTS_PIECES_H

#include "backend/reference/reference.h"
#include "opcases.h"

enum { MAX_PARTS = 3, MAX_PIECES = 48 };

/* ---- numbers and devices ---- */

/* A sequence of random numbers; its seed is shown when a test fails. */
struct dice {
    uint32_t seed;
    uint64_t rolled;
};

int64_t roll(struct dice *d, int64_t sides);

const struct backend *find_cpu(void);

/* The two that everything runs on: the fast one (or the reference in float), and double. */
void open_both(struct opdevice *fast, struct opdevice *exact, int threads);

/* ---- tensors on a device ---- */

struct tensor {
    const struct opdevice *on;
    const layout *layout;
    void *memory;
};

/* In the plain layout, or the one in which regions travel, which is nearer to the kernels' own. */
const layout *choose_layout(const struct opdevice *d, const struct shape *shape, bool plain);

/* `host` may be NULL: then all zero. */
struct tensor tensor_open(const struct opdevice *d, const layout *l, const float *host);

void tensor_close(struct tensor *t);

int64_t tensor_elements(const struct tensor *t);

float *tensor_read(const struct tensor *t);

/* Elements added by rounding up must be zero: then memory and tensor have as many that are not. */
void assert_padding_is_zero(const char *name, const struct tensor *t);

void assert_near_all(const char *name, const char *what, const struct tensor *t,
                     const float *truth);

void *writable(const void *p);

/* Fills the memory of a run with NaN, rounded-up elements too, so that a missing write shows. */
void poison(struct oprun *r);

/* ---- the whole op ---- */

/* All tensors of the uncut op, computed by the reference, as floats. */
struct truth {
    struct opcase c;
    int n_params;
    struct op_param param[OP_MAX_PARAMS];
    float *input[OP_MAX_INPUTS], *residual, *params[OP_MAX_PARAMS], *output_grad[GROUP_MAX_ADDENDS];
    float *output, *params_after[OP_MAX_PARAMS], *input_grad[OP_MAX_INPUTS];
    float *param_grad[OP_MAX_PARAMS], *residual_grad;
    int32_t labels[64];
};

void truth_open(struct truth *t, const struct opdevice *exact, const struct opcase *c);

void truth_close(struct truth *t);

/* ---- cuts ---- */

struct cut {
    int n_loops, parts[OP_MAX_LOOPS], n_pieces;
    int64_t border[OP_MAX_LOOPS][MAX_PARTS + 1];
    char text[160];
};

/* Loops at random, and loop `forced` (modulo their number) wherever it may be cut. */
void choose_cut(struct dice *dice, const struct group_spec *spec, int forced, struct cut *cut);

/* ---- putting the results together ---- */

bool run_cut(const struct opdevice *on, const struct truth *t, struct dice *dice,
             const struct cut *cut);

#endif
