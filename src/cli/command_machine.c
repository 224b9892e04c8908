/* command_machine.c: `cleave machine`: the devices and links of a machine, shown and measured. */
#include "machine/machine.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "bench/bench.h"
#include "cli/command.h"
#include "cli/options.h"
#include "machine/machine_measure.h"
#include "runtime/pin.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_NAME_BYTES = 64 };
static const double process_wait_s = 60;

struct machine_options {
    const char *machine, *output;
    int64_t threads, workers;
    bool measure, json, list;
};

static enum status parse(int argc, char **argv, struct machine_options *o, bool *help)
{
    *o = (struct machine_options){0};
    const struct option options[] = {
        OPTION_TEXT("--machine", "MACHINE", &o->machine, "local",
                    "this host (local), a file, a name of --list, or a string"),
        OPTION_INTEGER("--threads", "T", &o->threads, 1, BACKEND_MAX_THREADS, "1",
                       "local: cores of each worker, which is one device"),
        OPTION_FLAG("--measure", &o->measure,
                    "local: measure the cores and the traffic between workers"),
        OPTION_INTEGER("--workers", "N", &o->workers, 1, MACHINE_MAX_DEVICES, NULL,
                       "with --measure: threads that take part; under mpirun or srun its "
                       "processes do [all devices]"),
        OPTION_TEXT("-o", "FILE", &o->output, NULL, "write the machine as a file, too"),
        OPTION_FLAG("--list", &o->list, "list the machines and devices that are known by name"),
        OPTION_FLAG("--json", &o->json, "print the machine as JSON"),
        OPTION_END,
    };
    const struct positional positionals[] = {{0}};
    const struct option_set set = {
        .command = "machine",
        .about = "Shows the devices and links of a machine: of this host, or of one that exists\n"
                 "only as a file or a string. Plans are predicted for such machines.",
        .positionals = positionals,
        .options = options,
        .notes = "Machines:\n"
                 "  local                                this host, as hwloc sees it\n"
                 "  optcnn                               a name of --list\n"
                 "  FILE                                 written by -o or by hand, or hwloc's XML\n"
                 "  4x4:p100,intra=15GB/s,inter=4.5GB/s  nodes x devices:kind; also latency=5us,\n"
                 "                                       intra_latency=10us, memory=16GiB\n"
                 "  1x4:p100+p100+k40+k40                mixed devices\n"
                 "  2x4:v100,1x8:k80,inter=10GB/s        unlike nodes\n"
                 "  'synthetic:package:2 core:8 pu:1'    hwloc's description of a host\n",
        .examples = "  cleave machine --measure -o here.json\n"
                    "  cleave machine --machine 4x4:p100,intra=15GB/s,inter=4.5GB/s\n"
                    "  mpirun -n 4 cleave machine --measure -o cluster.json\n",
    };
    return options_parse(&set, argc, argv, help);
}

/* ---- tables ---- */

static const char *rate(char *buffer, size_t size, double per_s, const char *unit)
{
    char text[32];
    (void)snprintf(buffer, size, "%s%s", text_count(text, sizeof text, per_s), unit);
    return buffer;
}

static enum status print_kinds(const struct machine *m)
{
    static const struct table_column columns[] = {
        {"device", TABLE_LEFT, 8},   {"what it is", TABLE_LEFT, 16}, {"FLOP/s", TABLE_RIGHT, 0},
        {"reached", TABLE_RIGHT, 0}, {"bytes/s", TABLE_RIGHT, 0},    {"reached", TABLE_RIGHT, 0},
        {"memory", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 7, &t));
    for (int i = 0; i < m->n_kinds; i++) {
        const struct machine_kind *k = &m->kinds[i];
        char text[32];
        table_cell(t, "%s", k->name);
        table_cell(t, "%s", k->about);
        table_cell(t, "%s", text_count(text, sizeof text, k->rates[ARITHMETIC_F32].peak));
        table_cell(t, "%s", text_count(text, sizeof text, k->rates[ARITHMETIC_F32].reached));
        table_cell(t, "%s", text_count(text, sizeof text, k->peak_bytes_per_s));
        table_cell(t, "%s", text_count(text, sizeof text, k->reached_bytes_per_s));
        if (k->memory_bytes)
            table_cell(t, "%s", text_bytes(text, sizeof text, (double)k->memory_bytes));
        else
            table_cell(t, "-");
    }
    return table_finish(t, stdout);
}

