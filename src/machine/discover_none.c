/* For builds without hwloc: what Linux reports. */
#include "machine/builder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void find_model(struct machine_host *h)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !*h->cpu && fgets(line, sizeof line, f))
        (void)sscanf(line, "model name : %150[^\n]", h->cpu);
    if (f)
        (void)fclose(f);
}

enum status machine_discover(int threads, struct machine **out)
{
    struct machine_host h = {.here = true};
    long units = sysconf(_SC_NPROCESSORS_ONLN);
    h.units = units > 0 ? (int)units : 1;
    if (gethostname(h.name, sizeof h.name - 1) != 0)
        h.name[0] = '\0';
    (void)snprintf(h.about, sizeof h.about, "%d processing unit%s", h.units,
                   h.units == 1 ? "" : "s");
    find_model(&h);
    return machine_build_host(&h, threads, false, "local", "this host, by the system", out);
}

static enum status fail_without(const char *where)
{
    return status_fail(STATUS_USAGE,
                       "%.200s: this build has no hwloc to read it (Debian package libhwloc-dev, "
                       "then build again)",
                       where);
}

enum status machine_parse_xml(const char *text, size_t n_bytes, const char *where,
                              struct machine **out)
{
    (void)text;
    (void)n_bytes;
    (void)out;
    return fail_without(where);
}

enum status machine_parse_synthetic(const char *text, struct machine **out)
{
    (void)out;
    return fail_without(text);
}
