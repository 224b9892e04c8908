/* run_description.h: the files in the record of a run that describe it and its prediction:
 * network.json, plan.json, machine.json, search.json, prediction.json and the predicted
 * trace. */
#ifndef CLEAVE_CLI_RUN_DESCRIPTION_H
#define CLEAVE_CLI_RUN_DESCRIPTION_H

#include "predict/forecast.h"
#include "runtime/run_record.h"

struct run_description {
    const struct forecast_options *forecast; /* what the run was asked to be */
    const json_t *search; /* of --plan auto: its candidates; NULL: there are none */
    bool predict;         /* also predict the run, from costs that were measured before */
    /* ---- set by run_describe ---- */
    double step_s, error_s; /* predicted; 0: nothing is */
};

/* Does nothing where no record is written; a failure is a warning. */
void run_describe(run_record *r, const struct trainer_options *options,
                  const struct trainer_info *info, struct run_description *d);

#endif
