/* What a plan was made for: read, compared with the graph, written. */
#include "plan/shared.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- digests ---- */

/* FNV-1a: nobody is to be kept from forging one. */
static const uint64_t FNV_START = UINT64_C(0xcbf29ce484222325), FNV_PRIME = UINT64_C(0x100000001b3);

static uint64_t add_bytes(uint64_t sum, const void *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * FNV_PRIME;
    return sum;
}

static uint64_t add_number(uint64_t sum, int64_t number)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%" PRId64 " ", number);
    return add_bytes(sum, text, (size_t)n);
}

static uint64_t add_axis(uint64_t sum, const struct axis_map *axis)
{
    sum = add_number(sum, axis->offset);
    for (int i = 0; i < axis->n_terms; i++)
        sum = add_number(sum, axis->term[i].scale);
    return sum;
}

/* The loop nest and its maps to the inputs hold all attributes by which pieces differ. The batch is
 * left out. */
static uint64_t add_node(uint64_t sum, const struct graph_node *node)
{
    struct loop_nest nest;
    const char *op = op_get_info(node->op.op)->name;
    sum = add_bytes(sum, node->name, strlen(node->name) + 1);
    sum = add_bytes(sum, op, strlen(op) + 1);
    for (int i = 0; i < node->op.n_inputs; i++)
        sum = add_number(sum, node->input[i]);
    for (int i = 0; i < node->op.output.rank; i++)
        if (node->op.output_axes.use[i] != USE_BATCH)
            sum = add_number(sum, node->op.output.dim[i]);
    op_get_loops(&node->op, &nest);
    for (int i = 0; i < nest.n_loops; i++)
        if (nest.loop[i].use != USE_BATCH)
            sum = add_number(sum, nest.loop[i].extent);
    for (int i = 0; i < nest.n_inputs; i++)
        for (int k = 0; k < nest.input[i].rank; k++)
            if (nest.input[i].axis[k].use != USE_BATCH)
                sum = add_axis(sum, &nest.input[i].axis[k]);
    return sum;
}

static const char *print_digest(uint64_t sum, char digest[PLAN_DIGEST_BYTES])
{
    (void)snprintf(digest, PLAN_DIGEST_BYTES, "%016" PRIx64, sum);
    return digest;
}

const char *plan_digest(const struct graph *graph, char digest[PLAN_DIGEST_BYTES])
{
    uint64_t sum = FNV_START;
    for (int i = 0; i < graph->n_nodes; i++)
        sum = add_node(sum, &graph->nodes[i]);
    return print_digest(sum, digest);
}

const char *plan_digest_bytes(const void *bytes, size_t n_bytes, char digest[PLAN_DIGEST_BYTES])
{
    return print_digest(add_bytes(FNV_START, bytes, n_bytes), digest);
}

/* ---- reading ---- */

static enum status read_input(struct json_place at, struct shape *input)
{
    if (!at.value)
        return STATUS_OK;
    TRY(json_check_list(at, 1, SHAPE_MAX_RANK));
    input->rank = (int)json_array_size(at.value);
    for (int i = 0; i < input->rank; i++)
        TRY(json_read_integer(json_element(at, (size_t)i), 1, INT32_MAX, &input->dim[i]));
    return STATUS_OK;
}

static enum status read_calibrate(struct json_place at, struct plan_made_for *out)
{
    static const char *const keys[] = {"samples_per_s", "batch", NULL};
    if (!at.value)
        return STATUS_OK;
    TRY(json_check_object(at, keys));
    TRY(json_read_real(json_member(at, keys[0]), &out->calibrate));
    return json_read_integer(json_member(at, keys[1]), 1, GRAPH_LARGEST_BATCH,
                             &out->calibrate_batch);
}

static enum status read_texts(struct json_place at, struct plan_made_for *out)
{
    TRY(json_read_text(json_member(at, "model"), &out->model));
    TRY(json_read_text(json_member(at, "data"), &out->data));
    TRY(json_read_text(json_member(at, "precision"), &out->precision));
    TRY(json_read_text(json_member(at, "optimizer"), &out->optimizer));
    TRY(json_read_text(json_member(at, "machine"), &out->machine));
    TRY(json_read_text(json_member(at, "machine_digest"), &out->machine_digest));
    return json_read_text(json_member(at, "digest"), &out->digest);
}

enum status plan_parse_made_for(struct json_place top, struct plan_made_for *out)
{
    static const char *const keys[] = {"model",     "data",      "input",   "classes",
                                       "batch",     "precision", "machine", "machine_digest",
                                       "optimizer", "calibrate", "digest",  NULL};
    struct json_place at = json_member(top, "made_for"), model = json_member(top, "model");
    *out = (struct plan_made_for){0};
    TRY(json_read_text(model, &out->model));
    if (!at.value)
        return STATUS_OK;
    if (model.value)
        return json_fail(model, "\"made_for\" names the model: leave one of both out");
    TRY(json_check_object(at, keys));
    TRY(read_texts(at, out));
    TRY(read_input(json_member(at, "input"), &out->input));
    TRY(json_read_integer(json_member(at, "classes"), 1, INT32_MAX, &out->classes));
    TRY(json_read_integer(json_member(at, "batch"), 1, GRAPH_LARGEST_BATCH, &out->batch));
    return read_calibrate(json_member(at, "calibrate"), out);
}

