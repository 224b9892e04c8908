/* command_profile.c: `cleave profile`: measured costs, listed, moved and forgotten. */
#include "profile/profile.h"

#include "base/results.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct profile_options {
    const char *file;   /* --profile; NULL: the usual place */
    const char *other;  /* that is imported */
    const char *output; /* NULL: stdout */
    const char *device;
    int64_t threads, load; /* -1: any */
    bool all, json;
};

#define PROFILE_OPTION(o)                              \
    OPTION_TEXT("--profile", "FILE", &(o)->file, NULL, \
                "the profile [$CLEAVE_PROFILE or ~/.cache/cleave/profile.db]")

static const struct positional no_positionals[] = {{0}};

static enum status get_path(const struct profile_options *o, char path[PATH_MAX])
{
    if (!o->file)
        return profile_default_path(path, PATH_MAX);
    int length = snprintf(path, PATH_MAX, "%s", o->file);
    if (length < 0 || length >= PATH_MAX)
        return status_fail(STATUS_USAGE, "--profile: the path is too long");
    return STATUS_OK;
}

/* For commands that only make sense where something was measured: makes no file. One that was named
 * must be there; in the usual place there may be none yet. */
static enum status open_existing(const struct profile_options *o, char path[PATH_MAX],
                                 profile **out)
{
    TRY(get_path(o, path));
    if (access(path, F_OK) == 0)
        return profile_open(path, out);
    if (o->file)
        return status_fail(STATUS_FAILED, "%s: cannot open the profile: %s", path, strerror(errno));
    return profile_open(NULL, out);
}

/* ---- list ---- */

