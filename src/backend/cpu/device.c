#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_parts.h"
#include "base/log.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum status cpu_check(dnnl_status_t status, const char *call)
{
    static const char *const names[] = {"success",       "out of memory", "invalid arguments",
                                        "unimplemented", "iterator ends", "runtime error",
                                        "not required"};
    if (status == dnnl_success)
        return STATUS_OK;
    unsigned n = (unsigned)status;
    return status_fail(STATUS_FAILED, "oneDNN: %s in %.*s",
                       n < sizeof names / sizeof names[0] ? names[n] : "error",
                       (int)strcspn(call, "("), call);
}

/* With OMP_DYNAMIC the library may make a team smaller than oneDNN was told, which then waits for
 * the missing threads without end. */
void cpu_use_threads(const device *d)
{
    if (omp_get_dynamic())
        omp_set_dynamic(0);
    if (omp_get_max_threads() != d->threads)
        omp_set_num_threads(d->threads);
}

static const char *isa_name(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "other";
    }
}

/* The loops must be as wide as the blocks that oneDNN's kernels for this machine want. */
static const struct cpu_loops *choose_loops(void)
{
    const struct cpu_loops *loops = NULL;
    if (dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core)
        loops = cpu_loops_avx512();
    if (!loops)
        loops = cpu_loops_avx2();
    return loops ? loops : cpu_loops_baseline();
}

/* The closing thread's team ends, too. A team that waits for its next device counts as busy, and
 * where more threads are busy than there are cores all teams of the process go to sleep at every
 * barrier: one worker with two threads took twice the time after another one had been measured. */
static void end_team(const device *d)
{
    if (d->threads > 1 && !d->describe_only)
        (void)omp_pause_resource_all(omp_pause_soft);
}

static void device_close(device *d)
{
    if (!d)
        return;
    waiting_end(d);
    end_team(d);
    described_destroy_all(d);
    layout_destroy_all(d);
    if (d->stream)
        (void)dnnl_stream_destroy(d->stream);
    if (d->engine)
        (void)dnnl_engine_destroy(d->engine);
    free(d);
}

static enum status open_engine(device *d)
{
    TRY_DNNL(dnnl_engine_create(&d->engine, dnnl_cpu, 0));
    TRY_DNNL(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags));
    return STATUS_OK;
}

/* OMP_THREAD_LIMIT is the user's: a larger team would not come together, and oneDNN would wait for
 * it without end. */
static int choose_threads(const struct device_options *options)
{
    static atomic_bool said;
    int wanted = options->threads > 0 ? options->threads : omp_get_num_procs();
    int most = omp_get_thread_limit();
    if (wanted <= most || options->describe_only)
        return wanted;
    if (!atomic_exchange(&said, true))
        log_warn("OMP_THREAD_LIMIT=%d: a worker computes with %d thread%s, not with %d", most, most,
                 most == 1 ? "" : "s", wanted);
    return most;
}

/* Under a limit on the address space (ulimit -v), where oneDNN and OpenMP do not look whether they
 * got memory: as much as they may take at any time must be left. */
static enum status check_room(const device *d)
{
    enum { MEGABYTE = 1000000, LIBRARIES = 48 * MEGABYTE, STACK = 8 << 20 };
    struct rlimit limit;
    if (d->describe_only || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return STATUS_OK;
    size_t room = LIBRARIES + (size_t)d->threads * STACK;
    void *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return status_fail(STATUS_FAILED,
                           "the address space is limited to %llu MB (ulimit -v), which leaves less "
                           "than the %zu MB that oneDNN and %d thread%s may take: raise the limit",
                           (unsigned long long)limit.rlim_cur / MEGABYTE, room / MEGABYTE,
                           d->threads, d->threads == 1 ? "" : "s");
    (void)munmap(p, room);
    return STATUS_OK;
}

static enum status device_open(const struct device_options *options, device **out)
{
    device *d = calloc(1, sizeof *d);
    if (!d)
        return status_no_memory(sizeof *d);
    d->threads = choose_threads(options);
    d->describe_only = options->describe_only;
    cpu_use_threads(d);
    d->loops = choose_loops();
    const dnnl_version_t *v = dnnl_version();
    (void)snprintf(d->description, sizeof d->description,
                   "oneDNN %d.%d.%d %s, loops %s, threads %d", v->major, v->minor, v->patch,
                   isa_name(), d->loops->name, d->threads);
    enum status st = check_room(d);
    if (st == STATUS_OK)
        st = open_engine(d);
    if (st != STATUS_OK) {
        device_close(d);
        return st;
    }
    *out = d;
    return STATUS_OK;
}

static int device_threads(const device *d)
{
    return d->threads;
}

bool cpu_computes_in(enum precision precision)
{
    return precision == PRECISION_FLOAT || precision == PRECISION_BF16;
}

static const char *device_describe(const device *d)
{
    return d->description;
}

/* Huge pages where the system has them: fewer misses of the TLB, and no run that is slower than
 * another because its small pages happen to fall on the same lines of a cache. Not for less than
 * half of one: of a thousand workers each would take several times what it needs. Pages are touched
 * here, by the team that will use them, so the step meets no page fault and NUMA places memory near
 * its user. */
enum status cpu_memory_alloc(device *d, int64_t n_bytes, void **out)
{
    enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };
    bool is_huge = n_bytes >= HUGE_PAGE / 2;
    size_t alignment = is_huge ? HUGE_PAGE : 64;
    size_t size = ((size_t)n_bytes + alignment - 1) / alignment * alignment;
    char *p = aligned_alloc(alignment, size);
    if (!p)
        return status_no_memory(size);
    enum status st = check_room(d);
    if (st != STATUS_OK) {
        free(p);
        return st;
    }
    if (is_huge)
        (void)madvise(p, size, MADV_HUGEPAGE); /* a wish: small pages do as well */
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t at = 0; at < size; at += PAGE)
        memset(p + at, 0, size - at < PAGE ? size - at : PAGE);
    *out = p;
    return STATUS_OK;
}

