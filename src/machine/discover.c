/* Hosts through hwloc: this host, an XML file, or a synthetic string. */
#include "machine/builder.h"

#include "base/log.h"
#include "base/numbers.h"

#include <hwloc.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Threads of the cores of as many devices as a machine may have. */
enum { MOST_DESCRIBED = 2 * MACHINE_MAX_DEVICES };

enum { PCI_NVIDIA = 0x10de, PCI_AMD = 0x1002, PCI_DISPLAY = 0x03, XML_LEAST_BYTES = 16 };

/* ---- looking ---- */

/* The processing units that this process may use; the caller frees it. NULL: no memory. */
static hwloc_cpuset_t find_allowed(hwloc_topology_t t, bool here)
{
    hwloc_cpuset_t allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(t));
    hwloc_cpuset_t bound = hwloc_bitmap_alloc();
    if (allowed && bound && here && hwloc_get_cpubind(t, bound, HWLOC_CPUBIND_PROCESS) == 0)
        (void)hwloc_bitmap_and(allowed, allowed, bound);
    hwloc_bitmap_free(bound);
    return allowed;
}

static int count(hwloc_topology_t t, hwloc_const_cpuset_t set, hwloc_obj_type_t type)
{
    return int_max(hwloc_get_nbobjs_inside_cpuset_by_type(t, set, type), 0);
}

static void add_text(char *text, size_t size, const char *part)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s%s", used ? ", " : "", part);
}

static void add_count(char *text, size_t size, int n, const char *one, const char *many)
{
    char part[64];
    (void)snprintf(part, sizeof part, "%d %s", n, n == 1 ? one : many);
    if (n > 0)
        add_text(text, size, part);
}

/* "L3 2 x 32 MiB" */
static void add_cache(char *text, size_t size, hwloc_topology_t t, hwloc_obj_type_t type,
                      const char *name)
{
    char part[64];
    int n = hwloc_get_nbobjs_by_type(t, type);
    hwloc_obj_t cache = n > 0 ? hwloc_get_obj_by_type(t, type, 0) : NULL;
    if (!cache || !cache->attr || cache->attr->cache.size == 0)
        return;
    double bytes = (double)cache->attr->cache.size;
    bool large = bytes >= 1 << 20;
    char number[16] = "";
    if (n > 1)
        (void)snprintf(number, sizeof number, "%d x ", n);
    (void)snprintf(part, sizeof part, "%s %s%.4g %s", name, number,
                   bytes / (large ? 1 << 20 : 1 << 10), large ? "MiB" : "KiB");
    add_text(text, size, part);
}

static void describe(hwloc_topology_t t, hwloc_const_cpuset_t allowed, struct machine_host *h)
{
    size_t size = sizeof h->about;
    add_count(h->about, size, hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE), "package",
              "packages");
    add_count(h->about, size, count(t, allowed, HWLOC_OBJ_CORE), "core", "cores");
    if (h->units != h->cores)
        add_count(h->about, size, h->units, "hardware thread", "hardware threads");
    add_count(h->about, size, hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE), "NUMA node",
              "NUMA nodes");
    add_cache(h->about, size, t, HWLOC_OBJ_L2CACHE, "L2");
    add_cache(h->about, size, t, HWLOC_OBJ_L3CACHE, "L3");
}

static const char *info(hwloc_obj_t o, const char *key)
{
    const char *value = o ? hwloc_obj_get_info_by_name(o, key) : NULL;
    return value ? value : "";
}

/* ---- GPUs ---- */

static bool is_gpu(hwloc_obj_t o)
{
    unsigned vendor = o->attr->pcidev.vendor_id;
    return o->attr->pcidev.class_id >> 8 == PCI_DISPLAY &&
           (vendor == PCI_NVIDIA || vendor == PCI_AMD);
}

/* The driver's name, from an OS device below the PCI device; or that of the PCI list. */
static const char *gpu_model(hwloc_obj_t pci)
{
    for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling) {
        const char *model = info(o, "GPUModel");
        if (*model)
            return model;
    }
    return pci->name && *pci->name ? pci->name : info(pci, "PCIDevice");
}

static void find_gpus(hwloc_topology_t t, struct machine_host *h)
{
    for (hwloc_obj_t o = hwloc_get_next_pcidev(t, NULL); o; o = hwloc_get_next_pcidev(t, o)) {
        if (!is_gpu(o) || h->n_gpus == MACHINE_HOST_GPUS)
            continue;
        (void)snprintf(h->gpus[h->n_gpus++], MACHINE_HOST_TEXT, "%.120s [%04x:%04x]", gpu_model(o),
                       o->attr->pcidev.vendor_id, o->attr->pcidev.device_id);
    }
}

static void look_at(hwloc_topology_t t, hwloc_const_cpuset_t allowed, struct machine_host *h)
{
    hwloc_obj_t root = hwloc_get_root_obj(t);
    hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
    h->units = int_max(hwloc_bitmap_weight(allowed), 1);
    h->cores = count(t, allowed, HWLOC_OBJ_CORE);
    if (root->total_memory <= INT64_MAX)
        h->memory_bytes = (int64_t)root->total_memory;
    (void)snprintf(h->name, sizeof h->name, "%.63s", info(root, "HostName"));
    (void)snprintf(h->cpu, sizeof h->cpu, "%.150s", info(package, "CPUModel"));
    describe(t, allowed, h);
    find_gpus(t, h);
}

