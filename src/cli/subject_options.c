#include "cli/subject_options.h"

#include "base/log.h"
#include "base/text.h"
#include "cli/network_help.h"
#include "cli/options.h"
#include "cli/run_options.h"
#include "comm/comm.h"
#include "model/network.h"
#include "runtime/plan_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the file ---- */

/* No network has such a name, and a network's file would be no plan. */
static bool is_plan_file(const char *text)
{
    const struct network *network;
    if (network_find(text, &network) == STATUS_OK)
        return false;
    status_clear();
    return plan_is_file(text);
}

static enum status find_model(const struct subject_file *s, const char *command, const char **model)
{
    const struct network *network;
    if (!*model)
        *model = s->made.model;
    if (!*model && s->path)
        return status_fail(STATUS_USAGE,
                           "%s: does not say which network it is for: 'cleave %s MODEL --plan "
                           "%.200s', with --data and --batch",
                           s->path, command, s->path);
    if (!*model)
        return status_fail(STATUS_USAGE,
                           "MODEL is missing: %s ('cleave %s --help' shows an example)",
                           network_names_help(), command);
    TRY(network_find(*model, &network));
    *model = network->name;
    if (s->made.model && strcmp(s->made.model, *model) != 0)
        return status_fail(STATUS_USAGE,
                           "%s: the plan is for %.80s, not for %s ('cleave plan %s -o FILE' makes "
                           "one)",
                           s->path, s->made.model, *model, *model);
    return STATUS_OK;
}

enum status subject_open(struct subject_file *s, const char *command, const char **model,
                         const char **plan)
{
    *s = (struct subject_file){0};
    TRY(arena_create(&s->memory));
    if (*model && is_plan_file(*model)) {
        if (*plan)
            return status_fail(STATUS_USAGE, "%s and --plan %s are two plans: give one of both",
                               *model, *plan);
        *plan = *model;
        *model = NULL;
    }
    if (*plan && plan_is_file(*plan)) {
        s->path = *plan;
        TRY(plan_read_made_for(s->path, s->memory, &s->made));
    }
    return find_model(s, command, model);
}

void subject_close(struct subject_file *s)
{
    arena_destroy(s->memory);
    s->memory = NULL;
}

/* ---- taking ---- */

static void add(char *list, size_t size, const char *what, const char *value)
{
    size_t used = strlen(list);
    (void)snprintf(list + used, size - used, "%s%s%s%.80s", used ? ", " : "", what,
                   *what ? " " : "", value);
}

static void note(struct subject_file *s, const char *what, const char *was, const char *is)
{
    add(s->was, sizeof s->was, what, was);
    add(s->is, sizeof s->is, "", is);
}

static void take_text(struct subject_file *s, const char *option, const char *made,
                      const char **value)
{
    if (!made)
        return;
    if (!options_given(option))
        *value = made;
    else if (strcmp(made, *value) != 0)
        note(s, option + 2, made, *value);
}

static enum status take_choice(struct subject_file *s, const char *option, const char *made,
                               const char *const *names, int *value)
{
    int number = made ? text_find(made, names) : -1;
    char what[64];
    if (!made)
        return STATUS_OK;
    (void)snprintf(what, sizeof what, "%s of %.40s", option + 2, s->path);
    if (number < 0)
        return text_fail_unknown(what, made, names);
    if (!options_given(option))
        *value = number;
    else if (*value != number)
        note(s, option + 2, made, names[*value]);
    return STATUS_OK;
}

void subject_take_data(struct subject_file *s, const char **data, int64_t *batch)
{
    take_text(s, "--data", s->made.data, data);
    if (!s->made.batch)
        return;
    if (!options_given("--batch")) {
        *batch = s->made.batch;
    } else if (*batch != s->made.batch) {
        char was[32], is[32];
        (void)snprintf(was, sizeof was, "%lld", (long long)s->made.batch);
        (void)snprintf(is, sizeof is, "%lld", (long long)*batch);
        note(s, "batch", was, is);
    }
}

enum status subject_take_run(struct subject_file *s, struct forecast_options *o)
{
    subject_take_data(s, &o->data, &o->batch);
    TRY(take_choice(s, "--precision", s->made.precision, precision_names, &o->run.precision));
    return take_choice(s, "--optimizer", s->made.optimizer, run_optimizer_names, &o->run.optimizer);
}