/* The input without the batch. */
static struct shape sample_shape(const struct graph *graph)
{
    const struct op_case *input = &graph->nodes[0].op;
    struct shape sample = {0};
    for (int i = 0; i < input->output.rank; i++)
        if (input->output_axes.use[i] != USE_BATCH)
            sample.dim[sample.rank++] = input->output.dim[i];
    return sample;
}

static bool has_shapes_of(const struct plan_made_for *made, const struct graph *graph)
{
    struct shape sample = sample_shape(graph);
    return made->classes == graph->classes && shape_equal(&made->input, &sample);
}

/* For other images a network may have other layers. */
static enum status check_layers(struct json_place top, const struct graph *graph)
{
    struct json_place layers = json_member(top, "layers");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)layers.value, name, value)
    {
        bool found = false;
        for (int i = 1; i < graph->n_nodes && !found; i++)
            found = strcmp(graph->nodes[i].name, name) == 0;
        if (!found)
            return json_refuse(json_member(layers, name),
                               "unknown layer '%.80s': for these data %s has other layers than for "
                               "those that the plan was made for",
                               name, graph->name);
    }
    return STATUS_OK;
}

enum status plan_check_made_for(struct json_place top, const struct plan_made_for *made,
                                const struct graph *graph)
{
    char digest[PLAN_DIGEST_BYTES];
    struct json_place at = json_member(top, "made_for");
    if (made->model && strcmp(made->model, graph->name) != 0)
        return json_refuse(at.value ? json_member(at, "model") : json_member(top, "model"),
                           "the plan is for %.80s, not for %s ('cleave plan %s -o FILE' makes one)",
                           made->model, graph->name, graph->name);
    if (made->input.rank > 0 && !has_shapes_of(made, graph))
        return check_layers(top, graph);
    if (made->digest && has_shapes_of(made, graph) &&
        strcmp(made->digest, plan_digest(graph, digest)) != 0)
        return json_refuse(
            json_member(at, "digest"),
            "the layers of this %s are not those that the plan was made for: %s, not "
            "%.40s ('cleave plan %s -o FILE' makes a new one)",
            graph->name, digest, made->digest, graph->name);
    return STATUS_OK;
}

enum status plan_read_made_for(const char *path, arena *memory, struct plan_made_for *out)
{
    struct json_text json = {.name = path, .what = "plan"};
    struct plan_made_for read = {0};
    char *text;
    TRY(text_read_file(path, json.what, &text, &json.n_bytes));
    json.text = text;
    enum status st = json_open(&json);
    if (st == STATUS_OK)
        st = json_check_object(json_top(&json), NULL);
    if (st == STATUS_OK)
        st = json_check_version(json_top(&json), "cleave_plan", 1, PLAN_VERSION);
    if (st == STATUS_OK)
        st = plan_parse_made_for(json_top(&json), &read);
    if (st == STATUS_OK)
        st = plan_copy_made_for(memory, &read, out);
    json_close(&json);
    free(text);
    return st;
}

/* ---- noting ---- */

enum status plan_copy_made_for(arena *memory, const struct plan_made_for *from,
                               struct plan_made_for *to)
{
    *to = *from;
    const char **texts[] = {&to->model,   &to->data,           &to->precision, &to->optimizer,
                            &to->machine, &to->machine_digest, &to->digest};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i])
            TRY(arena_copy_text(memory, *texts[i], texts[i]));
    return STATUS_OK;
}

enum status plan_set_made_for(struct plan *plan, const struct graph *graph,
                              const struct plan_made_for *made)
{
    char digest[PLAN_DIGEST_BYTES];
    struct plan_made_for all = *made;
    all.model = graph->name;
    all.batch = graph->batch;
    all.classes = graph->classes;
    all.input = sample_shape(graph);
    all.digest = plan_digest(graph, digest);
    return plan_copy_made_for(plan->memory, &all, &plan->made_for);
}

/* ---- writing ---- */

static enum status print_text(FILE *f, const char *key, const char *text)
{
    if (!text)
        return STATUS_OK;
    (void)fprintf(f, ", \"%s\": ", key);
    return json_write_text(f, text);
}

/* Only a plan whose model is known has the others. */
enum status plan_print_made_for(FILE *f, const struct plan_made_for *made)
{
    (void)fputs("  \"made_for\": {\"model\": ", f);
    TRY(json_write_text(f, made->model));
    TRY(print_text(f, "data", made->data));
    for (int i = 0; i < made->input.rank; i++)
        (void)fprintf(f, "%s%" PRId64 "%s", i == 0 ? ", \"input\": [" : ", ", made->input.dim[i],
                      i + 1 == made->input.rank ? "]" : "");
    if (made->classes)
        (void)fprintf(f, ", \"classes\": %" PRId64, made->classes);
    if (made->batch)
        (void)fprintf(f, ",\n    \"batch\": %" PRId64, made->batch);
    TRY(print_text(f, "precision", made->precision));
    TRY(print_text(f, "optimizer", made->optimizer));
    TRY(print_text(f, "machine", made->machine));
    TRY(print_text(f, "machine_digest", made->machine_digest));
    if (made->calibrate > 0) {
        (void)fprintf(f, ",\n    \"calibrate\": {\"samples_per_s\": %.17g", made->calibrate);
        if (made->calibrate_batch)
            (void)fprintf(f, ", \"batch\": %" PRId64, made->calibrate_batch);
        (void)fputc('}', f);
    }
    TRY(print_text(f, "digest", made->digest));
    (void)fputs("},\n", f);
    return STATUS_OK;
}
