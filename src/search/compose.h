/* compose.h: a plan made of the choices of its layers; inside of the search. */
#ifndef CLEAVE_SEARCH_COMPOSE_H
#define CLEAVE_SEARCH_COMPOSE_H

#include "search/pricing.h"

/* One stage of a plan: layers first .. end - 1 of a pricing, each with its choice. */
struct composed_stage {
    const struct pricing *pricing; /* of as many workers as the stage has */
    int first, end;
    const int *choice; /* by layer of the pricing */
    bool recompute;
};

/* A checked plan over the stages' workers in order. */
enum status compose_plan(const char *name, const struct composed_stage *stages, int n_stages,
                         int micro_batches, enum plan_schedule schedule, int window,
                         struct plan **out) MUST_USE;

#endif
