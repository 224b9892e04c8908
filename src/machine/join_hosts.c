/* Joins the machines of several hosts into one: the processes exchange theirs as text. */
#include "machine/builder.h"

#include "base/numbers.h"
#include "machine/machine_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct texts {
    char *mine, *all;
    int64_t *sizes;
    int64_t room; /* bytes of each text in `all` */
};

/* Gives all texts to all processes: first the lengths, then the texts, each padded to the longest.
 */
static enum status exchange(comm *process, const struct machine *own, struct texts *t)
{
    int64_t n_bytes = 0;
    size_t size = (size_t)process->size;
    TRY(machine_write_text(own, &t->mine));
    n_bytes = (int64_t)strlen(t->mine);
    t->sizes = calloc(size, sizeof *t->sizes);
    if (!t->sizes)
        return status_no_memory(size * sizeof *t->sizes);
    TRY(process->table->exchange(process, &n_bytes, sizeof n_bytes, t->sizes));
    for (size_t i = 0; i < size; i++)
        t->room = int64_max(t->room, t->sizes[i]);
    char *padded = realloc(t->mine, (size_t)t->room + 1);
    t->all = calloc(size, (size_t)t->room);
    t->mine = padded ? padded : t->mine;
    if (!padded || !t->all)
        return status_no_memory(size * (size_t)t->room);
    memset(t->mine + n_bytes, 0, (size_t)(t->room - n_bytes) + 1);
    return process->table->exchange(process, t->mine, t->room, t->all);
}

/* ---- joining ---- */

static bool same_rates(const struct machine_kind *a, const struct machine_kind *b)
{
    bool same = true;
    for (int i = 0; i < ARITHMETIC_COUNT; i++)
        same &= a->rates[i].peak == b->rates[i].peak && a->rates[i].reached == b->rates[i].reached;
    return same;
}

static bool same_kind(const struct machine_kind *a, const struct machine_kind *b)
{
    return !strcmp(a->name, b->name) && !strcmp(a->about, b->about) && a->class == b->class &&
           same_rates(a, b) && a->peak_bytes_per_s == b->peak_bytes_per_s &&
           a->reached_bytes_per_s == b->reached_bytes_per_s && a->memory_bytes == b->memory_bytes &&
           a->cores == b->cores;
}

/* The machine's equal kind if it has one; a different kind of the same name gets a number: "cpu-2".
 */
static enum status use_kind(struct machine_builder *b, const struct machine_kind *kind, int *out)
{
    struct machine_kind named = *kind;
    char name[120];
    for (int number = 2;; number++) {
        int there = machine_find_kind(b->m, named.name);
        if (there < 0)
            return machine_add_kind(b, &named, out);
        named.name = kind->name;
        struct machine_kind other = b->m->kinds[there];
        other.name = kind->name;
        if (same_kind(&other, kind)) {
            *out = there;
            return STATUS_OK;
        }
        (void)snprintf(name, sizeof name, "%.80s-%d", kind->name, number);
        named.name = name;
    }
}

static struct machine_port port_of(const struct machine *m, int device)
{
    int out = m->device_out[device];
    if (out < 0)
        return machine_kind_port(&m->kinds[m->devices[device].kind]);
    return (struct machine_port){m->links[out].bytes_per_s, 2 * m->links[out].latency_s};
}

static enum status add_device(struct machine_builder *b, const struct machine *host, int number)
{
    int kind = 0;
    TRY(use_kind(b, &host->kinds[host->devices[number].kind], &kind));
    TRY(machine_add_device(b, kind));
    return machine_add_device_port(b, port_of(host, number));
}

/* A host has one CPU device for each of its ranks, not one for each core. */
static enum status add_host(struct machine_builder *b, const struct machine *host, int n_ranks)
{
    int n = host->nodes[0].n_devices, n_cpus = 0;
    while (n_cpus < n && host->kinds[host->devices[n_cpus].kind].class == MACHINE_CPU)
        n_cpus++;
    TRY(machine_add_node(b, &host->nodes[0]));
    for (int i = 0; i < n_ranks && n_cpus > 0; i++)
        TRY(add_device(b, host, i % n_cpus));
    for (int i = n_cpus; i < n; i++)
        TRY(add_device(b, host, i));
    return STATUS_OK;
}

static int count_ranks(const comm *process, const int *node_of_rank, int node)
{
    int n = 0;
    for (int i = 0; i < process->size; i++)
        n += node_of_rank[i] == node;
    return n;
}

/* At first a host's name is "BOOT/CORES" (host.c). */
static bool same_host(const struct machine_node *a, const struct machine_node *b)
{
    size_t n = strcspn(a->host, "/");
    return n == strcspn(b->host, "/") && strncmp(a->host, b->host, n) == 0;
}

/* A host that several nodes share is named after the first of them; others need no name. */
static enum status name_hosts(struct machine *m)
{
    const char **names;
    TRY(arena_alloc_array(m->memory, (size_t)m->n_nodes, sizeof *names, &names));
    for (int i = 0; i < m->n_nodes; i++) {
        struct machine_node *node = &m->nodes[i];
        int first = i, n = 0, n_on_cores = 0;
        for (int k = m->n_nodes - 1; k >= 0; k--)
            if (same_host(&m->nodes[k], node)) {
                first = k;
                n++;
                n_on_cores += !strcmp(m->nodes[k].host, node->host);
            }
        names[i] = *node->host && n > 1 ? m->nodes[first].name : "";
        node->own_cores = n > 1 && n_on_cores == 1 ? node->cores : 0;
    }
    for (int i = 0; i < m->n_nodes; i++)
        m->nodes[i].host = names[i];
    return STATUS_OK;
}

static enum status add_hosts(struct machine_builder *b, const comm *process,
                             const int *node_of_rank, const struct texts *t)
{
    int n_nodes = 1;
    for (int rank = 0; rank < process->size; rank++)
        n_nodes = int_max(n_nodes, node_of_rank[rank] + 1);
    for (int rank = 0, next = 0; rank < process->size; rank++) {
        struct machine *host;
        if (node_of_rank[rank] < next)
            continue;
        if (node_of_rank[rank] > next)
            return status_fail(STATUS_USAGE, "nodes are numbered in the order of their first rank");
        int n_ranks = count_ranks(process, node_of_rank, next++);
        TRY(machine_parse_json(t->all + rank * t->room, (size_t)t->sizes[rank], "a host's machine",
                               &host));
        enum status st = add_host(b, host, n_ranks);
        if (st == STATUS_OK && rank == 0) /* all processes name it the same */
            st = arena_copy_text(b->m->memory, host->name, &b->m->name);
        machine_destroy(host);
        TRY(st);
        if (n_nodes > 1)
            TRY(machine_add_node_port(b, machine_usual_network));
    }
    return STATUS_OK;
}

enum status machine_join(comm *process, const struct machine *own, const int *node_of_rank,
                         struct machine **out)
{
    struct texts t = {0};
    struct machine_builder b;
    char source[120];
    enum status st;
    (void)snprintf(source, sizeof source, "the hosts of %d processes", process->size);
    TRY_GOTO(st, exchange(process, own, &t), out);
    TRY_GOTO(st, machine_begin("", source, &b), out);
    st = add_hosts(&b, process, node_of_rank, &t);
    if (st == STATUS_OK)
        st = name_hosts(b.m);
    if (st == STATUS_OK)
        st = machine_finish(&b, out);
    else
        machine_abandon(&b);
out:
    free(t.mine);
    free(t.all);
    free(t.sizes);
    return st;
}