static enum status parse_list(int argc, char **argv, struct profile_options *o, bool *help)
{
    const struct option options[] = {
        PROFILE_OPTION(o),
        OPTION_FLAG("--json", &o->json, "print JSON"),
        OPTION_END,
    };
    const struct option_set set = {
        .command = "profile list",
        .about =
            "Prints the settings of which costs are known: the device with its library, the\n"
            "threads of a worker, and how many workers of the host computed at the same time.\n"
            "Disturbed costs were measured beside other programs; the next prediction on a\n"
            "calm host measures them again.",
        .positionals = no_positionals,
        .options = options,
        .examples = "  cleave profile list\n"
                    "  cleave profile list --profile cluster.db --json\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status add_setting(const struct profile_summary *s, void *user)
{
    RESULTS_ROW(user, v_text(s->setting.device), v_int(s->setting.threads), v_int(s->setting.load),
                v_int(s->n_entries), v_int(s->n_disturbed), v_text(s->measured));
    return STATUS_OK;
}

static enum status command_profile_list(int argc, char **argv)
{
    struct profile_options o = {0};
    char path[PATH_MAX];
    bool help;
    profile *p;
    TRY(parse_list(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(open_existing(&o, path, &p));
    static const struct field fields[] = {{"device", "device", NULL, 0, 16},
                                          {"threads", "threads", ">", 0, 0},
                                          {"load", "load", ">", 0, 0},
                                          {"costs", "entries", ">", 0, 0},
                                          {"disturbed", "disturbed", ">", 0, 0},
                                          {"last measured", "measured", NULL, 0, 0},
                                          {0}};
    struct results r;
    enum status st = results_open(&r, o.json, NULL);
    results_put(&r, "profile", v_text(path));
    results_table(&r, "settings", fields, FOR_PEOPLE | FOR_JSON);
    if (st == STATUS_OK)
        st = profile_list(p, add_setting, &r);
    results_table_end(&r);
    profile_close(p);
    return results_close(&r, st);
}

/* ---- export ---- */

static enum status parse_export(int argc, char **argv, struct profile_options *o, bool *help)
{
    const struct option options[] = {
        PROFILE_OPTION(o),
        OPTION_TEXT("-o", "FILE", &o->output, NULL, "where it goes [standard output]"),
        OPTION_END,
    };
    const struct option_set set = {
        .command = "profile export",
        .about = "Writes a profile as text: one line per cost, sorted, fields set apart by tabs,\n"
                 "numbers to the last bit.",
        .positionals = no_positionals,
        .options = options,
        .examples = "  cleave profile export -o costs.txt\n"
                    "  cleave profile export | grep conv2d\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status export_to(FILE *out, void *profile_)
{
    return profile_export(profile_, out);
}

static enum status command_profile_export(int argc, char **argv)
{
    struct profile_options o = {0};
    char path[PATH_MAX];
    bool help;
    profile *p;
    TRY(parse_export(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(get_path(&o, path));
    TRY(whole_file_check_input("-o", o.output, path));
    TRY(open_existing(&o, path, &p));
    enum status st =
        o.output ? whole_file_write(o.output, export_to, p) : profile_export(p, stdout);
    profile_close(p);
    return st;
}

/* ---- import ---- */

static enum status parse_import(int argc, char **argv, struct profile_options *o, bool *help)
{
    const struct option options[] = {PROFILE_OPTION(o), OPTION_END};
    const struct positional positionals[] = {
        {"OTHER", &o->other, "what 'cleave profile export' wrote, or another profile"}, {0}};
    const struct option_set set = {
        .command = "profile import",
        .about = "Adds what another profile holds, given as text or as its file. Costs that are\n"
                 "known already stay as they are.",
        .positionals = positionals,
        .options = options,
        .examples = "  cleave profile import costs.txt\n"
                    "  cleave profile import node7.db --profile cluster.db\n",
    };
    return options_parse(&set, argc, argv, help);
}

static enum status command_profile_import(int argc, char **argv)
{
    struct profile_options o = {0};
    char path[PATH_MAX];
    int64_t added = 0;
    bool help;
    profile *p;
    TRY(parse_import(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(get_path(&o, path));
    TRY(profile_open(path, &p));
    enum status st = profile_import(p, o.other, &added);
    profile_close(p);
    if (st == STATUS_OK)
        printf("%s: %lld new from %s\n", path, (long long)added, o.other);
    return st;
}

/* ---- forget ---- */

static enum status parse_forget(int argc, char **argv, struct profile_options *o, bool *help)
{
    const struct option options[] = {
        PROFILE_OPTION(o),
        OPTION_TEXT("--device", "TEXT", &o->device, NULL, "settings whose device contains this"),
        OPTION_INTEGER("--threads", "N", &o->threads, 0, INT_MAX, NULL, "with so many threads"),
        OPTION_INTEGER("--load", "N", &o->load, 1, INT_MAX, NULL,
                       "with so many workers computing at the same time"),
        OPTION_FLAG("--all", &o->all, "everything"),
        OPTION_END,
    };
    const struct option_set set = {
        .command = "profile forget",
        .about = "Forgets measured costs: those of the settings for which all that is given is\n"
                 "true, or everything. They are measured again when they are needed.",
        .positionals = no_positionals,
        .options = options,
        .examples = "  cleave profile forget --device 'oneDNN 2.6'\n"
                    "  cleave profile forget --threads 4 --load 2\n"
                    "  cleave profile forget --all\n",
    };
    return options_parse(&set, argc, argv, help);
}

struct forgetting {
    const struct profile_options *o;
    profile *p;
    long long n_settings, n_entries;
};

static bool is_meant(const struct profile_options *o, const struct profile_setting *s)
{
    return (!o->device || strstr(s->device, o->device)) &&
           (o->threads < 0 || s->threads == o->threads) && (o->load < 0 || s->load == o->load);
}

static enum status forget_setting(const struct profile_summary *s, void *user)
{
    struct forgetting *f = user;
    if (!is_meant(f->o, &s->setting))
        return STATUS_OK;
    TRY(profile_forget(f->p, &s->setting));
    f->n_settings++;
    f->n_entries += s->n_entries;
    return STATUS_OK;
}

static enum status forget(const struct profile_options *o, profile *p, const char *path)
{
    struct forgetting f = {.o = o, .p = p};
    TRY(profile_list(p, forget_setting, &f));
    if (o->all)
        TRY(profile_forget(p, NULL)); /* costs without a setting, too */
    else if (f.n_settings == 0)
        return status_fail(STATUS_FAILED,
                           "%s: holds no such setting: 'cleave profile list' prints them", path);
    printf("%s: forgot %lld cost%s of %lld setting%s\n", path, f.n_entries,
           f.n_entries == 1 ? "" : "s", f.n_settings, f.n_settings == 1 ? "" : "s");
    return STATUS_OK;
}

static enum status command_profile_forget(int argc, char **argv)
{
    struct profile_options o = {.threads = -1, .load = -1};
    char path[PATH_MAX];
    bool help;
    profile *p;
    TRY(parse_forget(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    bool chosen = o.device || o.threads >= 0 || o.load >= 0;
    if (o.all == chosen)
        return status_fail(STATUS_USAGE,
                           "say what to forget: --all, or some of --device, --threads and --load");
    TRY(open_existing(&o, path, &p));
    enum status st = forget(&o, p, path);
    profile_close(p);
    return st;
}

/* ---- the command ---- */

enum status command_profile(int argc, char **argv)
{
    static const struct command commands[] = {
        {"list", "the settings of which costs are known", command_profile_list},
        {"export", "write a profile as text", command_profile_export},
        {"import", "add what another profile holds", command_profile_import},
        {"forget", "have costs measured again", command_profile_forget},
        {0},
    };
    static const char *const options[] = {"--help", NULL};
    static const struct command_set set = {
        .path = "cleave profile",
        .about = "A profile is a file of what instructions cost, measured once per device and\n"
                 "setting, from which training steps are predicted.\n",
        .examples = "  cleave profile list\n"
                    "  cleave profile export -o costs.txt\n"
                    "  cleave profile import costs.txt --profile other.db\n",
        .commands = commands,
        .options = options,
        .for_networks = "list",
    };
    return command_dispatch(&set, argc, argv);
}
