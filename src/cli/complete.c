/* complete.c: how a line that is being typed may go on, for the shells (tools/completion). */
#include "backend/backend.h"
#include "cli/help.h"
#include "data/spec.h"
#include "machine/machine.h"
#include "model/network.h"
#include "plan/plan.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The word to complete. The part before `rest` is kept as it is: "--data=", "lenet5,". */
struct word {
    const char *whole, *rest;
};

static void offer(const struct word *w, const char *text, const char *about)
{
    if (strncmp(text, w->rest, strlen(w->rest)) == 0)
        printf("%.*s%s\t%s\n", (int)(w->rest - w->whole), w->whole, text, about);
}

static void offer_names(const struct word *w, const char *const *names)
{
    for (; *names; names++)
        offer(w, *names, "");
}

/* The shell adds the names; `path` points into the word. */
static void offer_paths(const struct word *w, const char *path, const char *what)
{
    printf("\t%s\t%.*s\n", what, (int)(path - w->whole), w->whole);
}

/* ---- values, by their names in the help ---- */

static void offer_files(const struct word *w)
{
    offer_paths(w, w->rest, "files");
}

static void offer_folders(const struct word *w)
{
    offer_paths(w, w->rest, "folders");
}

static void offer_models(const struct word *w)
{
    const struct network *network;
    for (const char *const *name = network_names(); *name; name++)
        if (network_find(*name, &network) == STATUS_OK)
            offer(w, *name, network->about);
}

static void offer_strategies(const struct word *w)
{
    for (const struct plan_strategy *s = plan_strategies(); s->name; s++)
        offer(w, s->name, s->about);
}

static void offer_plans(const struct word *w)
{
    offer_strategies(w);
    offer_files(w);
}

static void offer_backends(const struct word *w)
{
    for (const struct backend *const *b = backend_list(); *b; b++)
        offer(w, (*b)->name, "");
}

/* Behind "imagefolder:" and the like the names of files go on. */
static void offer_data(const struct word *w)
{
    for (const char *const *name = spec_beginnings(); *name; name++) {
        size_t length = strlen(*name);
        bool takes_path = (*name)[length - 1] == ':' && strcmp(*name, "synthetic:") != 0;
        if (takes_path && strncmp(w->rest, *name, length) == 0)
            offer_paths(w, w->rest + length, strcmp(*name, "packed:") ? "folders" : "files");
        else
            offer(w, *name, "");
    }
}

static enum status offer_listed(const struct word *w,
                                enum status (*list)(arena *memory, const char *const **out))
{
    arena *memory;
    const char *const *names;
    TRY(arena_create(&memory));
    enum status st = list(memory, &names);
    if (st == STATUS_OK)
        offer_names(w, names);
    arena_destroy(memory);
    return st;
}

static void offer_kinds(const struct word *w)
{
    enum status st = offer_listed(w, machine_kind_names);
    (void)st; /* then nothing is offered */
}

/* "4x4:" of a string of devices; NULL: it is none. */
static const char *after_counts(const char *text)
{
    const char *c = text + strspn(text, "0123456789");
    if (c == text || *c != 'x')
        return NULL;
    const char *d = c + 1 + strspn(c + 1, "0123456789");
    return d > c + 1 && *d == ':' ? d + 1 : NULL;
}

static void offer_machines(const struct word *w)
{
    const char *kind = after_counts(w->rest);
    if (kind) {
        const struct word inner = {.whole = w->whole, .rest = kind};
        offer_kinds(&inner);
        return;
    }
    offer(w, "local", "this host");
    enum status st = offer_listed(w, machine_names);
    (void)st; /* then they are left out */
    offer_files(w);
}

static void offer_schedules(const struct word *w)
{
    static const char *const names[] = {"constant", "step:", "cosine", "cosine:", NULL};
    offer_names(w, names);
}

static const struct {
    const char *value;
    void (*offer)(const struct word *w);
} values[] = {
    {"MODEL", offer_models},     {"STRATEGY", offer_strategies}, {"PLAN", offer_plans},
    {"SPEC", offer_data},        {"MACHINE", offer_machines},    {"KIND", offer_kinds},
    {"BACKEND", offer_backends}, {"SCHEDULE", offer_schedules},  {"FILE", offer_files},
    {"PATH", offer_files},       {"MEASURED", offer_files},      {"DIR", offer_folders},
};

