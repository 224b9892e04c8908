#include "predict/prediction_json.h"

int64_t predict_worker_bytes(const struct prediction *p, int worker)
{
    int64_t sum = 0;
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        sum += p->memory[worker][k];
    return sum;
}

double predict_epoch_seconds(const struct forecast *f, const struct prediction *p)
{
    int64_t batch = f->options->batch;
    int64_t n_steps = (f->data.n_train + batch - 1) / batch;
    return p->clock.step_s * (double)n_steps;
}

static json_t *memory_json(const int64_t classes[BUFFER_CLASS_COUNT])
{
    json_t *by_class = json_object();
    for (int k = 0; k < BUFFER_CLASS_COUNT; k++)
        (void)json_object_set_new(by_class, buffer_class_name((enum buffer_class)k),
                                  json_integer((json_int_t)classes[k]));
    return by_class;
}

static json_t *workers_json(const struct prediction *p)
{
    json_t *workers = json_array();
    int n_steps = p->programs[0]->n_steps;
    for (int i = 0; i < p->n_workers; i++) {
        const struct clock_worker_result *w = &p->clock.workers[i];
        (void)json_array_append_new(
            workers,
            json_pack("{s:f, s:f, s:f, s:I, s:o, s:I}", "compute_s", w->compute_s / n_steps,
                      "communicate_s", w->communicate_s / n_steps, "wait_s", w->wait_s / n_steps,
                      "memory_bytes", (json_int_t)predict_worker_bytes(p, i), "memory",
                      memory_json(p->memory[i]), "sent_bytes",
                      (json_int_t)(w->sent_bytes / n_steps)));
    }
    return workers;
}

static json_t *links_json(const struct forecast *f, const struct prediction *p)
{
    json_t *links = json_array();
    for (int i = 0; i < f->machine->n_links; i++) {
        const struct machine_link *link = &f->machine->links[i];
        double share = p->clock.link_bytes[i] / link->bytes_per_s / p->clock.step_s;
        (void)json_array_append_new(links, json_pack("{s:s, s:f, s:f, s:f}", "name", link->name,
                                                     "bytes", p->clock.link_bytes[i], "bytes_per_s",
                                                     link->bytes_per_s, "share", share));
    }
    return links;
}

/* A link by its name; null: none is in the way. */
static json_t *link_name(const struct machine *m, int link)
{
    return link < 0 ? json_null() : json_string(m->links[link].name);
}

/* Where the links are, in the form of a machine file: a report draws the machine from it. */
static json_t *nodes_json(const struct machine *m)
{
    json_t *nodes = json_array();
    for (int i = 0; i < m->n_nodes; i++) {
        const struct machine_node *node = &m->nodes[i];
        json_t *devices = json_array();
        for (int d = node->first_device; d < node->first_device + node->n_devices; d++)
            (void)json_array_append_new(devices, json_pack("{s:s, s:o, s:o}", "kind",
                                                           m->kinds[m->devices[d].kind].name, "out",
                                                           link_name(m, m->device_out[d]), "in",
                                                           link_name(m, m->device_in[d])));
        (void)json_array_append_new(nodes,
                                    json_pack("{s:s, s:o, s:o, s:o}", "name", node->name, "out",
                                              link_name(m, m->node_out[i]), "in",
                                              link_name(m, m->node_in[i]), "devices", devices));
    }
    return nodes;
}

static json_t *advice_json(const struct predict_answer *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->n_advice; i++)
        (void)json_array_append_new(list, json_pack("{s:s, s:I}", "change", a->advice[i].change,
                                                    "memory_bytes",
                                                    (json_int_t)a->advice[i].memory_bytes));
    return list;
}

json_t *predict_json(const struct forecast *f, const struct predict_answer *a)
{
    const struct prediction *p = a->prediction;
    const double *share = p->clock.share;
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:b, s:o, "
        "s:{s:f, s:f, s:f}, s:i, s:f, "
        "s:o, s:o, s:o, s:I, s:i, s:s}",
        "plan", a->plan->name, "model", f->graph->name, "data", f->options->data, "batch",
        (json_int_t)f->graph->batch, "precision", precision_names[f->options->run.precision],
        "machine", f->machine->name, "n_workers", a->plan->n_workers, "step_s", p->clock.step_s,
        "error_s", p->clock.error_s, "host_error", p->host_error, "epoch_s",
        predict_epoch_seconds(f, p), "images_per_s", (double)f->graph->batch / p->clock.step_s,
        "memory_bytes", (json_int_t)p->largest_bytes, "bytes_moved",
        (json_int_t)p->clock.bytes_moved, "fits", p->too_large_worker < 0, "advice", advice_json(a),
        "costs", "measured", share[COST_MEASURED], "fitted", share[COST_FITTED], "roofline",
        share[COST_ROOFLINE], "measured", f->n_measured, "predict_s", p->predict_s, "workers",
        workers_json(p), "links", links_json(f, p), "nodes", nodes_json(f->machine), "limit_bytes",
        (json_int_t)p->limit_bytes, "limit_workers", p->n_tight, "links_note",
        f->machine->links_note);
}
