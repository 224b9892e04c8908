/* strategy_options.h: the options that say how the work is split, for every command that takes a
 * plan. */
#ifndef CLEAVE_CLI_STRATEGY_OPTIONS_H
#define CLEAVE_CLI_STRATEGY_OPTIONS_H

#include "cli/options.h"
#include "plan/plan.h"

enum { STRATEGY_MAX_STAGES = 256 };

struct strategy_options {
    int64_t workers; /* 0: not given */
    int64_t micro_batches, bucket_bytes, servers, window, model_workers, workers_per_node;
    int sync, batch_norm;
    bool asynchronous;
    const char *replicas;  /* "3,1" */
    const char *recompute; /* "8", "auto" */
    int stages[STRATEGY_MAX_STAGES];
};

#define BATCH_NORM_OPTION(value)                                         \
    OPTION_CHOICE("--batch-norm", value, plan_batch_norm_names, "batch", \
                  "batch norm's statistics: of the whole batch, or of each worker's samples")

/* An option that is not given stays 0, the strategy's own choice. */
#define STRATEGY_OPTIONS(o)                                                                       \
    OPTION_INTEGER("--micro-batches", "M", &(o)->micro_batches, 1, 1 << 20, NULL,                 \
                   "parts of a batch that go through one after the other: what pipelines need, "  \
                   "and gradient accumulation under any plan [the strategy's own choice]"),       \
        OPTION_TEXT("--replicas", "N,...", &(o)->replicas, NULL,                                  \
                    "workers of each stage of a pipeline [one each]"),                            \
        OPTION_INTEGER("--window", "STEPS", &(o)->window, 1, PLAN_MAX_WINDOW, NULL,               \
                       "pipedream: steps between two flushes [4 times the stages]"),              \
        OPTION_INTEGER("--model-workers", "N", &(o)->model_workers, 1, PLAN_MAX_WORKERS, NULL,    \
                       "hybrid: workers along the channels [about the root of all]"),             \
        OPTION_CHOICE("--sync", &(o)->sync, plan_sync_names, "ring", "how gradients are summed"), \
        BATCH_NORM_OPTION(&(o)->batch_norm),                                                      \
        OPTION_INTEGER("--bucket-bytes", "N", &(o)->bucket_bytes, 1, INT64_C(1) << 40, NULL,      \
                       "gradients are summed in buckets of this size [26214400]"),                \
        OPTION_INTEGER("--workers-per-node", "N", &(o)->workers_per_node, 1, PLAN_MAX_WORKERS,    \
                       NULL, "for --sync hierarchical [devices of a node of --machine]"),         \
        OPTION_INTEGER("--servers", "N", &(o)->servers, 1, PLAN_MAX_WORKERS, NULL,                \
                       "ps, --sync server: how many of the workers keep weights [one in four]"),  \
        OPTION_TEXT(                                                                              \
            "--recompute", "N|auto", &(o)->recompute, NULL,                                       \
            "keep the outputs between N runs of layers alone, and run each run forward "          \
            "again before its backward; auto: as many as need the least memory [keep all]"),      \
        OPTION_FLAG("--asynchronous", &(o)->asynchronous,                                         \
                    "ps: apply each worker's gradients as they come")

/* Texts of --help: about plans, about strategies where only they can be named, and the names of the
 * strategies (one text, made anew by each call). */
extern const char plan_notes[], strategy_notes[];
const char *strategy_names_help(void);

/* STATUS_USAGE for a plan that is neither a file nor a strategy, with the nearest match;
 * `automatic`: auto is one, too. NULL is fine. */
enum status strategy_check_plan(const char *plan, const char *model, bool automatic) MUST_USE;

/* Into *request, which points into *o. Without --workers-per-node the machine says how many there
 * are; NULL: there is none, or it is this host alone. STATUS_USAGE for a bad --replicas, or for
 * --sync hierarchical where nothing says how large the nodes are. */
enum status strategy_request(struct strategy_options *o, const char *machine,
                             struct plan_request *request) MUST_USE;

#endif
