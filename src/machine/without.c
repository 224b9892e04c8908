/* Removes nodes from a machine: writes its JSON, deletes them there, reads it again. */
#include "machine/machine.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status write_text(const struct machine *m, json_t **out)
{
    char *text;
    TRY(machine_write_text(m, &text));
    *out = json_loads(text, 0, NULL);
    free(text);
    return *out ? STATUS_OK : status_no_memory(0);
}

static enum status read_text(json_t *json, const char *where, struct machine **out)
{
    char *text = json_dumps(json, JSON_COMPACT);
    if (!text)
        return status_no_memory(0);
    enum status st = machine_parse_json(text, strlen(text), where, out);
    free(text);
    return st;
}

static int find_node(const struct machine *m, const char *word)
{
    char *end;
    for (int i = 0; i < m->n_nodes; i++)
        if (strcmp(m->nodes[i].name, word) == 0)
            return i;
    long n = strtol(word, &end, 10);
    return *word && !*end && n >= 0 && n < m->n_nodes ? (int)n : -1;
}

static enum status mark_nodes(const struct machine *m, const char *names, bool *lost)
{
    for (const char *at = names;;) {
        size_t length = strcspn(at, ",");
        char word[128];
        (void)snprintf(word, sizeof word, "%.*s", (int)(length < 127 ? length : 127), at);
        int node = find_node(m, word);
        if (node < 0)
            return status_fail(
                STATUS_USAGE, "no such node as '%s' on %s: they are %s to %s, or 0 to %d", word,
                m->name, m->nodes[0].name, m->nodes[m->n_nodes - 1].name, m->n_nodes - 1);
        lost[node] = true;
        if (!at[length])
            return STATUS_OK;
        at += length + 1;
    }
}

static enum status remove_marked(const struct machine *m, const bool *lost, const char *names,
                                 struct machine **out)
{
    json_t *json = NULL;
    char name[256];
    TRY(write_text(m, &json));
    for (int i = m->n_nodes; i-- > 0;)
        if (lost[i])
            (void)json_array_remove(json_object_get(json, "nodes"), (size_t)i);
    (void)snprintf(name, sizeof name, "%.120s without %.100s", m->name, names);
    (void)json_object_set_new(json, "name", json_string(name));
    enum status st = read_text(json, m->name, out);
    json_decref(json);
    return st == STATUS_OK ? arena_copy_text((*out)->memory, m->links_note, &(*out)->links_note)
                           : st;
}

enum status machine_without(const struct machine *m, const char *names, struct machine **out)
{
    int left = 0;
    bool *lost = calloc((size_t)m->n_nodes, sizeof *lost);
    if (!lost)
        return status_no_memory((size_t)m->n_nodes);
    enum status st = mark_nodes(m, names, lost);
    for (int i = 0; i < m->n_nodes; i++)
        left += !lost[i];
    if (st == STATUS_OK && left == 0)
        st = status_fail(STATUS_USAGE, "no node is left of %s", m->name);
    if (st == STATUS_OK)
        st = remove_marked(m, lost, names, out);
    free(lost);
    return st;
}