/* Rates beside single precision: the reached ones, each with its peak. */
static enum status print_rates(const struct machine *m)
{
    struct table_column columns[1 + ARITHMETIC_COUNT] = {{"FLOP/s", TABLE_LEFT, 8}};
    int shown[ARITHMETIC_COUNT], n = 0;
    for (int type = 0; type < ARITHMETIC_COUNT; type++) {
        bool any = false;
        for (int i = 0; i < m->n_kinds; i++)
            any |= type != ARITHMETIC_F32 && m->kinds[i].rates[type].peak > 0;
        if (!any)
            continue;
        shown[n++] = type;
        columns[n] = (struct table_column){arithmetic_names[type], TABLE_RIGHT, 0};
    }
    if (n == 0)
        return STATUS_OK;
    table *t;
    printf("\n");
    TRY(table_create(columns, 1 + n, &t));
    for (int i = 0; i < m->n_kinds; i++) {
        table_cell(t, "%s", m->kinds[i].name);
        for (int k = 0; k < n; k++) {
            const struct machine_rate *rate = &m->kinds[i].rates[shown[k]];
            char reached[32], peak[32];
            if (rate->peak > 0)
                table_cell(t, "%s of %s", text_count(reached, sizeof reached, rate->reached),
                           text_count(peak, sizeof peak, rate->peak));
            else
                table_cell(t, "-");
        }
    }
    return table_finish(t, stdout);
}

/* "4 p100", "2 p100 + 2 k40" */
static void describe_devices(const struct machine *m, int node, char *text, size_t size)
{
    const struct machine_node *n = &m->nodes[node];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n->n_devices && used + 1 < size;) {
        int kind = m->devices[n->first_device + i].kind, alike = 0;
        while (i + alike < n->n_devices && m->devices[n->first_device + i + alike].kind == kind)
            alike++;
        int printed = snprintf(text + used, size - used, "%s%d %s", i ? " + " : "", alike,
                               m->kinds[kind].name);
        used += printed > 0 ? (size_t)printed : 0;
        i += alike;
    }
}

static bool same_link(const struct machine *m, int a, int b)
{
    if (a < 0 || b < 0)
        return a == b;
    return m->links[a].bytes_per_s == m->links[b].bytes_per_s &&
           m->links[a].latency_s == m->links[b].latency_s;
}

static bool same_node(const struct machine *m, int a, int b)
{
    const struct machine_node *x = &m->nodes[a], *y = &m->nodes[b];
    if (x->n_devices != y->n_devices || x->memory_bytes != y->memory_bytes ||
        !same_link(m, m->node_out[a], m->node_out[b]) ||
        !same_link(m, m->node_in[a], m->node_in[b]))
        return false;
    for (int i = 0; i < x->n_devices; i++)
        if (m->devices[x->first_device + i].kind != m->devices[y->first_device + i].kind)
            return false;
    return true;
}

static void cell_link(table *t, const struct machine *m, int link)
{
    char text[32];
    if (link < 0)
        table_cell(t, "-");
    else
        table_cell(t, "%s", rate(text, sizeof text, m->links[link].bytes_per_s, "B/s"));
}

/* Lines of at most 79 characters, broken at spaces. */
static void print_wrapped(const char *text)
{
    enum { WIDTH = 79 };
    while (strlen(text) > WIDTH) {
        int n = WIDTH;
        while (n > 0 && text[n] != ' ')
            n--;
        if (n == 0)
            break;
        printf("%.*s\n", n, text);
        text += n + 1;
    }
    printf("%s\n", text);
}

/* Descriptions of nodes, printed once for neighbours with the same one. */
static void print_abouts(const struct machine *m)
{
    for (int i = 0; i < m->n_nodes; i++) {
        const struct machine_node *n = &m->nodes[i];
        char line[400];
        if (!*n->about || (i > 0 && !strcmp(n->about, m->nodes[i - 1].about)))
            continue;
        (void)snprintf(line, sizeof line, "%.80s: %.300s", n->name, n->about);
        print_wrapped(line);
    }
}

