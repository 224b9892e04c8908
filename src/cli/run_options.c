#include "cli/run_options.h"

#include "backend/backend.h"

const char *const run_optimizer_names[] = {
    [UPDATE_SGD] = "sgd", [UPDATE_ADAMW] = "adamw", [UPDATE_KIND_COUNT] = NULL};
