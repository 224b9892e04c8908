/* Writes machines as JSON, one part a line, every number with the digits that restore it. */
#include "machine/machine.h"

#include "base/json.h"
#include "base/numbers.h"
#include "base/whole_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum status write_member(FILE *f, const char *key, const char *text)
{
    (void)fprintf(f, "\"%s\": ", key);
    return json_write_text(f, text ? text : "");
}

/* The shortest text that reads as the same number. */
static void write_number(FILE *f, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    (void)fputs(text, f);
}

static void write_real(FILE *f, const char *key, double value)
{
    (void)fprintf(f, ", \"%s\": ", key);
    write_number(f, value);
}

static const char *comma(int i, int n)
{
    return i + 1 < n ? ",\n" : "\n";
}

/* ---- the parts ---- */

/* All but single precision, which has members of its own. */
static void write_rates(FILE *f, const struct machine_kind *k)
{
    int n = 0;
    for (int i = 0; i < ARITHMETIC_COUNT; i++) {
        const struct machine_rate *rate = &k->rates[i];
        if (i == ARITHMETIC_F32 || !(rate->peak > 0))
            continue;
        (void)fprintf(f,
                      "%s\"%s\": {\"peak\": ", n++ ? ",\n               " : ",\n     \"rates\": {",
                      arithmetic_names[i]);
        write_number(f, rate->peak);
        write_real(f, "reached", rate->reached);
        (void)fputc('}', f);
    }
    if (n)
        (void)fputc('}', f);
}

static enum status write_kind(FILE *f, const struct machine_kind *k)
{
    (void)fputs("    {", f);
    TRY(write_member(f, "name", k->name));
    (void)fputs(", ", f);
    TRY(write_member(f, "about", k->about));
    (void)fprintf(f, ",\n     \"class\": \"%s\"", k->class == MACHINE_CPU ? "cpu" : "gpu");
    write_real(f, "peak_flops_per_s", k->rates[ARITHMETIC_F32].peak);
    write_real(f, "reached_flops_per_s", k->rates[ARITHMETIC_F32].reached);
    write_rates(f, k);
    (void)fputs(",\n     \"peak_bytes_per_s\": ", f);
    write_number(f, k->peak_bytes_per_s);
    write_real(f, "reached_bytes_per_s", k->reached_bytes_per_s);
    (void)fprintf(f, ", \"memory_bytes\": %lld", (long long)k->memory_bytes);
    (void)fputs(",\n     \"launch_s\": ", f);
    write_number(f, k->launch_s);
    (void)fprintf(f, ", \"cores\": %d", k->cores);
    if (k->link_bytes_per_s > 0)
        write_real(f, "link_bytes_per_s", k->link_bytes_per_s);
    write_real(f, "link_latency_s", k->link_latency_s);
    if (k->adapter_devices > 0) {
        write_real(f, "adapter_bytes_per_s", k->adapter_bytes_per_s);
        (void)fprintf(f, ", \"adapter_devices\": %d,\n     ", k->adapter_devices);
        TRY(write_member(f, "sold", k->sold));
    }
    (void)fputs(",\n     ", f);
    TRY(write_member(f, "note", k->note));
    (void)fputc('}', f);
    return STATUS_OK;
}

static enum status write_link(FILE *f, const struct machine_link *l)
{
    (void)fputs("    {", f);
    TRY(write_member(f, "name", l->name));
    write_real(f, "bytes_per_s", l->bytes_per_s);
    write_real(f, "latency_s", l->latency_s);
    if (l->burst_bytes > 0)
        write_real(f, "burst_bytes", l->burst_bytes);
    (void)fputc('}', f);
    return STATUS_OK;
}

static enum status write_end(FILE *f, const struct machine *m, const char *key, int link)
{
    (void)fputs(", ", f);
    if (link >= 0)
        return write_member(f, key, m->links[link].name);
    (void)fprintf(f, "\"%s\": null", key);
    return STATUS_OK;
}

static enum status write_device(FILE *f, const struct machine *m, int device)
{
    (void)fputs("       {", f);
    TRY(write_member(f, "kind", m->kinds[m->devices[device].kind].name));
    TRY(write_end(f, m, "out", m->device_out[device]));
    TRY(write_end(f, m, "in", m->device_in[device]));
    (void)fputc('}', f);
    return STATUS_OK;
}

/* The pairs of one node, which are neighbours in the list. */
static enum status write_pairs(FILE *f, const struct machine *m, int node)
{
    int first = m->nodes[node].first_device, n = 0;
    for (int i = 0; i < m->n_pairs; i++) {
        const struct machine_pair *p = &m->pairs[i];
        if (m->devices[p->from].node != node)
            continue;
        (void)fprintf(f, "%s\n       {\"from\": %d, \"to\": %d, ",
                      n++ ? "," : ",\n     \"pairs\": [", p->from - first, p->to - first);
        TRY(write_member(f, "link", m->links[p->link].name));
        (void)fputc('}', f);
    }
    (void)fputs(n ? "]" : "", f);
    return STATUS_OK;
}

