#include "runtime/pin.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

/* The machine, and the cores of it that this process may use. */
struct cores {
    hwloc_topology_t topology;
    hwloc_cpuset_t allowed;
};

static void cores_close(struct cores *c)
{
    if (c->allowed)
        hwloc_bitmap_free(c->allowed);
    if (c->topology)
        hwloc_topology_destroy(c->topology);
    *c = (struct cores){0};
}

static bool cores_open(struct cores *c)
{
    *c = (struct cores){0};
    if (hwloc_topology_init(&c->topology) != 0)
        return false;
    c->allowed = hwloc_topology_load(c->topology) == 0 ? hwloc_bitmap_alloc() : NULL;
    if (c->allowed) {
        hwloc_const_cpuset_t all = hwloc_topology_get_allowed_cpuset(c->topology);
        if (hwloc_get_cpubind(c->topology, c->allowed, HWLOC_CPUBIND_PROCESS) != 0)
            (void)hwloc_bitmap_copy(c->allowed, all);
        else
            (void)hwloc_bitmap_and(c->allowed, c->allowed, all);
        return true;
    }
    cores_close(c);
    return false;
}

int pin_count_cores(void)
{
    struct cores c;
    if (!cores_open(&c))
        return (int)sysconf(_SC_NPROCESSORS_ONLN);
    int n = hwloc_bitmap_weight(c.allowed);
    cores_close(&c);
    return n > 0 ? n : 1;
}

uint64_t pin_identify_cores(void)
{
    struct cores c;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    uint64_t identity = XXH64(host, sizeof host, 0);
    char *text = NULL;
    if (cores_open(&c) && hwloc_bitmap_asprintf(&text, c.allowed) > 0)
        for (const char *at = text; *at; at++)
            identity = XXH64(at, 1, identity);
    free(text);
    cores_close(&c);
    return identity;
}

/* Joins objects [first, first + count) of that type; false if there are not `needed` of them. */
static bool gather(const struct cores *c, hwloc_obj_type_t type, int first, int count, int needed,
                   hwloc_cpuset_t out)
{
    if (hwloc_get_nbobjs_inside_cpuset_by_type(c->topology, c->allowed, type) < needed)
        return false;
    for (int i = first; i < first + count; i++) {
        hwloc_obj_t o =
            hwloc_get_obj_inside_cpuset_by_type(c->topology, c->allowed, type, (unsigned)i);
        if (!o)
            return false;
        (void)hwloc_bitmap_or(out, out, o->cpuset);
    }
    return true;
}

static bool bind_thread(const struct cores *c, int place, int n_places, int threads)
{
    hwloc_cpuset_t mine = hwloc_bitmap_alloc();
    if (!mine)
        return false;
    int first = place * threads, needed = n_places * threads;
    bool found = gather(c, HWLOC_OBJ_CORE, first, threads, needed, mine);
    if (!found) {
        hwloc_bitmap_zero(mine);
        found = gather(c, HWLOC_OBJ_PU, first, threads, needed, mine);
    }
    found = found && hwloc_set_cpubind(c->topology, mine, HWLOC_CPUBIND_THREAD) == 0;
    hwloc_bitmap_free(mine);
    return found;
}

bool pin_thread(int place, int n_places, int threads)
{
    struct cores c;
    if (!cores_open(&c))
        return false;
    bool bound = bind_thread(&c, place, n_places, threads);
    cores_close(&c);
    return bound;
}

void pin_remember(struct pin_mask *mask)
{
    mask->is_known = sched_getaffinity(0, sizeof mask->cpus, (cpu_set_t *)(void *)mask->cpus) == 0;
}

void pin_restore(const struct pin_mask *mask)
{
    if (mask->is_known)
        (void)sched_setaffinity(0, sizeof mask->cpus, (const cpu_set_t *)(const void *)mask->cpus);
}