/* The bytes of a file that describes the machine. */
static enum status find_machine_digest(const char *machine, char digest[PLAN_DIGEST_BYTES])
{
    char *text;
    size_t n_bytes;
    digest[0] = '\0';
    if (!machine_is_file(machine))
        return STATUS_OK;
    TRY(text_read_file(machine, "machine", &text, &n_bytes));
    (void)plan_digest_bytes(text, n_bytes, digest);
    free(text);
    return STATUS_OK;
}

static enum status check_machine(struct subject_file *s, const struct forecast_options *o)
{
    char digest[PLAN_DIGEST_BYTES];
    if (!s->made.machine_digest || strcmp(o->machine, s->made.machine) != 0)
        return STATUS_OK;
    TRY(find_machine_digest(o->machine, digest));
    if (strcmp(digest, s->made.machine_digest) != 0)
        note(s, o->machine, "as it was then", "as it is now");
    return STATUS_OK;
}

enum status subject_take(struct subject_file *s, struct forecast_options *o)
{
    const struct plan_made_for *made = &s->made;
    TRY(subject_take_run(s, o));
    take_text(s, "--machine", made->machine, &o->machine);
    TRY(check_machine(s, o));
    bool same = (!made->machine || strcmp(o->machine, made->machine) == 0) &&
                (!made->data || strcmp(o->data, made->data) == 0);
    if (made->calibrate <= 0)
        return STATUS_OK;
    char was[32], is[32];
    (void)snprintf(was, sizeof was, "%g", made->calibrate);
    (void)snprintf(is, sizeof is, "%g", o->calibrate);
    if (!options_given("--calibrate") && !same) {
        note(s, "calibrate", was, "uncalibrated");
    } else if (!options_given("--calibrate")) {
        o->calibrate = made->calibrate;
        o->calibrate_batch =
            options_given("--calibrate-batch") ? o->calibrate_batch : made->calibrate_batch;
    } else if (o->calibrate != made->calibrate) {
        note(s, "calibrate", was, is);
    }
    return STATUS_OK;
}

/* Of the processes of an MPI job one speaks for all. */
static bool is_speaker(void)
{
    int rank, size;
    return !comm_mpi_launched(&rank, &size) || rank == 0;
}

void subject_tell(const struct subject_file *s)
{
    if (s->was[0] && is_speaker())
        log_note("%s was made for %s; the command line wins: %s", s->path, s->was, s->is);
}

/* ---- defaults ---- */

static const char SMALL_DATA[] = "fashion-mnist", LARGE_DATA[] = "imagenet";

enum status subject_settle_data(const char *model, const char **data)
{
    const struct network *network;
    struct dataset_info info;
    if (*data)
        return STATUS_OK;
    TRY(network_find(model, &network));
    *data = network->small ? SMALL_DATA : LARGE_DATA;
    if (network->small || !is_speaker())
        return STATUS_OK;
    TRY(dataset_describe(*data, &info));
    log_note("no --data: %s takes the shape of %s, %dx%dx%d and %d classes", network->name, *data,
             info.channels, info.height, info.width, info.classes);
    return STATUS_OK;
}

enum status subject_settle_training_data(const char *model, const char **data)
{
    const struct network *network;
    if (*data)
        return STATUS_OK;
    TRY(network_find(model, &network));
    if (!network->small)
        return status_fail(STATUS_USAGE,
                           "%s needs --data to train on: imagefolder:DIR or cifar10:DIR with your "
                           "images, or made-up ones: synthetic:imagenet, synthetic:cifar10",
                           network->name);
    *data = SMALL_DATA;
    return STATUS_OK;
}

/* ---- noting ---- */

enum status subject_note(const struct forecast_options *o, const struct graph *graph, bool machine,
                         struct plan *plan)
{
    char digest[PLAN_DIGEST_BYTES] = "";
    struct plan_made_for made = {.data = o->data,
                                 .precision = precision_names[o->run.precision],
                                 .optimizer = run_optimizer_names[o->run.optimizer]};
    if (machine) {
        TRY(find_machine_digest(o->machine, digest));
        made.machine = o->machine;
        made.machine_digest = digest[0] ? digest : NULL;
        made.calibrate = o->calibrate;
        made.calibrate_batch = o->calibrate <= 0    ? 0
                               : o->calibrate_batch ? o->calibrate_batch
                                                    : graph->batch;
    }
    return plan_set_made_for(plan, graph, &made);
}
