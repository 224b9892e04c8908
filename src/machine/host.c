/* Builds a machine of one node from the description of a host. */
#include "machine/builder.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/numbers.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* The share of the arithmetic peak that good kernels reach. */
static const double reached_share = 0.7;
static const double usual_clock_hz = 2.5e9;

/* ---- the speed of a core ---- */

/* Single precision operations in a cycle, a multiply-add being two, with two vector units. */
static double flops_per_cycle(void)
{
#if defined(__x86_64__) || defined(__i386__)
    if (__builtin_cpu_supports("avx512f"))
        return 64;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 32;
    return __builtin_cpu_supports("avx") ? 16 : 8;
#else
    return 16;
#endif
}

/* The maximum clock that Linux reports, or else the current one. */
static double clock_hz(void)
{
    double khz = 0, mhz = 0, most = 0;
    char line[256];
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "r");
    if (f) {
        bool fine = fscanf(f, "%lf", &khz) == 1;
        (void)fclose(f);
        if (fine && khz > 1e5)
            return khz * 1e3;
    }
    f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "cpu MHz : %lf", &mhz) == 1 && mhz > most)
            most = mhz;
    if (f)
        (void)fclose(f);
    return most > 100 ? most * 1e6 : usual_clock_hz;
}

/* ---- kinds ---- */

/* The generic core of devices.json, with this host's figures where it is this host, `threads` units
 * of it. */
static enum status describe_cpu(const struct machine_host *h, int threads, arena *memory,
                                struct machine_kind *k)
{
    bool found;
    TRY(machine_library_kind("cpu", memory, k, &found));
    if (!found)
        return status_fail(STATUS_FAILED, "machines/devices.json has no device 'cpu'");
    if (*h->cpu)
        k->about = h->cpu;
    if (h->here) {
        double peak = flops_per_cycle() * clock_hz();
        k->rates[ARITHMETIC_F32] = (struct machine_rate){peak, reached_share * peak};
        k->note = "flops from clock and vector width, memory from a generic core: "
                  "'cleave machine --measure' replaces the reached figures";
    }
    double share = h->units > h->cores && h->cores > 0 ? (double)h->cores / h->units : 1;
    k->cores = threads;
    for (int i = 0; i < ARITHMETIC_COUNT; i++) {
        k->rates[i].peak *= share * threads;
        k->rates[i].reached *= share * threads;
    }
    k->peak_bytes_per_s *= threads;
    k->reached_bytes_per_s *= threads;
    return STATUS_OK;
}

static enum status add_cpus(struct machine_builder *b, const struct machine_host *h, int threads)
{
    struct machine_kind kind;
    int number = 0, n = int_max(h->units / threads, 1);
    TRY(describe_cpu(h, threads, b->m->memory, &kind));
    TRY(machine_add_kind(b, &kind, &number));
    for (int i = 0; i < n; i++) {
        TRY(machine_add_device(b, number));
        TRY(machine_add_device_port(b, machine_kind_port(&kind)));
    }
    return STATUS_OK;
}

static enum status add_gpus(struct machine_builder *b, const struct machine_host *h)
{
    for (int i = 0; i < h->n_gpus; i++) {
        struct machine_kind kind;
        bool found;
        TRY(machine_library_match(h->gpus[i], b->m->memory, &kind, &found));
        if (!found) {
            (h->here ? log_info
                     : log_warn)("%s: GPU '%s' is not among the known devices, and left out",
                                 b->m->name, h->gpus[i]);
            continue;
        }
        int number = machine_find_kind(b->m, kind.name);
        if (number < 0)
            TRY(machine_add_kind(b, &kind, &number));
        TRY(machine_add_device(b, number));
        TRY(machine_add_device_port(b, machine_kind_port(&kind)));
    }
    return STATUS_OK;
}

/* The boot ID is the same for all nodes (containers, namespaces) under one kernel; "": unknown. */
static void read_boot(char *text, int size)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    text[0] = '\0';
    if (!f)
        return;
    if (!fgets(text, size, f))
        text[0] = '\0';
    (void)fclose(f);
    text[strcspn(text, "\n")] = '\0';
}

/* Appends a hash of the cores that this process may use. */
static void add_cores(char *text, size_t size)
{
    cpu_set_t set;
    size_t n = strlen(text);
    uint64_t hash = 1;
    if (!*text || sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            hash = (hash ^ (uint64_t)(i + 1)) * 0x100000001b3u;
    (void)snprintf(text + n, size - n, "/%016llx", (unsigned long long)hash);
}

static enum status add_host(struct machine_builder *b, const struct machine_host *h, int threads,
                            bool gpus_alone)
{
    char boot[64] = "";
    int64_t memory_bytes = h->memory_bytes;
    if (h->here) { /* the limit that training will have */
        TRY(memory_find_limit(&memory_bytes));
        memory_bytes = memory_bytes < INT64_MAX ? memory_bytes : 0;
        read_boot(boot, (int)sizeof boot);
    }
    add_cores(boot, sizeof boot);
    struct machine_node node = {.name = *h->name ? h->name : NULL,
                                .about = h->about,
                                .memory_bytes = memory_bytes,
                                .cores = h->units,
                                .host = boot};
    TRY(machine_add_node(b, &node));
    if (!gpus_alone)
        TRY(add_cpus(b, h, threads));
    TRY(add_gpus(b, h));
    return b->m->n_devices == 0 ? add_cpus(b, h, threads) : STATUS_OK;
}

enum status machine_build_host(const struct machine_host *host, int threads, bool gpus_alone,
                               const char *name, const char *source, struct machine **out)
{
    struct machine_builder b;
    if (threads < 1)
        return status_fail(STATUS_USAGE, "%d threads of a worker: at least one is needed", threads);
    TRY(machine_begin(name, source, &b));
    enum status st = add_host(&b, host, threads, gpus_alone);
    if (st == STATUS_OK)
        return machine_finish(&b, out);
    machine_abandon(&b);
    return st;
}
