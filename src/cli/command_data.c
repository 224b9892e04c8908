/* command_data.c: `cleave data check`: reads every image of a dataset (data/check.h). */
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/timer.h"
#include "cli/command.h"
#include "cli/options.h"
#include "data/check.h"

#include <stdio.h>

struct check_request {
    const char *spec;
    int64_t threads;
    bool json;
};

static const char *const split_names[] = {[DATASET_TRAIN] = "train", [DATASET_TEST] = "test"};

static enum status parse(int argc, char **argv, struct check_request *r, bool *help)
{
    *r = (struct check_request){0};
    const struct option options[] = {
        OPTION_INTEGER("--threads", "N", &r->threads, 1, 64, NULL, "that read [all cores]"),
        OPTION_FLAG("--json", &r->json, "print one JSON object"),
        OPTION_END,
    };
    const struct positional positionals[] = {
        {"SPEC", &r->spec,
         "the data, as for --data: imagefolder:DIR[@SIZE], mnist:DIR, "
         "fashion-mnist[:DIR], cifar10:DIR, packed:FILE[,TESTFILE]"},
        {0}};
    const struct option_set set = {
        .command = "data check",
        .about = "Reads every image of a dataset, training and test, and lists those that cannot\n"
                 "be read and why; then sizes, mean and deviation. Exit code 1 if there is one.",
        .positionals = positionals,
        .options = options,
        .examples = "  cleave data check imagefolder:photos@128\n"
                    "  cleave data check packed:photos.pack,photos-test.pack --json\n"
                    "  cleave train resnet18 --data imagefolder:photos@128 --skip-corrupt 20\n",
    };
    return options_parse(&set, argc, argv, help);
}

static void show_progress(void *user, int64_t done, int64_t total)
{
    static struct progress progress;
    const char *spec = user;
    progress_show(&progress, total > 0 ? (double)done / (double)total : 0,
                  "reading %s: %lld of %lld images", spec, (long long)done, (long long)total);
}

/* ---- results ---- */

static json_t *numbers_json(const double *numbers, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, output_number(numbers[i]));
    return list;
}

static json_t *corrupt_json(const struct data_check *c)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < c->n_corrupt; i++) {
        const struct data_check_sample *s = &c->corrupt[i];
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:I, s:s}", "split", split_names[s->split],
                                              "index", (json_int_t)s->index, "reason", s->why));
    }
    return list;
}

static enum status print_json(const struct check_request *r, const struct data_check *c, double s)
{
    return output_json(json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:f}", "data", r->spec,
        "name", c->info.name, "channels", c->info.channels, "height", c->info.height, "width",
        c->info.width, "classes", c->info.classes, "train_images", (json_int_t)c->n[DATASET_TRAIN],
        "test_images", (json_int_t)c->n[DATASET_TEST], "corrupt_images", (json_int_t)c->n_corrupt,
        "corrupt", corrupt_json(c), "mean", numbers_json(c->mean, c->n_channels), "deviation",
        numbers_json(c->deviation, c->n_channels), "seconds", s));
}

static void print_numbers(const char *what, const double *numbers, int n, const char *note)
{
    char text[120] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %.4f", numbers[i]);
    output_line(12, "%-10s%s%s", what, text, note);
}

static enum status print_splits(const struct data_check *c)
{
    static const struct table_column columns[] = {
        {"images", TABLE_LEFT, 0}, {"number", TABLE_RIGHT, 0}, {"corrupt", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 3, &t));
    for (int split = DATASET_TRAIN; split <= DATASET_TEST; split++) {
        table_style(t, c->n_bad[split] > 0 ? STYLE_BAD : STYLE_PLAIN);
        table_cell(t, "%s", split_names[split]);
        table_cell(t, "%lld", (long long)c->n[split]);
        table_cell(t, "%lld", (long long)c->n_bad[split]);
    }
    return table_finish(t, stdout);
}

static enum status print_text(const struct check_request *r, const struct data_check *c, double s)
{
    char time[32];
    output_line(2, "%s: images of %dx%dx%d in %d class%s, read in %s", r->spec, c->info.channels,
                c->info.height, c->info.width, c->info.classes, c->info.classes == 1 ? "" : "es",
                text_seconds(time, sizeof time, s));
    printf("\n");
    TRY(print_splits(c));
    if (c->n_channels > 0) {
        bool made_up = c->usual_deviation[0] == 0;
        const char *note = made_up ? "" : "  (pixels from 0 to 1, training images)";
        printf("\n");
        print_numbers("mean", c->mean, c->n_channels, note);
        print_numbers("deviation", c->deviation, c->n_channels, "");
        if (!made_up) {
            print_numbers("takes off", c->usual_mean, c->n_channels, "  (before training)");
            print_numbers("divides by", c->usual_deviation, c->n_channels, "");
        }
    }
    if (c->n_corrupt > 0)
        printf("\ncorrupt:\n");
    for (int64_t i = 0; i < c->n_corrupt; i++)
        printf("  %s\n", c->corrupt[i].why); /* on one line each, for other programs */
    return STATUS_OK;
}

static enum status command_data_check(int argc, char **argv)
{
    struct check_request r;
    struct data_check c;
    bool help;
    TRY(parse(argc, argv, &r, &help));
    if (help)
        return STATUS_OK;
    struct data_check_options options = {
        .threads = (int)r.threads, .progress = show_progress, .user = (void *)r.spec};
    int64_t began_ns = timer_now_ns();
    TRY(data_check_run(r.spec, &options, &c));
    double seconds = (double)(timer_now_ns() - began_ns) * 1e-9;
    log_progress_end();
    long long n_corrupt = c.n_corrupt, n = c.n[DATASET_TRAIN] + c.n[DATASET_TEST];
    enum status st = r.json ? print_json(&r, &c, seconds) : print_text(&r, &c, seconds);
    data_check_free(&c);
    if (st == STATUS_OK && n_corrupt > 0)
        st = status_fail(STATUS_FAILED,
                         "%s: %lld of %lld images cannot be read: mend or remove %s, or train with "
                         "--skip-corrupt %lld",
                         r.spec, n_corrupt, n, n_corrupt == 1 ? "it" : "them", n_corrupt);
    return st;
}

enum status command_data(int argc, char **argv)
{
    static const struct command commands[] = {
        {"check", "list corrupt images; sizes, mean and deviation", command_data_check},
        {0},
    };
    static const char *const options[] = {"--help", NULL};
    static const struct command_set set = {
        .path = "cleave data",
        .about = "The images that a network is trained and tested on.\n",
        .examples = "  cleave data check imagefolder:photos@128\n"
                    "  cleave data check cifar10:/data/cifar10\n",
        .commands = commands,
        .options = options,
    };
    return command_dispatch(&set, argc, argv);
}
