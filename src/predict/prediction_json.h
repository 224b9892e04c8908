/* prediction_json.h: what `cleave predict` says of a plan, as JSON: printed by it, and kept in the
 * record of a run (runtime/run_record.h). */
#ifndef CLEAVE_PREDICT_PREDICTION_JSON_H
#define CLEAVE_PREDICT_PREDICTION_JSON_H

#include "predict/advise.h"
#include "predict/forecast.h"

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
