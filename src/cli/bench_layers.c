/* bench_layers.c: `cleave bench layers`: its options, and its results as tables, CSV and JSON. */
#include "cli/bench_layers.h"

#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"

struct layers_options {
    struct bench_common common;
    const char *model, *data, *batch, *csv;
    int64_t repeat;
};

static enum status parse(int argc, char **argv, struct layers_options *o, bool *help)
{
    *o = (struct layers_options){0};
    const struct option options[] = {
        OPTION_TEXT("--data", "SPEC", &o->data, "imagenet", "the data whose shape is used"),
        OPTION_TEXT("--batch", "B,...", &o->batch, "1,2,4,8,16", "batch sizes"),
        OPTION_INTEGER("--repeat", "N", &o->repeat, 1, 10000, "5", "steps of each; medians count"),
        OPTION_TEXT("--csv", "FILE", &o->csv, NULL, "write CSV instead; - is standard output"),
        BENCH_COMMON_OPTIONS(&o->common),
        OPTION_END,
    };
    const struct positional positionals[] = {{"MODEL", &o->model, subject_model_help()}, {0}};
    const struct option_set set = {
        .command = "bench layers",
        .about = "Times every layer of a training step on noise: forward, gradient of the data,\n"
                 "gradient of the weights; its rate, and that as a share of the rate of a large\n"
                 "matrix product; then the time, the share of the step and the speed-up from\n"
                 "shrinking the batch, by layer type.",
        .positionals = positionals,
        .options = options,
        .notes = subject_data_notes,
        .examples = "  cleave bench layers alexnet --batch 1,4,16,64\n"
                    "  cleave bench layers resnet18 --data cifar10 --batch 64 --csv layers.csv\n",
    };
    return options_parse(&set, argc, argv, help);
}

static double rate(const struct layer_result *l)
{
    double s = layer_seconds(l);
    return s > 0 ? layer_flops(l) / s : 0;
}

/* ---- tables ---- */

static void add_time_cell(table *t, double seconds)
{
    if (seconds > 0)
        table_cell(t, "%.3f", seconds * 1e3);
    else
        table_cell(t, "-");
}

static enum status print_layers(const struct layer_study *s, const struct batch_result *b)
{
    static const struct table_column columns[] = {
        {"layer", TABLE_LEFT, 10},   {"op", TABLE_LEFT, 10},      {"forward", TABLE_RIGHT, 0},
        {"data", TABLE_RIGHT, 0},    {"weights", TABLE_RIGHT, 0}, {"FLOPs", TABLE_RIGHT, 0},
        {"GFLOP/s", TABLE_RIGHT, 0}, {"% peak", TABLE_RIGHT, 0}};
    printf("\nBatch %lld, milliseconds of forward and gradients of data and weights\n\n",
           (long long)b->batch);
    table *t;
    TRY(table_create(columns, 8, &t));
    for (int i = 0; i < b->n_layers; i++) {
        const struct layer_result *l = &b->layers[i];
        table_cell(t, "%s", l->name);
        table_cell(t, "%s", layer_type_name((int)l->kind));
        for (int pass = 0; pass < LAYER_PASSES; pass++)
            add_time_cell(t, l->pass_s[pass]);
        char flops[32];
        table_cell(t, "%s", text_count(flops, sizeof flops, layer_flops(l)));
        table_cell(t, "%.1f", rate(l) * 1e-9);
        table_cell(t, "%.0f", 100 * rate(l) / s->peak.flops_per_s);
    }
    return table_finish(t, stdout);
}

enum type_figure { TYPE_TIME, TYPE_SHARE, TYPE_SPEEDUP };

static void add_type_cell(table *t, const struct layer_study *s, enum type_figure figure, int type,
                          int i)
{
    const struct batch_result *b = &s->batches[i];
    if (figure == TYPE_TIME)
        table_cell(t, "%.2f", b->type_s[type] * 1e3);
    else if (figure == TYPE_SHARE)
        table_cell(t, "%.1f", 100 * b->type_s[type] / b->step_s);
    else
        table_cell(t, "%.2f", layer_study_speedup(s, type, i));
}

