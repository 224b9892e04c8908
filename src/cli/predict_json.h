/* predict_json.h: what `cleave predict` says of a plan, as JSON: printed by it, and kept in the
 * directory of a run (record.h). */
#ifndef CLEAVE_CLI_PREDICT_JSON_H
#define CLEAVE_CLI_PREDICT_JSON_H

#include "cli/forecast.h"
#include "predict/advise.h"

#include <jansson.h>

struct predict_answer {
    const struct plan *plan;
    const struct prediction *prediction;
    int n_advice; /* for a plan that does not fit */
    struct advice advice[ADVICE_MAX];
};

/* All slabs of a worker. */
int64_t predict_worker_bytes(const struct prediction *p, int worker);
double predict_epoch_seconds(const struct forecast *f, const struct prediction *p);

/* The caller's; NULL if memory ran out. */
json_t *predict_json(const struct forecast *f, const struct predict_answer *a);

#endif