static void memory_free(device *d, void *p)
{
    (void)d;
    free(p);
}

/* A CPU stream runs each call at once; events are always reached. */
static enum status stream_create(device *d, stream **out)
{
    *out = malloc(sizeof **out);
    if (!*out)
        return status_no_memory(sizeof **out);
    (*out)->device = d;
    return STATUS_OK;
}

static void stream_destroy(stream *s)
{
    free(s);
}

static enum status stream_synchronize(stream *s)
{
    (void)s;
    return STATUS_OK;
}

struct event {
    device *device;
};

static enum status event_create(device *d, event **out)
{
    *out = malloc(sizeof **out);
    if (!*out)
        return status_no_memory(sizeof **out);
    (*out)->device = d;
    return STATUS_OK;
}

static void event_destroy(event *e)
{
    free(e);
}

static enum status event_reached(event *e, stream *s)
{
    (void)e;
    (void)s;
    return STATUS_OK;
}

int64_t cpu_layout_bytes(const layout *l)
{
    return l->n_bytes;
}

enum element cpu_layout_type(const layout *l)
{
    return l->type;
}

static enum status layout_plain(device *d, enum element type, const struct shape *shape,
                                const layout **out)
{
    TRY(layout_get_plain(d, shape, out));
    return layout_get_in_type(d, type, *out, out);
}

static enum status layout_transfer(device *d, enum element type, const struct shape *region,
                                   const struct axes *axes, const layout **out)
{
    TRY(layout_get_transfer(d, region, axes, out));
    return layout_get_in_type(d, type, *out, out);
}

static const struct shape *layout_shape(const layout *l)
{
    return &l->shape;
}

static const char *layout_text(const layout *l, char *text, size_t size)
{
    size_t n = strlen(l->text);
    if (size == 0)
        return text;
    n = n < size ? n : size - 1;
    memcpy(text, l->text, n);
    text[n] = '\0';
    return text;
}

static enum status upload(stream *s, const float *host, void *to, const layout *l)
{
    if (l->type == ELEMENT_BF16)
        return narrow_upload(s->device, l, host, to);
    return layout_pack(s->device, l, host, to);
}

static enum status download(stream *s, const void *from, const layout *l, float *host)
{
    if (l->type == ELEMENT_BF16)
        return narrow_download(s->device, l, from, host);
    return layout_unpack(s->device, l, from, host);
}

static enum status upload_labels(stream *s, const int32_t *host, int64_t count, int32_t *to)
{
    (void)s;
    memcpy(to, host, (size_t)count * sizeof *host);
    return STATUS_OK;
}

const struct backend backend_cpu = {
    .name = "cpu",
    .about = "oneDNN and vectorised loops on the cores of this machine",
    .computes_in = cpu_computes_in,
    .device_open = device_open,
    .device_close = device_close,
    .device_threads = device_threads,
    .device_describe = device_describe,
    .memory_alloc = cpu_memory_alloc,
    .memory_free = memory_free,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_reached,
    .event_wait = event_reached,
    .layout_plain = layout_plain,
    .layout_in_type = layout_get_in_type,
    .layout_bytes = cpu_layout_bytes,
    .layout_type = cpu_layout_type,
    .layout_shape = layout_shape,
    .layout_text = layout_text,
    .layout_transfer = layout_transfer,
    .copy_region = cpu_copy_region,
    .clear = cpu_clear,
    .accumulate = cpu_accumulate,
    .copy = cpu_copy,
    .upload = upload,
    .download = download,
    .upload_labels = upload_labels,
    .group_create = cpu_group_create,
    .group_destroy = cpu_group_destroy,
    .group_get_needs = cpu_group_get_needs,
    .group_run = cpu_group_run,
    .fold = cpu_fold,
    .update = cpu_update,
    .measure_floor = cpu_measure_floor,
};
