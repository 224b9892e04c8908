/* Parameter groups: weights that learn otherwise than the rest, chosen by their names. */
#include "base/text.h"
#include "model/graph.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool graph_param_learns(const struct graph_param *param)
{
    return param->spec.trained && !param->group.frozen;
}

unsigned graph_node_learns(const struct graph *g, const struct graph_node *node)
{
    unsigned learns = 0;
    for (int k = 0; k < node->n_params; k++)
        learns |= (unsigned)graph_param_learns(&g->params[node->first_param + k]) << k;
    return learns;
}

int64_t graph_count_frozen(const struct graph *g)
{
    int64_t count = 0;
    for (int i = 0; i < g->n_params; i++)
        count += g->params[i].group.frozen ? shape_elements(&g->params[i].spec.shape) : 0;
    return count;
}

/* What an option says of the weights that one of its globs matches. */
struct change {
    const char *option;
    bool freeze, skip_decay;
    double rate; /* the factor; 0: none */
};

static enum status change_matching(struct graph *g, const char *glob, const struct change *c)
{
    int n = 0;
    for (int i = 0; i < g->n_params; i++) {
        struct param_group *group = &g->params[i].group;
        if (!g->params[i].spec.trained || fnmatch(glob, g->params[i].name, 0) != 0)
            continue;
        group->frozen |= c->freeze;
        group->skips_decay |= c->skip_decay;
        group->rate_factor = c->rate > 0 ? c->rate : group->rate_factor;
        n++;
    }
    if (n > 0)
        return STATUS_OK;
    return status_fail(STATUS_USAGE,
                       "%s: no weight of %s is called '%s' (names are like '%s', and * stands "
                       "for any text: 'cleave show %s' lists the layers)",
                       c->option, g->name, glob, g->n_params ? g->params[0].name : "conv1.weight",
                       g->name);
}

/* "GLOB=FACTOR" is cut at the sign. */
static enum status read_rate(char *word, struct change *c)
{
    char *sign = strrchr(word, '=');
    if (!sign)
        return status_fail(STATUS_USAGE, "%s '%s': write GLOB=FACTOR, such as 'features.*=0.1'",
                           c->option, word);
    *sign = '\0';
    return text_parse_real(c->option, sign + 1, 1e-9, 1e9, &c->rate);
}

static enum status change_each(struct graph *g, const char *list, struct change c, bool has_rates)
{
    char word[256];
    for (const char *at = list; text_next_word(&at, word, sizeof word);) {
        if (strlen(word) + 1 == sizeof word)
            return status_fail(STATUS_USAGE, "%s: a glob has at most %zu characters", c.option,
                               sizeof word - 2);
        if (has_rates)
            TRY(read_rate(word, &c));
        TRY(change_matching(g, word, &c));
    }
    return STATUS_OK;
}

static enum status check_learns(const struct graph *g, const char *globs)
{
    for (int i = 0; i < g->n_params; i++)
        if (graph_param_learns(&g->params[i]))
            return STATUS_OK;
    return status_fail(STATUS_USAGE, "--freeze %s leaves no weight of %s to learn", globs, g->name);
}

/* A change that is refused changes nothing. */
static enum status change_all(struct graph *g, const char *list, struct change c, bool has_rates)
{
    size_t n = (size_t)g->n_params;
    struct param_group *before = calloc(n ? n : 1, sizeof *before);
    if (!before)
        return status_no_memory(n * sizeof *before);
    for (int i = 0; i < g->n_params; i++)
        before[i] = g->params[i].group;
    enum status st = change_each(g, list, c, has_rates);
    if (st == STATUS_OK && c.freeze)
        st = check_learns(g, list);
    for (int i = 0; i < g->n_params && st != STATUS_OK; i++)
        g->params[i].group = before[i];
    free(before);
    return st;
}

enum status graph_freeze(struct graph *g, const char *globs)
{
    return change_all(g, globs, (struct change){.option = "--freeze", .freeze = true}, false);
}

enum status graph_skip_decay(struct graph *g, const char *globs)
{
    return change_all(g, globs, (struct change){.option = "--no-decay", .skip_decay = true}, false);
}

enum status graph_scale_rates(struct graph *g, const char *factors)
{
    return change_all(g, factors, (struct change){.option = "--lr-factor"}, true);
}

/* ---- in words ---- */

/* The same text for the same groups: the number at the end tells weights apart (FNV-1a). */
const char *graph_groups_text(const struct graph *g, char *text, size_t size)
{
    int n_frozen = 0, n_without_decay = 0, n_rates = 0;
    uint32_t h = 2166136261u;
    for (int i = 0; g && i < g->n_params; i++) {
        const struct param_group *group = &g->params[i].group;
        const unsigned char *rate = (const unsigned char *)&group->rate_factor;
        n_frozen += group->frozen;
        n_without_decay += group->skips_decay;
        n_rates += group->rate_factor > 0;
        h = (h ^ (2u * group->frozen + group->skips_decay)) * 16777619u;
        for (size_t k = 0; k < sizeof group->rate_factor; k++)
            h = (h ^ rate[k]) * 16777619u;
    }
    if (n_frozen + n_without_decay + n_rates == 0)
        (void)snprintf(text, size, "none");
    else
        (void)snprintf(text, size, "%d frozen, %d without decay, %d of another rate (%08x)",
                       n_frozen, n_without_decay, n_rates, (unsigned)h);
    return text;
}
