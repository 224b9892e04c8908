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

/* An option that a file answers itself; NULL: none was given. */
static const char *answered_by_file(const struct plan_request *r)
{
    const struct {
        const char *name;
        bool given;
    } options[] = {
        {"--micro-batches", r->micro_batches != 0},
        {"--sync", r->sync != PLAN_RING},
        {"--bucket-bytes", r->bucket_bytes != 0},
        {"--workers-per-node", r->workers_per_node != 0},
        {"--servers", r->n_servers != 0},
        {"--asynchronous", r->asynchronous},
        {"--window", r->window != 0},
        {"--model-workers", r->model_workers != 0},
        {"--replicas", r->n_stages != 0},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given)
            return options[i].name;
    return NULL;
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
    const char *option = answered_by_file(request);
    if (option)
        return status_fail(STATUS_USAGE, "%s is for plans by name: %s says it itself", option,
                           text);
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