/* What all types come to. */
static void add_step_line(table *t, const struct layer_study *s, enum type_figure figure)
{
    table_rule(t);
    table_cell(t, "step");
    for (int i = 0; i < s->n_batches; i++) {
        if (figure == TYPE_TIME)
            table_cell(t, "%.2f", s->batches[i].step_s * 1e3);
        else if (figure == TYPE_SHARE)
            table_cell(t, "100");
        else
            table_cell(t, "%.2f", layer_study_step_speedup(s, i));
    }
    if (figure != TYPE_SPEEDUP)
        return;
    table_cell(t, "ideal");
    for (int i = 0; i < s->n_batches; i++)
        table_cell(t, "%.2f", layer_study_ideal(s, i));
}

static bool type_is_there(const struct layer_study *s, int type)
{
    for (int i = 0; i < s->n_batches; i++)
        if (s->batches[i].type_s[type] > 0)
            return true;
    return false;
}

static enum status print_types(const struct layer_study *s, enum type_figure figure)
{
    static const char *const titles[] = {"Milliseconds by layer type and batch",
                                         "Share of the step, in percent",
                                         "Speed-up from shrinking the largest batch"};
    char names[SUBJECT_MAX_BATCHES][24];
    struct table_column columns[SUBJECT_MAX_BATCHES + 1] = {{"type", TABLE_LEFT, 12}};
    for (int i = 0; i < s->n_batches; i++) {
        (void)snprintf(names[i], sizeof names[i], "%lld", (long long)s->batches[i].batch);
        columns[i + 1] = (struct table_column){names[i], TABLE_RIGHT, 0};
    }
    printf("\n%s\n\n", titles[figure]);
    table *t;
    TRY(table_create(columns, s->n_batches + 1, &t));
    for (int type = 0; type < TYPE_COUNT; type++) {
        if (!type_is_there(s, type))
            continue;
        table_cell(t, "%s", layer_type_name(type));
        for (int i = 0; i < s->n_batches; i++)
            add_type_cell(t, s, figure, type, i);
    }
    add_step_line(t, s, figure);
    return table_finish(t, stdout);
}

static enum status print_tables(const struct layer_study *s)
{
    output_line(2, "%s for %s on %s (%s), %d thread%s; peak %.1f GFLOP/s (product of size %lld)",
                s->model, s->data, s->backend, s->device, s->threads, s->threads == 1 ? "" : "s",
                s->peak.flops_per_s * 1e-9, (long long)s->peak.size);
    for (int i = 0; i < s->n_batches; i++)
        TRY(print_layers(s, &s->batches[i]));
    TRY(print_types(s, TYPE_TIME));
    TRY(print_types(s, TYPE_SHARE));
    if (s->n_batches > 1)
        TRY(print_types(s, TYPE_SPEEDUP));
    printf("\nActivations and sums count with the layer that they are folded into.\n");
    return STATUS_OK;
}

/* ---- CSV ---- */

static void write_csv_batch(FILE *f, const struct layer_study *s, int i)
{
    const struct batch_result *b = &s->batches[i];
    for (int k = 0; k < b->n_layers; k++) {
        const struct layer_result *l = &b->layers[k];
        (void)fprintf(f, "layer,%lld,%s,%s,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.6g,%.6g,,\n",
                      (long long)b->batch, l->name, l->op, layer_seconds(l) + l->update_s,
                      l->pass_s[0], l->pass_s[1], l->pass_s[2], l->update_s, l->flops[0],
                      l->flops[1], l->flops[2], rate(l), rate(l) / s->peak.flops_per_s);
    }
    for (int type = 0; type < TYPE_COUNT; type++)
        if (type_is_there(s, type))
            (void)fprintf(f, "type,%lld,%s,,%.9g,,,,,,,,,,%.6g,%.6g\n", (long long)b->batch,
                          layer_type_name(type), b->type_s[type], b->type_s[type] / b->step_s,
                          layer_study_speedup(s, type, i));
}

