/* plan_choose.h: `cleave plan MODEL`, which recommends a plan: declarations that its files share.
 */
#ifndef CLEAVE_CLI_PLAN_CHOOSE_H
#define CLEAVE_CLI_PLAN_CHOOSE_H

#include "cli/forecast_options.h"
#include "search/chooser.h"
#include "search/explain.h"

#include <jansson.h>

enum { PLAN_MAX_POINTS = 16 };

struct plan_choose_options {
    struct chooser_options chooser;
    const char *model;
    const char *workers; /* "16", or "1..64" */
    const char *output, *set, *batches;
    const char *device, *intra, *inter;
    int64_t nodes, devices_per_node, details;
    int batch_norm; /* enum plan_batch_norm */
    bool json, all;
    char machine[256]; /* made of the above */
};

/* ---- plan_report.c ---- */

/* The answer of one search. */
struct plan_answer {
    struct chooser *chooser;
    struct candidate_set *set;
    int edited;                    /* the hand edit among the candidates; -1: none */
    struct explanation *explained; /* of the best; NULL: there is none */
    double other_norm_s; /* a step of the best with the other batch norm; 0: it was not asked for */
    bool all;            /* candidates that are far behind, too */
    int details;         /* JSON: plans and timelines of so many, the fastest that fit */
};

enum status plan_print_answer(const struct plan_answer *a) MUST_USE;
enum status plan_print_answer_json(const struct plan_answer *a) MUST_USE;
/* The JSON that it prints. */
enum status plan_answer_json(const struct plan_answer *a, json_t **out) MUST_USE;

/* ---- plan_scaling.c ---- */

/* "1..64": powers of two from the first number on, and the last one. False: it is no range. */
bool plan_parse_range(const char *text, int counts[PLAN_MAX_POINTS], int *n_counts);
enum status plan_scale_workers(const struct plan_choose_options *o) MUST_USE;
enum status plan_scale_batches(const struct plan_choose_options *o) MUST_USE;

#endif
