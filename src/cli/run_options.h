/* run_options.h: options of a run that change its cost: of `cleave train`, and of the commands that
 * predict that cost (predict/forecast.h). */
#ifndef CLEAVE_CLI_RUN_OPTIONS_H
#define CLEAVE_CLI_RUN_OPTIONS_H

#include "cli/options.h"
#include "predict/forecast.h"

extern const char *const run_optimizer_names[]; /* by enum update_kind; NULL at the end */

/* Of a struct forecast_run that was forecast_usual_run before. */
#define RUN_OPTIONS(r)                                                                            \
    OPTION_CHOICE("--optimizer", &(r)->optimizer, run_optimizer_names, "sgd", "the update rule"), \
        OPTION_REAL("--momentum", "M", &(r)->momentum, 0, 1, "0.9", "of sgd"),                    \
        OPTION_FLAG("--augment", &(r)->augment, "flip and crop the training images at random"),   \
        OPTION_REAL("--dropout", "P", &(r)->drop_probability, 0, 0.999, NULL,                     \
                    "replaces every dropout's probability [the network's own]"),                  \
        OPTION_TEXT("--freeze", "PATTERN,...", &(r)->freeze, NULL,                                \
                    "weights that do not learn, by name: 'features.*,*.bias' [none]"),            \
        OPTION_CHOICE("--precision", &(r)->precision, precision_names, "float",                   \
                      "of the numbers; tf32 and fp16 are for predictions alone")
#define RUN_LIMIT_OPTION(r)                                         \
    OPTION_INTEGER("--limit", "N", &(r)->limit, 1, INT64_MAX, NULL, \
                   "train on the first N images only [all]")

#endif
