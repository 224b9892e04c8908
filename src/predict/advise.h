/* advise.h: changes that make a plan fit into memory.
 *
 * Kinds of change are tried in the order of what they cost; of each kind the smallest change that
 * fits is named, in words that can be typed:
 *
 *     0. a smaller batch in the test, where that alone is too large
 *     1. more micro-batches: 2, 4, 8, ..
 *     2. all layers forward again instead of keeping their outputs, then with micro-batches
 *     3. another strategy on the same workers, if it trains to the same losses
 *     4. a smaller batch: half, a quarter, ..
 *     5. more workers, where the machine has them
 *
 * Where training would fit after a change but the test would not, a smaller batch of the test is a
 * part of the change.
 *
 * Only lowering says what memory a plan needs: every try is lowered, nothing is measured, no clock
 * runs. For each kind so many instructions are lowered at most.
 *
 *     struct advise_request r = {.predict = &request, .strategy = "data", .how = how};
 *     struct advice found[ADVICE_MAX];
 *     if (advise_find(&r, found) > 0)
 *         printf("fits with %s\n", found[0].change);     // --micro-batches 4
 */
#ifndef CLEAVE_PREDICT_ADVISE_H
#define CLEAVE_PREDICT_ADVISE_H

#include "predict/predict.h"

enum { ADVICE_MAX = 4, ADVICE_BYTES = 160 };

struct advice {
    char change[ADVICE_BYTES];
    int64_t memory_bytes; /* then, where it is scarcest: of a GPU, or of all workers of a host */
};

struct advise_request {
    const struct predict_request *predict; /* whose plan does not fit */
    const char *strategy;                  /* that made the plan; NULL: it is a file's */
    struct plan_request how;               /* and from what; n_workers may be 0 */
    /* Fills in the graphs of a request for other batches (eval_batch 0: as they would be); they
     * stay until close_batches of *opened. NULL: no smaller batches are tried. */
    enum status (*open_batches)(void *user, int64_t batch, int64_t eval_batch,
                                struct predict_request *request, void **opened);
    void (*close_batches)(void *opened);
    void *user;
};

/* How many it found, in the order above; 0 if nothing that was tried fits. */
int advise_find(const struct advise_request *request, struct advice found[ADVICE_MAX]);

/* Whether still more micro-batches may make a plan fit, that needed before_bytes and after a
 * doubling needs bytes: each doubling saves about half of the possible rest, so that all further
 * savings together are no more than the last one. */
bool advise_may_fit(int64_t before_bytes, int64_t bytes, int64_t limit_bytes);

#endif
