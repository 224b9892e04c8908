/* plan_choice.h: a plan by what people write: the name of a strategy, or of a file.
 *
 *     struct plan_request request = {.n_workers = 4};
 *     TRY(plan_choose("owt", graph, &request, &plan));
 *     TRY(plan_choose("plans/mine.json", graph, &request, &plan));
 */
#ifndef CLEAVE_RUNTIME_PLAN_CHOICE_H
#define CLEAVE_RUNTIME_PLAN_CHOICE_H

#include "plan/plan.h"

/* Whether the text means a file: it has a '/' or a '.', or there is a file of that name which is
 * no strategy. */
bool plan_is_file(const char *text);

/* STATUS_USAGE if the request says more than how many workers: `plan`, a file or a search, answers
 * everything else itself. */
enum status plan_check_bare(const struct plan_request *request, const char *plan) MUST_USE;

/* STATUS_USAGE if the request says something that the strategy has no use for. An unknown
 * name is fine here: plan_build refuses it. */
enum status plan_check_used(const struct plan_request *request, const char *strategy) MUST_USE;

/* request->n_workers 0: as many as the file says, or 1. A file for another number of workers than
 * asked for is STATUS_USAGE; so is a request that says more of how a file's plan is to be, or
 * something that the strategy has no use for, and an unknown name, with the nearest match. */
enum status plan_choose(const char *text, const struct graph *graph,
                        const struct plan_request *request, struct plan **out) MUST_USE;

#endif
