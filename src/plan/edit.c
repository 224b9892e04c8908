/* A plan with some layers cut otherwise: its JSON is changed and read again, so that the same rules
 * hold, and the same mistakes are found, as for a file. */
#include "plan/edit.h"

#include "base/text.h"
#include "plan/shared.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 128 };

static enum status fail_form(const char *text)
{
    return status_fail(STATUS_USAGE,
                       "--set '%.80s' must be LAYER=LOOP:PARTS, like fc1=n:4 or conv1=n:2+p:2 or "
                       "fc1=whole",
                       text);
}

static enum status fail_layer(const struct graph *graph, const char *name)
{
    const char **names = calloc((size_t)graph->n_nodes, sizeof *names);
    if (!names)
        return status_no_memory((size_t)graph->n_nodes * sizeof *names);
    for (int i = 1; i < graph->n_nodes; i++)
        names[i - 1] = graph->nodes[i].name;
    const char *near = text_nearest(name, names);
    enum status st =
        near
            ? status_fail(STATUS_USAGE, "--set: unknown layer '%s': did you mean '%s'?", name, near)
            : status_fail(STATUS_USAGE, "--set: unknown layer '%s' ('cleave show %s' lists them)",
                          name, graph->name);
    free(names);
    return st;
}

/* "n:2+p:2" or "whole". */
static enum status parse_cut(const char *text, json_t *cut)
{
    if (strcmp(text, "whole") == 0)
        return STATUS_OK;
    for (const char *at = text;;) {
        size_t length = strcspn(at, "+");
        char word[WORD_BYTES], *colon;
        int64_t parts;
        (void)snprintf(word, sizeof word, "%.*s", (int)(length < 127 ? length : 127), at);
        colon = strchr(word, ':');
        if (!colon || colon == word)
            return fail_form(text);
        *colon++ = '\0';
        TRY(text_parse_integer("--set: parts", colon, 1, PLAN_MAX_WORKERS, &parts));
        (void)json_object_set_new(cut, word, json_integer((json_int_t)parts));
        if (!at[length])
            return STATUS_OK;
        at += length + 1;
    }
}

static enum status set_layer(json_t *layers, const struct graph *graph, const char *text)
{
    char word[WORD_BYTES];
    (void)snprintf(word, sizeof word, "%s", text);
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return fail_form(text);
    *equals++ = '\0';
    json_t *layer = json_object_get(layers, word);
    if (!layer)
        return fail_layer(graph, word);
    json_t *cut = json_object();
    enum status st = parse_cut(equals, cut);
    if (st != STATUS_OK || json_object_set_new(layer, "cut", cut) != 0) {
        if (st != STATUS_OK)
            json_decref(cut);
        return st != STATUS_OK ? st : status_no_memory(0);
    }
    (void)json_object_del(layer, "workers");
    return STATUS_OK;
}

static enum status set_layers(json_t *layers, const struct graph *graph, const char *text)
{
    char word[WORD_BYTES];
    while (text_next_word(&text, word, sizeof word))
        TRY(set_layer(layers, graph, word));
    return STATUS_OK;
}

/* A mistake names the plan, too: it may have fewer workers than the machine. */
static enum status read_back(const json_t *json, const char *name, const struct graph *graph,
                             struct plan **out)
{
    char source[WORD_BYTES];
    char *text = json_dumps(json, JSON_COMPACT);
    if (!text)
        return status_no_memory(0);
    (void)snprintf(source, sizeof source, "--set on '%.80s'", name);
    enum status st = plan_parse_request(text, source, graph, out);
    free(text);
    return st;
}

enum status plan_edit(const struct plan *plan, const struct graph *graph, const char *text,
                      struct plan **out)
{
    char *written;
    TRY(plan_print(plan, graph, &written));
    json_t *json = json_loads(written, 0, NULL);
    free(written);
    if (!json)
        return status_no_memory(0);
    enum status st = set_layers(json_object_get(json, "layers"), graph, text);
    if (st == STATUS_OK)
        st = read_back(json, plan->name, graph, out);
    json_decref(json);
    return st;
}

/* ---- before there is a plan ---- */

static enum status check_loops(const struct graph_node *node, json_t *cut)
{
    struct loop_nest nest;
    const char *names[OP_MAX_LOOPS + 1] = {NULL};
    char what[WORD_BYTES];
    op_get_loops(&node->op, &nest);
    for (int i = 0; i < nest.n_loops; i++)
        names[i] = nest.loop[i].name;
    (void)snprintf(what, sizeof what, "loop of --set %.80s", node->name);
    for (void *at = json_object_iter(cut); at; at = json_object_iter_next(cut, at)) {
        int i = 0;
        while (names[i] && strcmp(names[i], json_object_iter_key(at)) != 0)
            i++;
        if (!names[i])
            return text_fail_unknown(what, json_object_iter_key(at), names);
    }
    return STATUS_OK;
}

enum status plan_check_edit(const struct graph *graph, const char *text)
{
    json_t *layers = json_object();
    for (int i = 1; i < graph->n_nodes; i++)
        if (json_object_set_new(layers, graph->nodes[i].name, json_object()) != 0) {
            json_decref(layers);
            return status_no_memory(0);
        }
    enum status st = set_layers(layers, graph, text);
    for (int i = 1; i < graph->n_nodes && st == STATUS_OK; i++) {
        const json_t *layer = json_object_get(layers, graph->nodes[i].name);
        st = check_loops(&graph->nodes[i], json_object_get(layer, "cut"));
    }
    json_decref(layers);
    return st;
}
