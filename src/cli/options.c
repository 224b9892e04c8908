#include "cli/options.h"

#include "base/log.h"
#include "base/text.h"
#include "cli/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_OPTIONS = 64 };

static bool debug_asked;

/* The options among the arguments that were parsed last. */
static const char *given[MAX_OPTIONS];
static int n_given;

static bool shared_help; /* never read: --help is looked for before anything is parsed */

/* Options that every command accepts beside its own. */
static const struct option shared_options[] = {
    OPTION_FLAG("--debug", &debug_asked, "say more while running, and where an error came from"),
    OPTION_FLAG("--help", &shared_help, "this text"),
    OPTION_END,
};

bool options_debug(void)
{
    const char *text = getenv("CLEAVE_DEBUG");
    return debug_asked || (text && strcmp(text, "1") == 0);
}

bool options_given(const char *name)
{
    for (int i = 0; i < n_given; i++)
        if (strcmp(given[i], name) == 0)
            return true;
    return false;
}

/* ---- values ---- */

static enum status set_choice(const struct option *o, const char *text)
{
    for (int i = 0; o->choices[i]; i++)
        if (strcmp(o->choices[i], text) == 0) {
            *(int *)o->target = i;
            return STATUS_OK;
        }
    char what[64];
    (void)snprintf(what, sizeof what, "value of %s", o->name);
    return text_fail_unknown(what, text, o->choices);
}

static enum status set_value(const struct option *o, const char *text)
{
    switch (o->kind) {
    case OPTION_KIND_FLAG:
        *(bool *)o->target = true;
        return STATUS_OK;
    case OPTION_KIND_INTEGER:
        return text_parse_integer(o->name, text, o->least, o->most, o->target);
    case OPTION_KIND_REAL:
        return text_parse_real(o->name, text, o->real_least, o->real_most, o->target);
    case OPTION_KIND_TEXT:
        if (!*text)
            return status_fail(STATUS_USAGE, "%s must not be empty", o->name);
        *(const char **)o->target = text;
        return STATUS_OK;
    case OPTION_KIND_CHOICE:
        return set_choice(o, text);
    case OPTION_KIND_NONE:
        break;
    }
    return status_fail(STATUS_FAILED, "%s: a bad row in the table of options", o->name);
}

static enum status set_presets(const struct option *options)
{
    for (const struct option *o = options; o->kind != OPTION_KIND_NONE; o++) {
        if (o->kind == OPTION_KIND_FLAG)
            *(bool *)o->target = false;
        else if (o->preset)
            TRY(set_value(o, o->preset));
    }
    return STATUS_OK;
}

/* ---- finding ---- */

static const struct option *find_in(const struct option *options, const char *name, size_t length)
{
    for (const struct option *o = options; o->kind != OPTION_KIND_NONE; o++)
        if (strlen(o->name) == length && memcmp(o->name, name, length) == 0)
            return o;
    return NULL;
}

/* Names that other programs use. Of several meanings the first counts that the command has. */
static const struct {
    const char *typed, *meant;
} synonyms[] = {
    {"--learning-rate", "--lr"},
    {"--num-epochs", "--epochs"},
    {"--num-workers", "--workers"},
    {"--strategy", "--plan"},
    {"--parallel", "--plan"},
    {"--output", "-o"},
    {"--output", "--out"},
    {"--out", "-o"},
    {"--gpu", "--backend"},
    {"--gpus", "--backend"},
    {"--cuda", "--backend"},
    {"--device", "--backend"},
    {"--cluster", "--machine"},
    {"--iterations", "--steps"},
    {"--wd", "--weight-decay"},
    {"-b", "--batch"},
    {"-e", "--epochs"},
    {"-j", "--threads"},
    {"-n", "--workers"},
    {"-q", "--quiet"},
    {"-v", "--debug"},
};

static const char *find_synonym(const char *word, const char *const *names)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        for (int k = 0; strcmp(synonyms[i].typed, word) == 0 && names[k]; k++)
            if (strcmp(synonyms[i].meant, names[k]) == 0)
                return names[k];
    return NULL;
}

/* --model lenet5, where MODEL goes without a name. */
static const struct positional *find_unnamed(const struct option_set *set, const char *word)
{
    for (const struct positional *p = set->positionals; p->name; p++)
        if (strncmp(word, "--", 2) == 0 && strcasecmp(word + 2, p->name) == 0)
            return p;
    return NULL;
}