static enum status write_node(FILE *f, const struct machine *m, int node)
{
    const struct machine_node *n = &m->nodes[node];
    (void)fputs("    {", f);
    TRY(write_member(f, "name", n->name));
    (void)fputs(", ", f);
    TRY(write_member(f, "about", n->about));
    (void)fprintf(f, ", \"memory_bytes\": %lld", (long long)n->memory_bytes);
    if (n->cores)
        (void)fprintf(f, ", \"cores\": %d", n->cores);
    if (*n->host) {
        (void)fputs(", ", f);
        TRY(write_member(f, "host", n->host));
    }
    if (n->own_cores)
        (void)fprintf(f, ", \"own_cores\": %d", n->own_cores);
    TRY(write_end(f, m, "out", m->node_out[node]));
    TRY(write_end(f, m, "in", m->node_in[node]));
    (void)fputs(",\n     \"devices\": [\n", f);
    for (int i = 0; i < n->n_devices; i++) {
        TRY(write_device(f, m, n->first_device + i));
        (void)fputs(i + 1 < n->n_devices ? ",\n" : "]", f);
    }
    TRY(write_pairs(f, m, node));
    (void)fputc('}', f);
    return STATUS_OK;
}

static enum status write_curve(FILE *f, const struct machine_curve *c)
{
    (void)fputs("    {", f);
    TRY(write_member(f, "transport", c->transport));
    (void)fprintf(f, ", \"operation\": \"%s\", \"members\": %d, \"nodes\": %d,\n     \"points\": [",
                  c->reduces ? comm_method_name(c->method) : "message", c->members,
                  int_max(c->nodes, 1));
    for (int i = 0; i < c->n_points; i++) {
        (void)fputs(i ? ", [" : "[", f);
        write_number(f, c->points[i].bytes);
        (void)fputs(", ", f);
        write_number(f, c->points[i].seconds);
        (void)fputs(", ", f);
        write_number(f, c->points[i].cpu_s);
        if (c->points[i].sent_s > 0) {
            (void)fputs(", ", f);
            write_number(f, c->points[i].sent_s);
        }
        (void)fputc(']', f);
    }
    (void)fputs("]}", f);
    return STATUS_OK;
}

/* ---- all of it ---- */

static enum status write_lists(FILE *f, const struct machine *m)
{
    (void)fputs("  \"kinds\": [\n", f);
    for (int i = 0; i < m->n_kinds; i++) {
        TRY(write_kind(f, &m->kinds[i]));
        (void)fputs(comma(i, m->n_kinds), f);
    }
    (void)fputs("  ],\n  \"links\": [\n", f);
    for (int i = 0; i < m->n_links; i++) {
        TRY(write_link(f, &m->links[i]));
        (void)fputs(comma(i, m->n_links), f);
    }
    (void)fputs("  ],\n  \"nodes\": [\n", f);
    for (int i = 0; i < m->n_nodes; i++) {
        TRY(write_node(f, m, i));
        (void)fputs(comma(i, m->n_nodes), f);
    }
    (void)fputs("  ],\n  \"curves\": [\n", f);
    for (int i = 0; i < m->n_curves; i++) {
        TRY(write_curve(f, &m->curves[i]));
        (void)fputs(comma(i, m->n_curves), f);
    }
    (void)fputs("  ]", f);
    return STATUS_OK;
}

enum status machine_write(const struct machine *m, FILE *out)
{
    (void)fputs("{\n  \"cleave_machine\": 1,\n  ", out);
    TRY(write_member(out, "name", m->name));
    (void)fputs(",\n  ", out);
    TRY(write_member(out, "source", m->source));
    (void)fputs(",\n", out);
    TRY(write_lists(out, m));
    write_real(out, "wake_s", m->wake_s);
    write_real(out, "deep_wake_s", m->deep_wake_s);
    write_real(out, "ring_s", m->ring_s);
    write_real(out, "step_s", m->step_s);
    if (m->wait_share > 0)
        write_real(out, "wait_share", m->wait_share);
    if (m->far_byte_s > 0)
        write_real(out, "far_byte_s", m->far_byte_s);
    (void)fputs("\n}\n", out);
    if (fflush(out) != 0 || ferror(out))
        return status_fail(STATUS_FAILED, "cannot write the machine: %s", strerror(errno));
    return STATUS_OK;
}

static enum status write_to(FILE *f, void *machine)
{
    return machine_write(machine, f);
}

enum status machine_write_file(const struct machine *m, const char *path)
{
    return whole_file_write(path, write_to, (void *)(uintptr_t)m);
}

enum status machine_write_text(const struct machine *m, char **text)
{
    char *written = NULL;
    size_t n_bytes;
    FILE *f = open_memstream(&written, &n_bytes);
    if (!f)
        return status_no_memory(0);
    enum status st = machine_write(m, f);
    if (fclose(f) != 0 && st == STATUS_OK)
        st = status_no_memory(n_bytes);
    if (st != STATUS_OK) {
        free(written);
        return st;
    }
    *text = written;
    return STATUS_OK;
}