/* Neighbours that are alike share a line. */
static enum status print_nodes(const struct machine *m)
{
    static const struct table_column columns[] = {{"node", TABLE_LEFT, 12},
                                                  {"devices", TABLE_LEFT, 12},
                                                  {"memory", TABLE_RIGHT, 0},
                                                  {"out", TABLE_RIGHT, 0},
                                                  {"in", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 5, &t));
    for (int i = 0, alike; i < m->n_nodes; i += alike) {
        char devices[120], text[32];
        for (alike = 1; i + alike < m->n_nodes && same_node(m, i, i + alike);)
            alike++;
        const struct machine_node *n = &m->nodes[i];
        if (alike > 1)
            table_cell(t, "%s .. %s", n->name, m->nodes[i + alike - 1].name);
        else
            table_cell(t, "%s", n->name);
        describe_devices(m, i, devices, sizeof devices);
        table_cell(t, "%s", devices);
        if (n->memory_bytes)
            table_cell(t, "%s", text_bytes(text, sizeof text, (double)n->memory_bytes));
        else
            table_cell(t, "-");
        cell_link(t, m, m->node_out[i]);
        cell_link(t, m, m->node_in[i]);
    }
    TRY(table_finish(t, stdout));
    print_abouts(m);
    return STATUS_OK;
}

/* Links with the same figures share a line. */
static enum status print_links(const struct machine *m)
{
    static const struct table_column columns[] = {{"links", TABLE_LEFT, 24},
                                                  {"how many", TABLE_RIGHT, 0},
                                                  {"bandwidth", TABLE_RIGHT, 0},
                                                  {"latency", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 4, &t));
    for (int i = 0; i < m->n_links; i++) {
        int alike = 0, last = i;
        bool shown = false;
        for (int k = 0; k < i && !shown; k++)
            shown = same_link(m, k, i);
        for (int k = i; k < m->n_links && !shown; k++)
            if (same_link(m, i, k)) {
                alike++;
                last = k;
            }
        if (shown)
            continue;
        char text[32];
        if (alike > 1)
            table_cell(t, "%s .. %s", m->links[i].name, m->links[last].name);
        else
            table_cell(t, "%s", m->links[i].name);
        table_cell(t, "%d", alike);
        table_cell(t, "%s", rate(text, sizeof text, m->links[i].bytes_per_s, "B/s"));
        table_cell(t, "%s", text_seconds(text, sizeof text, m->links[i].latency_s));
    }
    return table_finish(t, stdout);
}

static const double shown_bytes[] = {1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 25};
enum { N_SHOWN = sizeof shown_bytes / sizeof *shown_bytes };

static void cell_time(table *t, const struct machine_curve *c, double bytes)
{
    char text[32];
    if (bytes > c->points[c->n_points - 1].bytes)
        table_cell(t, "-");
    else
        table_cell(t, "%s", text_seconds(text, sizeof text, machine_curve_at(c, bytes).seconds));
}

static enum status print_curves(const struct machine *m)
{
    static const struct table_column columns[] = {
        {"over", TABLE_LEFT, 0},   {"operation", TABLE_LEFT, 0}, {"workers", TABLE_RIGHT, 0},
        {"1 KiB", TABLE_RIGHT, 0}, {"16 KiB", TABLE_RIGHT, 0},   {"256 KiB", TABLE_RIGHT, 0},
        {"4 MiB", TABLE_RIGHT, 0}, {"32 MiB", TABLE_RIGHT, 0}};
    table *t;
    TRY(table_create(columns, 3 + N_SHOWN, &t));
    for (int i = 0; i < m->n_curves; i++) {
        const struct machine_curve *c = &m->curves[i];
        table_cell(t, "%s", c->transport);
        table_cell(t, "%s", c->reduces ? comm_method_name(c->method) : "message");
        if (c->nodes > 1)
            table_cell(t, "%d on %d", c->members, c->nodes);
        else
            table_cell(t, "%d", c->members);
        for (int k = 0; k < N_SHOWN; k++)
            cell_time(t, c, shown_bytes[k]);
    }
    return table_finish(t, stdout);
}

static enum status print_tables(const struct machine *m)
{
    char wake[32], step[32];
    printf("%.60s: %d device%s on %d node%s\n", m->name, m->n_devices, m->n_devices == 1 ? "" : "s",
           m->n_nodes, m->n_nodes == 1 ? "" : "s");
    print_wrapped(m->source);
    if (*m->links_note)
        print_wrapped(m->links_note);
    printf("\n");
    TRY(print_kinds(m));
    TRY(print_rates(m));
    printf("\n");
    TRY(print_nodes(m));
    if (m->n_links) {
        printf("\n");
        TRY(print_links(m));
    }
    if (m->n_curves) {
        printf("\nMeasured, with all workers at rest that do not take part:\n");
        TRY(print_curves(m));
    }
    if (m->wake_s > 0)
        printf("\nwaking a sleeping worker        %s\n"
               "starting and gathering workers  %s\n",
               text_seconds(wake, sizeof wake, m->wake_s),
               text_seconds(step, sizeof step, m->step_s));
    return STATUS_OK;
}

