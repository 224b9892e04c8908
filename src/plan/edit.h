/* edit.h: a plan with some layers cut otherwise. */
#ifndef CLEAVE_PLAN_EDIT_H
#define CLEAVE_PLAN_EDIT_H

#include "plan/plan.h"

/* A copy of the plan with some layers cut otherwise: "fc1=n:4", "conv1=n:2+p:2,fc2=whole". Their
 * pieces run on the first workers of the stage. STATUS_USAGE names the layer or loop that there is
 * not, or the fault of the plan then. */
enum status plan_edit(const struct plan *plan, const struct graph *graph, const char *text,
                      struct plan **out) MUST_USE;
/* What of that can be said before there is a plan: the form, and names of layers and loops. */
enum status plan_check_edit(const struct graph *graph, const char *text) MUST_USE;

#endif
