#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 16, BLOCK_BYTES = 64 * 1024, LARGE_BYTES = 2 * BLOCK_BYTES };

struct block {
    struct block *next;
    size_t capacity, used;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

struct arena {
    struct block *blocks; /* the head is being filled */
    struct block *spare;  /* zeroed, from before the last reset */
    size_t used_bytes;
};

enum status arena_create(arena **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? STATUS_OK : status_no_memory(sizeof **out);
}

static void free_blocks(struct block *b)
{
    for (struct block *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

void arena_destroy(arena *a)
{
    if (!a)
        return;
    free_blocks(a->blocks);
    free_blocks(a->spare);
    free(a);
}

void arena_reset(arena *a)
{
    while (a->blocks) {
        struct block *b = a->blocks;
        a->blocks = b->next;
        memset(b->bytes, 0, b->used);
        b->used = 0;
        b->next = a->spare;
        a->spare = b;
    }
    a->used_bytes = 0;
}

/* The first spare block that is large enough. */
static struct block *take_spare(arena *a, size_t n_bytes)
{
    for (struct block **at = &a->spare; *at; at = &(*at)->next)
        if ((*at)->capacity >= n_bytes) {
            struct block *b = *at;
            *at = b->next;
            return b;
        }
    return NULL;
}

/* The caller will write all of a large block. Faulting its pages in together takes half as long as
 * touching one after the other; where the kernel cannot do that, nothing is lost. */
static void ask_for_pages(const struct block *b)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)b->bytes + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)b->bytes + b->capacity) / page * page;
    (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
#else
    (void)b;
#endif
}

/* NULL: there is no memory. */
static struct block *create_block(size_t capacity)
{
    struct block *b = calloc(1, sizeof *b + capacity);
    if (!b)
        return NULL;
    b->capacity = capacity;
    if (capacity >= LARGE_BYTES)
        ask_for_pages(b);
    return b;
}

static enum status add_block(arena *a, size_t n_bytes, struct block **out)
{
    struct block *b = take_spare(a, n_bytes);
    if (!b)
        b = create_block(n_bytes > BLOCK_BYTES ? n_bytes : BLOCK_BYTES);
    if (!b)
        return status_no_memory(n_bytes);
    b->next = a->blocks;
    *out = a->blocks = b;
    return STATUS_OK;
}

enum status arena_alloc(arena *a, size_t n_bytes, void *out)
{
    if (n_bytes > SIZE_MAX / 2)
        return status_no_memory(n_bytes);
    size_t rounded = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *b = a->blocks;
    if (!b || b->capacity - b->used < rounded)
        TRY(add_block(a, rounded, &b));
    void *p = b->bytes + b->used;
    b->used += rounded;
    a->used_bytes += rounded;
    memcpy(out, &p, sizeof p);
    return STATUS_OK;
}

enum status arena_alloc_array(arena *a, size_t count, size_t element_bytes, void *out)
{
    size_t n_bytes;
    if (__builtin_mul_overflow(count, element_bytes, &n_bytes))
        return status_no_memory(SIZE_MAX);
    return arena_alloc(a, n_bytes, out);
}

enum status arena_copy_text(arena *a, const char *text, const char **out)
{
    size_t size = strlen(text) + 1;
    char *copy = NULL;
    TRY(arena_alloc(a, size, &copy));
    *out = memcpy(copy, text, size);
    return STATUS_OK;
}

enum status arena_print(arena *a, const char **out, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = NULL;
    enum status st = STATUS_FAILED;
    if (length >= 0)
        st = arena_alloc(a, (size_t)length + 1, &text);
    if (st == STATUS_OK) {
        (void)vsnprintf(text, (size_t)length + 1, format, again);
        *out = text;
    }
    va_end(again);
    return st;
}

size_t arena_used_bytes(const arena *a)
{
    return a->used_bytes;
}
