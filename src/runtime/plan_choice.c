#include "runtime/plan_choice.h"

#include <string.h>
#include <unistd.h>

static bool is_strategy(const char *text)
{
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        if (strcmp(s->name, text) == 0)
            return true;
    return false;
}

/* JSON, as plan_print writes it. */
static bool is_written_out(const char *text)
{
    return text[0] == '{';
}

bool plan_is_file(const char *text)
{
    if (is_written_out(text))
        return false;
    return strpbrk(text, "/.") || (!is_strategy(text) && access(text, F_OK) == 0);
}

enum status plan_choose(const char *text, const struct graph *graph,
                        const struct plan_request *request, struct plan **out)
{
    if (is_written_out(text))
        return plan_parse(text, strlen(text), "the plan", graph, out);
    if (!plan_is_file(text)) {
        struct plan_request asked = *request;
        asked.n_workers = asked.n_workers ? asked.n_workers : 1;
        return plan_build(text, graph, &asked, out);
    }
    struct plan *plan;
    TRY(plan_read(text, graph, &plan));
    int workers = plan->n_workers;
    if (request->n_workers && request->n_workers != workers) {
        plan_destroy(plan);
        return status_fail(STATUS_USAGE,
                           "%s is for %d worker%s, %d %s asked for: leave --workers out, or make "
                           "another plan ('cleave plan %s --workers %d -o FILE')",
                           text, workers, workers == 1 ? "" : "s", request->n_workers,
                           request->n_workers == 1 ? "was" : "were", graph->name,
                           request->n_workers);
    }
    *out = plan;
    return STATUS_OK;
}