static enum status fail_unknown(const struct option_set *set, const char *name, size_t length)
{
    const char *names[MAX_OPTIONS + 1];
    int n = 0;
    const struct option *const tables[] = {set->options, shared_options};
    for (int t = 0; t < 2; t++)
        for (const struct option *o = tables[t]; o->kind != OPTION_KIND_NONE; o++)
            if (n < MAX_OPTIONS)
                names[n++] = o->name;
    names[n] = NULL;
    char word[80];
    (void)snprintf(word, sizeof word, "%.*s", (int)(length < 79 ? length : 79), name);
    const char *near = find_synonym(word, names);
    const struct positional *unnamed = find_unnamed(set, word);
    if (!near)
        near = text_nearest(word, names);
    if (unnamed)
        return status_fail(STATUS_USAGE,
                           "unknown option '%s': %s goes without one: 'cleave %s %s [options]'",
                           word, unnamed->name, set->command, unnamed->name);
    if (near)
        return status_fail(STATUS_USAGE,
                           "unknown option '%s': did you mean '%s'? ('cleave %s --help' lists all)",
                           word, near, set->command);
    return status_fail(STATUS_USAGE, "unknown option '%s' ('cleave %s --help' lists all)", word,
                       set->command);
}

/* ---- parsing ---- */

struct arguments {
    int argc, next;
    char **argv;
};

static enum status fail_no_value(const struct option_set *set, const struct option *o)
{
    char choices[96];
    return status_fail(STATUS_USAGE, "%s needs a value: %s %s ('cleave %s --help' says more)",
                       o->name, o->name, help_value(o, choices, sizeof choices), set->command);
}

static enum status parse_option(const struct option_set *set, struct arguments *a)
{
    const char *argument = a->argv[a->next++];
    size_t length = strcspn(argument, "=");
    const struct option *o = find_in(set->options, argument, length);
    if (!o)
        o = find_in(shared_options, argument, length);
    if (!o)
        return fail_unknown(set, argument, length);
    if (n_given < MAX_OPTIONS && !options_given(o->name))
        given[n_given++] = o->name;
    if (o->kind == OPTION_KIND_FLAG) {
        if (argument[length])
            return status_fail(STATUS_USAGE, "%s takes no value", o->name);
        return set_value(o, NULL);
    }
    if (argument[length])
        return set_value(o, argument + length + 1);
    if (a->next == a->argc || strncmp(a->argv[a->next], "--", 2) == 0)
        return fail_no_value(set, o);
    return set_value(o, a->argv[a->next++]);
}

static enum status take_listed(const struct positional_list *list, const char *text)
{
    if (*list->n == list->most)
        return status_fail(STATUS_USAGE, "%s: at most %d can be given", list->name, list->most);
    list->targets[(*list->n)++] = text;
    return STATUS_OK;
}

static enum status take_positional(const struct option_set *set, const char *text, int *n_taken)
{
    const struct positional *p = &set->positionals[*n_taken];
    char option[64]; /* cleave machine 4x4:p100 */
    (void)snprintf(option, sizeof option, "--%s", set->command);
    if (!p->name && !set->list && find_in(set->options, option, strlen(option)))
        return status_fail(STATUS_USAGE, "unexpected argument '%.80s': did you mean '%s %.80s'?",
                           text, option, text);
    if (!p->name && !set->list)
        return status_fail(STATUS_USAGE,
                           "unexpected argument '%.80s' ('cleave %s --help' says more)", text,
                           set->command);
    if (!*text)
        return status_fail(STATUS_USAGE, "%s must not be empty",
                           p->name ? p->name : set->list->name);
    if (!p->name)
        return take_listed(set->list, text);
    *p->target = text;
    ++*n_taken;
    return STATUS_OK;
}

static enum status check_given(const struct option_set *set, int n_taken)
{
    const struct positional *p = &set->positionals[n_taken];
    int missing = 0;
    while (p[missing].name)
        missing++;
    if (missing <= set->n_optional && (!set->list || *set->list->n > 0))
        return STATUS_OK;
    return status_fail(STATUS_USAGE, "%s is missing: %s ('cleave %s --help' shows an example)",
                       p->name ? p->name : set->list->name, p->name ? p->help : set->list->help,
                       set->command);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

enum status options_parse(const struct option_set *set, int argc, char **argv, bool *help)
{
    *help = help_get_form() != HELP_TEXT || asks_for_help(argc, argv);
    if (*help) {
        help_print_options(set, shared_options, argc, argv);
        return STATUS_OK;
    }
    TRY(set_presets(set->options));
    n_given = 0;
    struct arguments a = {.argc = argc, .next = 1, .argv = argv};
    int n_taken = 0;
    bool options_ended = false;
    while (a.next < argc) {
        const char *text = argv[a.next];
        if (!options_ended && strcmp(text, "--") == 0) {
            options_ended = true;
            a.next++;
        } else if (!options_ended && text[0] == '-' && text[1]) {
            TRY(parse_option(set, &a));
        } else {
            TRY(take_positional(set, text, &n_taken));
            a.next++;
        }
    }
    TRY(check_given(set, n_taken));
    if (options_debug())
        log_set_level(LOG_DEBUG);
    return STATUS_OK;
}
