/* What OpenMP orders, told to the thread sanitizer. libgomp is not built for it: the beginning and
 * the end of a parallel region and the barriers inside would look like nothing at all, and every
 * loop like a race. Linked in front of libgomp in sanitized builds, these two stand for all that
 * Cleave and oneDNN call (`nm -D build-tsan/cleave | grep GOMP`; the loops' calls order nothing).
 *
 *     caller     ..., release | acquire ..., release, barrier, acquire ..., release | acquire, ...
 *     others                  | acquire ..., release, barrier, acquire ..., release |
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct region {
    void (*body)(void *data);
    void *data;
};

/* Of the sanitizer's interface; gcc has no header for them. */
void __tsan_acquire(void *address); /* NOLINT(bugprone-reserved-identifier) */
void __tsan_release(void *address); /* NOLINT(bugprone-reserved-identifier) */

/* libgomp's own names and types, for oneDNN to find as well. */
#define VISIBLE __attribute__((visibility("default")))
VISIBLE void GOMP_parallel(void (*body)(void *data), void *data, unsigned n_threads,
                           unsigned flags);
VISIBLE void GOMP_barrier(void);

static void (*real_parallel)(void (*body)(void *data), void *data, unsigned n_threads,
                             unsigned flags);
static void (*real_barrier)(void);
static _Thread_local struct region *inside; /* the innermost region; NULL: none */

static void find(const char *name, void *function, size_t n_bytes)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    if (!symbol)
        abort();
    memcpy(function, &symbol, n_bytes);
}

__attribute__((constructor)) static void find_both(void)
{
    find("GOMP_parallel", &real_parallel, sizeof real_parallel);
    find("GOMP_barrier", &real_barrier, sizeof real_barrier);
}

static void run_ordered(void *region)
{
    struct region *r = region, *outside = inside;
    inside = r;
    __tsan_acquire(r);
    r->body(r->data);
    __tsan_release(r);
    inside = outside;
}

void GOMP_parallel(void (*body)(void *data), void *data, unsigned n_threads, unsigned flags)
{
    struct region r = {body, data};
    __tsan_release(&r);
    real_parallel(run_ordered, &r, n_threads, flags);
    __tsan_acquire(&r);
}

void GOMP_barrier(void)
{
    struct region *r = inside;
    if (r)
        __tsan_release(r);
    real_barrier();
    if (r)
        __tsan_acquire(r);
}