/* One alternative of "PLAN|auto": a kind of value, or, in small letters, the value itself. */
static void offer_alternative(const struct word *w, const char *name)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(values[i].value, name) == 0)
            values[i].offer(w);
    if (islower((unsigned char)name[0]))
        offer(w, name, "");
}

/* `value` is as in the help: "FILE", "PLAN|auto"; "MODEL,..." is a list with commas. */
static void offer_value(struct word w, const char *value)
{
    size_t length = strlen(value);
    const char *comma = strrchr(w.rest, ',');
    bool listed = length > 4 && strcmp(value + length - 4, ",...") == 0;
    if (listed && comma)
        w.rest = comma + 1;
    length -= listed ? 4 : 0;
    for (size_t begin = 0, end; begin < length; begin = end + 1) {
        char name[32];
        end = begin + strcspn(value + begin, "|");
        end = end < length ? end : length;
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - begin), value + begin);
        offer_alternative(&w, name);
    }
}

static void offer_option_value(struct word w, const struct option *o)
{
    if (o->kind == OPTION_KIND_CHOICE)
        offer_names(&w, o->choices);
    else if (o->kind != OPTION_KIND_FLAG && o->value)
        offer_value(w, o->value);
}

/* ---- the line ---- */

struct line {
    const struct option *tables[2];
    const struct option *awaits; /* the option whose value the word is; NULL: none */
    int n_positionals;           /* that were given */
    bool options_ended;          /* by -- */
};

static const struct option *find(const struct line *l, const char *name, size_t length)
{
    for (int t = 0; t < 2; t++)
        for (const struct option *o = l->tables[t]; o->kind != OPTION_KIND_NONE; o++)
            if (strlen(o->name) == length && strncmp(o->name, name, length) == 0)
                return o;
    return NULL;
}

static void read_word(struct line *l, const char *word)
{
    if (l->awaits) {
        l->awaits = NULL;
    } else if (!l->options_ended && strcmp(word, "--") == 0) {
        l->options_ended = true;
    } else if (!l->options_ended && word[0] == '-' && word[1]) {
        const struct option *o = find(l, word, strlen(word));
        l->awaits = o && o->kind != OPTION_KIND_FLAG ? o : NULL;
    } else {
        l->n_positionals++;
    }
}

static void offer_options(const struct line *l, const struct word *w)
{
    for (int t = 0; t < 2; t++)
        for (const struct option *o = l->tables[t]; o->kind != OPTION_KIND_NONE; o++)
            offer(w, o->name, o->help);
}

static void offer_positional(const struct option_set *set, const struct line *l,
                             const struct word *w)
{
    const struct positional *p = set->positionals;
    for (int i = 0; i < l->n_positionals && p->name; i++)
        p++;
    if (p->name)
        offer_value(*w, p->name);
    else if (set->list)
        offer_value(*w, set->list->name);
    else if (!l->options_ended)
        offer_options(l, w);
}

void complete_options(const struct option_set *set, const struct option *shared, int argc,
                      char **argv)
{
    struct line l = {.tables = {set->options, shared}};
    struct word w = {.whole = "", .rest = ""};
    for (int i = 1; i + 1 < argc; i++)
        read_word(&l, argv[i]);
    if (argc > 1)
        w = (struct word){.whole = argv[argc - 1], .rest = argv[argc - 1]};
    size_t equals = strcspn(w.whole, "=");
    if (l.awaits) {
        offer_option_value(w, l.awaits);
    } else if (w.whole[0] != '-' || l.options_ended) {
        offer_positional(set, &l, &w);
    } else if (w.whole[equals]) {
        const struct option *o = find(&l, w.whole, equals);
        w.rest = w.whole + equals + 1;
        if (o)
            offer_option_value(w, o);
    } else {
        offer_options(&l, &w);
    }
}

void complete_commands(const struct command_set *set, const char *text)
{
    const struct word w = {.whole = text, .rest = text};
    for (const struct command *c = set->commands; c->name; c++)
        offer(&w, c->name, c->about);
    if (text[0] == '-')
        offer_names(&w, set->options);
}
