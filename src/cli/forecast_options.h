/* forecast_options.h: the options of the commands that predict (predict/forecast.h). */
#ifndef CLEAVE_CLI_FORECAST_OPTIONS_H
#define CLEAVE_CLI_FORECAST_OPTIONS_H

#include "backend/backend.h"
#include "cli/options.h"
#include "predict/forecast.h"

#define FORECAST_OPTIONS(o)                                                                        \
    OPTION_TEXT("--data", "SPEC", &(o)->data, NULL,                                                \
                "the data to train on [what the plan's file says, else fashion-mnist for mlp and " \
                "lenet5, the shape of imagenet for others]"),                                      \
        OPTION_INTEGER("--batch", "N", &(o)->batch, 1, GRAPH_LARGEST_BATCH, "128",                 \
                       "images in a step"),                                                        \
        OPTION_TEXT("--machine", "MACHINE", &(o)->machine, "local",                                \
                    "local, a file, or a string such as 4x4:p100,inter=4.5GB/s"),                  \
        OPTION_INTEGER("--threads", "N", &(o)->threads, 1, BACKEND_MAX_THREADS, NULL,              \
                       "of each worker of this host [all cores, shared out]"),                     \
        OPTION_TEXT("--backend", "BACKEND", &(o)->backend, NULL,                                   \
                    "the backend of this host: cpu or reference [the best of this build]"),        \
        OPTION_TEXT("--profile", "FILE", &(o)->profile, NULL,                                      \
                    "where measured costs are kept [$CLEAVE_PROFILE or "                           \
                    "~/.cache/cleave/profile.db]"),                                                \
        OPTION_FLAG("--no-measure", &(o)->measure.look_only,                                       \
                    "measure nothing: estimate costs missing in the profile"),                     \
        OPTION_FLAG("--no-data", &(o)->no_data, "take the data to be ready at every step"),        \
        OPTION_REAL(                                                                               \
            "--calibrate", "IMAGES/S", &(o)->calibrate, 0, 1e12, NULL,                             \
            "images/s that one device alone is known to reach; scales the estimates of devices "   \
            "that are not here [no]"),                                                             \
        OPTION_INTEGER("--calibrate-batch", "N", &(o)->calibrate_batch, 1, GRAPH_LARGEST_BATCH,    \
                       NULL, "images in a step at that speed [--batch]")

#endif