/* ---- JSON and files ---- */

static enum status make_text(const struct machine *m, char **out, size_t *n_bytes)
{
    FILE *f = open_memstream(out, n_bytes);
    if (!f)
        return status_no_memory(1);
    enum status st = machine_write(m, f);
    if (fclose(f) != 0 && st == STATUS_OK)
        st = status_no_memory(*n_bytes);
    return st;
}

static enum status print_json(const struct machine *m)
{
    char *text = NULL;
    size_t n_bytes = 0;
    enum status st = make_text(m, &text, &n_bytes);
    if (st == STATUS_OK)
        st = output_json(json_loadb(text, n_bytes, 0, NULL));
    free(text);
    return st;
}

static enum status show(const struct machine_options *o, const struct machine *m)
{
    if (o->output)
        TRY(machine_write_file(m, o->output));
    return o->json ? print_json(m) : print_tables(m);
}

/* ---- the list ---- */

static enum status print_machine_names(arena *memory)
{
    static const struct table_column columns[] = {{"machine", TABLE_LEFT, 0},
                                                  {"devices", TABLE_RIGHT, 0},
                                                  {"where it is from", TABLE_LEFT, 20}};
    const char *const *names;
    enum status st = STATUS_OK;
    table *t;
    TRY(machine_names(memory, &names));
    TRY(table_create(columns, 3, &t));
    for (; *names; names++) {
        struct machine *m;
        st = machine_parse(*names, &m);
        if (st != STATUS_OK)
            break;
        table_cell(t, "%s", *names);
        table_cell(t, "%d", m->n_devices);
        table_cell(t, "%s", m->source);
        machine_destroy(m);
    }
    enum status printed = table_finish(t, stdout);
    return st == STATUS_OK ? printed : st;
}

static enum status print_list(void)
{
    arena *memory;
    const char *const *kinds;
    TRY(arena_create(&memory));
    enum status st;
    TRY_GOTO(st, print_machine_names(memory), out);
    TRY_GOTO(st, machine_kind_names(memory, &kinds), out);
    printf("\nDevices for strings and files:");
    for (int i = 0; kinds[i]; i++)
        printf("%s%s", i % 8 == 0 ? "\n  " : " ", kinds[i]);
    printf("\n");
out:
    arena_destroy(memory);
    return st;
}

/* ---- measuring ---- */

static void bind_worker(int worker, int n_workers, void *user)
{
    const struct machine_options *o = user;
    if (n_workers > 1)
        (void)pin_thread(worker, n_workers, (int)o->threads);
}

static void show_progress(double share, void *user)
{
    static struct progress progress;
    (void)user;
    progress_show(&progress, share, "measuring traffic between workers");
}

/* The best matrix product of one worker replaces the guess of its arithmetic. */
static enum status measure_arithmetic(const struct machine_options *o, struct machine *m)
{
    struct bench_backend common = {.threads = o->threads};
    struct machine_kind *k = &m->kinds[m->devices[0].kind];
    struct bench_device d;
    struct bench_peak peak;
    log_progress("measuring matrix products");
    TRY(bench_device_open(&common, &d));
    enum status st = bench_peak_measure(&d, &peak);
    bench_device_close(&d);
    TRY(st);
    struct machine_rate *rate = &k->rates[ARITHMETIC_F32];
    rate->reached = peak.flops_per_s;
    rate->peak = fmax(rate->peak, peak.flops_per_s);
    k->note = "measured: matrix products of one worker alone, copies of all at once";
    return STATUS_OK;
}

static int count_cpus(const struct machine *m)
{
    int n = 0;
    while (n < m->n_devices && m->kinds[m->devices[n].kind].class == MACHINE_CPU)
        n++;
    return n;
}

static enum status measure_threads(const struct machine_options *o, struct machine *m)
{
    struct machine_measure_options options = {.workers =
                                                  o->workers ? (int)o->workers : count_cpus(m),
                                              .threads = (int)o->threads,
                                              .bind = bind_worker,
                                              .progress = show_progress,
                                              .user = (void *)(uintptr_t)o};
    if (options.workers * o->threads > pin_count_cores())
        log_warn("%d workers with %lld thread%s each share %d cores: they take turns, and the "
                 "figures are those of taking turns",
                 options.workers, (long long)o->threads, o->threads == 1 ? "" : "s",
                 pin_count_cores());
    TRY(measure_arithmetic(o, m));
    enum status st = machine_measure_threads(m, &options);
    log_progress_end();
    return st;
}

