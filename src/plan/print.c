/* A plan as JSON, one line a layer. Everything is written out, so that nothing depends on defaults.
 */
#include "plan/shared.h"

#include "base/json.h"
#include "base/whole_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_numbers(FILE *f, int n, const int *numbers)
{
    (void)fputc('[', f);
    for (int i = 0; i < n; i++)
        (void)fprintf(f, "%s%d", i ? ", " : "", numbers[i]);
    (void)fputc(']', f);
}

static void print_cut(FILE *f, const struct plan_cut *cut, const struct loop_nest *nest)
{
    (void)fprintf(f, "\"%s\": ", nest->loop[cut->loop].name);
    if (!cut->sizes) {
        (void)fprintf(f, "%d", cut->n_parts);
        return;
    }
    for (int i = 0; i < cut->n_parts; i++)
        (void)fprintf(f, "%s%lld", i ? ", " : "[", (long long)cut->sizes[i]);
    (void)fputc(']', f);
}

static enum status print_layer(FILE *f, const struct plan *plan, const struct graph *graph,
                               int node)
{
    const struct plan_layer *layer = &plan->layers[node];
    struct loop_nest nest;
    op_get_loops(&graph->nodes[node].op, &nest);
    (void)fputs("    ", f);
    TRY(json_write_text(f, graph->nodes[node].name));
    (void)fprintf(f, ": {\"stage\": %d, \"cut\": {", layer->stage);
    for (int i = 0; i < layer->n_cuts; i++) {
        (void)fputs(i ? ", " : "", f);
        print_cut(f, &layer->cut[i], &nest);
    }
    (void)fputc('}', f);
    const int *usual = plan->stages[layer->stage].workers;
    if (memcmp(layer->workers, usual, (size_t)layer->n_pieces * sizeof *usual) != 0) {
        (void)fputs(", \"workers\": ", f);
        print_numbers(f, layer->n_pieces, layer->workers);
    }
    (void)fputs(node + 1 < plan->n_layers ? "},\n" : "}\n", f);
    return STATUS_OK;
}

static void print_sync(FILE *f, const struct plan *plan)
{
    (void)fprintf(f, "  \"sync\": {\"method\": \"%s\", \"bucket_bytes\": %lld",
                  plan_sync_names[plan->sync], (long long)plan->bucket_bytes);
    (void)fprintf(f, ", \"workers_per_node\": %d", plan->workers_per_node);
    if (plan->sync == PLAN_SERVER) {
        (void)fputs(", \"servers\": ", f);
        print_numbers(f, plan->n_servers, plan->servers);
        (void)fprintf(f, ", \"asynchronous\": %s", plan->asynchronous ? "true" : "false");
    }
    (void)fputs("}\n}\n", f);
}

static enum status print_recompute(FILE *f, const struct plan *plan, const struct graph *graph)
{
    int n = 0;
    for (int i = 1; i < plan->n_layers; i++)
        if (plan->layers[i].recompute) {
            (void)fputs(n++ ? ", " : "  \"recompute\": [", f);
            TRY(json_write_text(f, graph->nodes[i].name));
        }
    if (n)
        (void)fputs("],\n", f);
    return STATUS_OK;
}

static enum status print_plan(FILE *f, const struct plan *plan, const struct graph *graph)
{
    (void)fprintf(f, "{\n  \"cleave_plan\": %d,\n  \"name\": ", PLAN_VERSION);
    TRY(json_write_text(f, plan->name));
    (void)fputs(",\n", f);
    if (plan->made_for.model) {
        TRY(plan_print_made_for(f, &plan->made_for));
    } else {
        (void)fputs("  \"model\": ", f);
        TRY(json_write_text(f, graph->name));
        (void)fputs(",\n", f);
    }
    (void)fprintf(f, "  \"workers\": %d,\n  \"stages\": [\n", plan->n_workers);
    for (int s = 0; s < plan->n_stages; s++) {
        (void)fputs("    {\"workers\": ", f);
        print_numbers(f, plan->stages[s].n_workers, plan->stages[s].workers);
        (void)fputs(s + 1 < plan->n_stages ? "},\n" : "}\n", f);
    }
    (void)fputs("  ],\n  \"layers\": {\n", f);
    for (int i = 1; i < plan->n_layers; i++)
        TRY(print_layer(f, plan, graph, i));
    (void)fprintf(f, "  },\n  \"micro_batches\": %d,\n  \"schedule\": \"%s\",\n",
                  plan->micro_batches, plan_schedule_names[plan->schedule]);
    if (plan->schedule == PLAN_PIPEDREAM)
        (void)fprintf(f, "  \"window\": %d,\n", plan->window);
    TRY(print_recompute(f, plan, graph));
    if (plan->batch_norm != PLAN_NORM_BATCH)
        (void)fprintf(f, "  \"batch_norm\": \"%s\",\n", plan_batch_norm_names[plan->batch_norm]);
    print_sync(f, plan);
    return STATUS_OK;
}

enum status plan_print(const struct plan *plan, const struct graph *graph, char **out)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return status_no_memory(1);
    enum status st = print_plan(f, plan, graph);
    bool fine = !ferror(f);
    if (fclose(f) != 0 || !fine)
        st = st == STATUS_OK ? status_no_memory(size) : st;
    if (st == STATUS_OK)
        *out = text;
    else
        free(text);
    return st;
}

enum status plan_write(const struct plan *plan, const struct graph *graph, const char *path)
{
    char *text;
    TRY(plan_print(plan, graph, &text));
    enum status st = whole_file_put_text(path, text);
    free(text);
    return st;
}
