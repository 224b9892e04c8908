/* Optimizer updates: one pass over flat memory. */
#include "backend/cpu/cpu_parts.h"

#include <assert.h>

typedef void update_function(const struct cpu_loops *loops, const struct update_rule *rule,
                             int64_t n, float *w, const float *g, float *const state[2]);

static void update_sgd(const struct cpu_loops *loops, const struct update_rule *r, int64_t n,
                       float *w, const float *g, float *const state[2])
{
    loops->update_sgd(n, (float)r->learning_rate, (float)r->weight_decay, (float)r->momentum,
                      r->nesterov, w, g, r->momentum != 0 ? state[0] : NULL);
}

static void update_adamw(const struct cpu_loops *loops, const struct update_rule *r, int64_t n,
                         float *w, const float *g, float *const state[2])
{
    loops->update_adamw(n, r, w, g, state[0], state[1]);
}

static update_function *const updates[] = {
    [UPDATE_SGD] = update_sgd,
    [UPDATE_ADAMW] = update_adamw,
};
static_assert(sizeof updates / sizeof updates[0] == UPDATE_KIND_COUNT, "one each");

enum status cpu_update(stream *s, const struct update_rule *rule, const struct update_args *args)
{
    enum { PIECE = 1 << 14 }; /* floats: a few pages of each array, enough to share out */
    const device *d = s->device;
    int64_t n = args->count, pieces = (n + PIECE - 1) / PIECE;
    if (args->rounded && args->rounded_type != ELEMENT_BF16)
        return status_fail(STATUS_FAILED, "the cpu backend does not round weights to %s",
                           element_name(args->rounded_type));
    float *const state[2] = {args->state[0], args->state[1]};
    /* All threads or one: those that a smaller team leaves out end, and are made anew later. */
#pragma omp parallel for num_threads(pieces > 1 ? d->threads : 1) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        int64_t at = i * PIECE, count = n - at < PIECE ? n - at : PIECE;
        float *const here[2] = {state[0] ? state[0] + at : NULL, state[1] ? state[1] + at : NULL};
        updates[rule->kind](d->loops, rule, count, (float *)args->weight + at,
                            (const float *)args->gradient + at, here);
    }
    if (args->rounded)
        narrow_round(d, n, args->weight, args->rounded);
    return STATUS_OK;
}