/* Numbers of nodes, in the order of their first ranks: processes on hosts of the same name are
 * neighbours. */
static enum status find_nodes(comm *process, int *node_of_rank)
{
    char name[HOST_NAME_BYTES] = "";
    size_t size = (size_t)process->size;
    int n_nodes = 0;
    char(*names)[HOST_NAME_BYTES] = calloc(size, sizeof *names);
    if (!names)
        return status_no_memory(size * sizeof *names);
    (void)gethostname(name, sizeof name - 1);
    enum status st = process->table->exchange(process, name, sizeof name, names);
    for (int i = 0; i < process->size && st == STATUS_OK; i++) {
        int before = 0;
        while (before < i && strcmp(names[before], names[i]) != 0)
            before++;
        node_of_rank[i] = before < i ? node_of_rank[before] : n_nodes++;
    }
    free(names);
    return st;
}

static enum status measure_joined(const struct machine_options *o, comm *process,
                                  const struct machine *own, const int *node_of_rank,
                                  struct machine **out)
{
    struct machine_measure_options options = {.threads = (int)o->threads,
                                              .bind = bind_worker,
                                              .progress = show_progress,
                                              .user = (void *)(uintptr_t)o};
    struct machine *m;
    TRY(machine_join(process, own, node_of_rank, &m));
    enum status st = machine_measure_processes(m, process, node_of_rank, &options);
    log_progress_end();
    if (st == STATUS_OK)
        *out = m;
    else
        machine_destroy(m);
    return st;
}

/* *m describes this process's host at first, all hosts in the end. */
static enum status measure_processes(const struct machine_options *o, comm *process,
                                     struct machine **m)
{
    size_t size = (size_t)process->size;
    int *node_of_rank = calloc(size, sizeof *node_of_rank);
    struct machine *joined = NULL;
    if (!node_of_rank)
        return status_no_memory(size * sizeof *node_of_rank);
    enum status st;
    TRY_GOTO(st, find_nodes(process, node_of_rank), out);
    TRY_GOTO(st, measure_joined(o, process, *m, node_of_rank, &joined), out);
    machine_destroy(*m);
    *m = joined;
out:
    free(node_of_rank);
    return st;
}

/* ---- the command ---- */

static enum status find_machine(const struct machine_options *o, struct machine **out)
{
    bool local = !strcmp(o->machine, "local");
    if (!local && o->measure)
        return status_fail(STATUS_USAGE, "--measure is for this machine: leave out --machine %s",
                           o->machine);
    if (!local && o->threads > 1)
        return status_fail(STATUS_USAGE, "--threads is for this machine: leave out --machine %s",
                           o->machine);
    if (o->workers && !o->measure)
        return status_fail(STATUS_USAGE, "--workers counts the threads of --measure: give both");
    return local ? machine_discover((int)o->threads, out) : machine_parse(o->machine, out);
}

/* Under mpirun and srun all processes measure together, and the first prints the machine. */
static enum status run_processes(const struct machine_options *o, struct machine **m)
{
    comm *process;
    TRY(comm_mpi_create(process_wait_s, &process));
    bool writes = o->output && process->rank == 0;
    enum status st = writes ? whole_file_check_place(o->output) : STATUS_OK;
    if (st == STATUS_OK)
        st = measure_processes(o, process, m);
    if (st == STATUS_OK && process->rank == 0)
        st = show(o, *m);
    else if (st != STATUS_OK && !process->told)
        process->table->abort(process, st, status_message());
    if (st == STATUS_LOST && process->told)
        command_leave_report();
    command_report(st);
    if (st == STATUS_LOST && process->cause != STATUS_OK)
        st = process->cause; /* the job's code is that of its first failure */
    process->table->destroy(process);
    return st;
}

static enum status run_alone(const struct machine_options *o, struct machine *m)
{
    if (o->output)
        TRY(whole_file_check_place(o->output));
    if (o->measure)
        TRY(measure_threads(o, m));
    return show(o, m);
}

enum status command_machine(int argc, char **argv)
{
    struct machine_options o;
    struct machine *m;
    bool help;
    int rank, size;
    TRY(parse(argc, argv, &o, &help));
    if (help)
        return STATUS_OK;
    if (o.list)
        return print_list();
    TRY(whole_file_check_input("-o", o.output, o.machine));
    TRY(find_machine(&o, &m));
    bool together = o.measure && comm_mpi_launched(&rank, &size) && size > 1;
    enum status st = together ? run_processes(&o, &m) : run_alone(&o, m);
    machine_destroy(m);
    return st;
}