/* ---- loading ---- */

/* Sets what hwloc reads; 0 on success. */
typedef int set_source(hwloc_topology_t t, const void *text, size_t n_bytes);

static int set_xml(hwloc_topology_t t, const void *text, size_t n_bytes)
{
    return n_bytes < INT_MAX ? hwloc_topology_set_xmlbuffer(t, text, (int)n_bytes) : -1;
}

static int set_synthetic(hwloc_topology_t t, const void *text, size_t n_bytes)
{
    (void)n_bytes;
    return hwloc_topology_set_synthetic(t, text);
}

/* Linux itself lists the PCI bus, with numbers that suffice. The plugins that add names
 * (libpciaccess, OpenCL, X servers) are slow and leak. */
static void leave_out_plugins(hwloc_topology_t t)
{
    static const char *const plugins[] = {"pci", "opencl", "gl"};
    for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
        (void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            plugins[i]); /* fails if there is no such plugin */
}

/* libudev, which hwloc uses, is not thread-safe. */
static bool load_alone(hwloc_topology_t t)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    bool loaded = hwloc_topology_load(t) == 0;
    pthread_mutex_unlock(&lock);
    return loaded;
}

/* False: hwloc refuses it. The caller destroys *t. */
static bool load(set_source *set, const void *text, size_t n_bytes, hwloc_topology_t *t)
{
    if (hwloc_topology_init(t) != 0)
        return false;
    leave_out_plugins(*t);
    if ((!set || set(*t, text, n_bytes) == 0) &&
        hwloc_topology_set_io_types_filter(*t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        load_alone(*t))
        return true;
    hwloc_topology_destroy(*t);
    return false;
}

static enum status build(hwloc_topology_t t, struct machine_host *h, int threads, const char *name,
                         const char *source, struct machine **out)
{
    hwloc_cpuset_t allowed = find_allowed(t, h->here);
    if (!allowed)
        return status_no_memory(1);
    look_at(t, allowed, h);
    hwloc_bitmap_free(allowed);
    return machine_build_host(h, threads, !h->here, name, source, out);
}

/* ---- the ways in ---- */

enum status machine_discover(int threads, struct machine **out)
{
    hwloc_topology_t t;
    struct machine_host h = {.here = true};
    if (!load(NULL, NULL, 0, &t))
        return status_fail(STATUS_FAILED, "hwloc cannot look at this host");
    enum status st = build(t, &h, threads, "local", "this host, by hwloc", out);
    hwloc_topology_destroy(t);
    return st;
}

enum status machine_parse_xml(const char *text, size_t n_bytes, const char *where,
                              struct machine **out)
{
    hwloc_topology_t t;
    struct machine_host h = {0};
    /* hwloc's length includes the terminating zero. */
    if (n_bytes < XML_LEAST_BYTES || !load(set_xml, text, n_bytes + 1, &t))
        return status_fail(STATUS_FAILED, "%.200s: hwloc cannot read it as a description of a host",
                           where);
    enum status st = build(t, &h, 1, where, "an hwloc XML file", out);
    hwloc_topology_destroy(t);
    return st;
}

/* What the levels of a description multiply to: "package:2 core:8 pu:1", "2 8 1",
 * "numa:2(memory=4G) [l2] core:4". hwloc takes minutes for a hundred thousand of them. */
static double count_described(const char *at)
{
    double all = 1;
    while (*at) {
        size_t length = strcspn(at, " \t\n([");
        const char *colon = memchr(at, ':', length), *number = colon ? colon + 1 : at;
        if (length > 0 && *number >= '0' && *number <= '9')
            all *= strtod(number, NULL);
        at += length;
        if (*at == '(' || *at == '[') /* attributes, and attached parts */
            at += strcspn(at, ")]");
        at += *at != '\0';
    }
    return all;
}

enum status machine_parse_synthetic(const char *text, struct machine **out)
{
    hwloc_topology_t t;
    struct machine_host h = {0};
    const char *description = strchr(text, ':') + 1;
    if (count_described(description) > MOST_DESCRIBED)
        return status_fail(STATUS_USAGE,
                           "machine '%.120s': describes %.0f processing units, at most %d are "
                           "looked at",
                           text, count_described(description), MOST_DESCRIBED);
    log_progress("reading %.60s", text); /* thousands of units take seconds */
    bool loaded = load(set_synthetic, description, strlen(description), &t);
    log_progress_end();
    if (!loaded)
        return status_fail(STATUS_USAGE,
                           "machine '%.120s': hwloc does not understand it; it is like "
                           "'synthetic:package:2 core:8 pu:1'",
                           text);
    enum status st = build(t, &h, 1, text, "an hwloc synthetic string", out);
    hwloc_topology_destroy(t);
    return st;
}