static enum status write_csv(const struct layer_study *s, const char *path)
{
    FILE *f;
    TRY(bench_csv_open(path, &f));
    (void)fprintf(f, "level,batch,name,op,seconds,forward_s,backward_data_s,backward_weights_s,"
                     "update_s,forward_flops,backward_data_flops,backward_weights_flops,"
                     "flops_per_s,share_of_peak,share_of_step,speedup\n");
    for (int i = 0; i < s->n_batches; i++)
        write_csv_batch(f, s, i);
    return bench_csv_close(f, path);
}

/* ---- JSON ---- */

static json_t *json_layers(const struct layer_study *s, const struct batch_result *b)
{
    json_t *array = json_array();
    for (int i = 0; i < b->n_layers; i++) {
        const struct layer_result *l = &b->layers[i];
        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "name",
                             l->name, "op", l->op, "forward_s", l->pass_s[0], "backward_data_s",
                             l->pass_s[1], "backward_weights_s", l->pass_s[2], "update_s",
                             l->update_s, "forward_flops", l->flops[0], "backward_data_flops",
                             l->flops[1], "backward_weights_flops", l->flops[2], "flops_per_s",
                             rate(l), "share_of_peak", rate(l) / s->peak.flops_per_s));
    }
    return array;
}

static json_t *json_types(const struct layer_study *s, int i)
{
    const struct batch_result *b = &s->batches[i];
    json_t *array = json_array();
    for (int type = 0; type < TYPE_COUNT; type++)
        if (type_is_there(s, type))
            (void)json_array_append_new(
                array, json_pack("{s:s, s:f, s:f, s:f}", "type", layer_type_name(type), "seconds",
                                 b->type_s[type], "share_of_step", b->type_s[type] / b->step_s,
                                 "speedup", layer_study_speedup(s, type, i)));
    return array;
}

static enum status print_json(const struct layer_study *s)
{
    json_t *batches = json_array();
    for (int i = 0; i < s->n_batches; i++)
        (void)json_array_append_new(
            batches,
            json_pack("{s:I, s:f, s:f, s:o, s:o}", "batch", (json_int_t)s->batches[i].batch,
                      "step_s", s->batches[i].step_s, "ideal_speedup", layer_study_ideal(s, i),
                      "layers", json_layers(s, &s->batches[i]), "types", json_types(s, i)));
    return output_json(json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:o}", "model", s->model, "data",
                                 s->data, "backend", s->backend, "device", s->device, "threads",
                                 s->threads, "peak_flops_per_s", s->peak.flops_per_s, "batches",
                                 batches));
}

/* ---- the command ---- */

static enum status run(const struct layers_options *o, const struct bench_device *d, arena *memory)
{
    int64_t batches[SUBJECT_MAX_BATCHES];
    int n_batches;
    TRY(subject_parse_batches("--batch", o->batch, batches, &n_batches));
    struct layer_study study;
    TRY(layer_study_measure(d, o->model, o->data, batches, n_batches, o->repeat, memory, &study));
    if (o->csv)
        TRY(write_csv(&study, o->csv));
    if (o->common.json)
        TRY(print_json(&study));
    if (!o->csv && !o->common.json)
        TRY(print_tables(&study));
    return STATUS_OK;
}

enum status command_bench_layers(int argc, char **argv)
{
    struct layers_options o;
    bool help;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    TRY(bench_csv_check(o.csv, o.common.json));
    struct bench_device on;
    TRY(bench_device_open(&o.common, &on));
    arena *memory = NULL;
    enum status st;
    TRY_GOTO(st, arena_create(&memory), out);
    TRY_GOTO(st, run(&o, &on, memory), out);
out:
    arena_destroy(memory);
    bench_device_close(&on);
    return st;
}
