/* One worker's program. The checker believes only the instructions, the arrays that they refer to,
 * and the offsets of buffers.
 *
 * It is proved that
 *   - every buffer lies in its slab, parts lie in their wholes, and buffers that live between steps
 *     lie apart from everything else (here);
 *   - an instruction touches exactly the buffers that it lists (access_lists.c);
 *   - whatever order the two streams run in, accesses to the same memory keep the order of the
 *     list, and every read finds intact the value written for it (memory_order.c);
 *   - every instruction is given what graph and plan say it must be given, so nothing is left out,
 *     done twice or done to the wrong thing (symbolic_run.c). Values that depend on messages of
 * other workers are taken for right here; verify_programs proves those of all workers together. */
#include "verify/checking.h"

#include <stdarg.h>

enum status check_fail(const struct program *p, int number, const char *format, ...)
{
    char name[160], what[320];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return status_fail(STATUS_FAILED, "program check: worker %d, instruction %d (%s) %s", p->worker,
                       number, program_instr_text(p, number, name, sizeof name), what);
}

int check_root(const struct program *p, int b)
{
    while (p->buffers[b].parent != NO_BUFFER)
        b = p->buffers[b].parent;
    return b;
}

static bool lives_always(const struct buffer *b)
{
    return b->class == BUFFER_WEIGHTS || b->class == BUFFER_OPTIMIZER;
}

static bool overlap(const struct buffer *a, const struct buffer *b)
{
    return a->class == b->class && a->offset < b->offset + b->n_bytes &&
           b->offset < a->offset + a->n_bytes;
}

static enum status check_place(const struct program *p, int i)
{
    const struct buffer *b = &p->buffers[i];
    if ((int)b->class < 0 || b->class >= BUFFER_CLASS_COUNT)
        return status_fail(STATUS_FAILED, "program check: buffer %d is of no class", i);
    if (b->offset < 0 || b->offset % BUFFER_ALIGNMENT || b->n_bytes <= 0 ||
        b->offset + b->n_bytes > p->slab_bytes[b->class])
        return status_fail(STATUS_FAILED,
                           "program check: buffer %d (%s) of %lld bytes at %lld leaves the %s slab "
                           "of %lld",
                           i, b->name, (long long)b->n_bytes, (long long)b->offset,
                           buffer_class_name(b->class), (long long)p->slab_bytes[b->class]);
    if (b->layout && (p->backend->layout_bytes(b->layout) > b->n_bytes ||
                      p->backend->layout_type(b->layout) != b->type))
        return status_fail(STATUS_FAILED, "program check: buffer %d (%s) is too small", i, b->name);
    return STATUS_OK;
}

/* A part lies in its whole (one level deep), apart from the other parts. */
static enum status check_part(const struct program *p, int i)
{
    const struct buffer *b = &p->buffers[i];
    if (b->parent < 0 || b->parent >= p->n_buffers)
        return status_fail(STATUS_FAILED, "program check: buffer %d (%s) is a part of nothing", i,
                           b->name);
    const struct buffer *whole = &p->buffers[b->parent];
    bool inside = whole->parent == NO_BUFFER && b->class == whole->class && b->parent_offset >= 0 &&
                  b->parent_offset + b->n_bytes <= whole->n_bytes &&
                  b->offset == whole->offset + b->parent_offset;
    if (!inside)
        return status_fail(STATUS_FAILED, "program check: buffer %d (%s) does not lie in buffer %d",
                           i, b->name, b->parent);
    return STATUS_OK;
}

/* Buffers that live always must not overlap, whether this program writes them or not; neither may
 * the parts of one whole. Buffers without an instruction have no place. */
static enum status check_places(const struct program *p)
{
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *a = &p->buffers[i];
        if (!lives_always(a) && a->first_write < 0)
            continue;
        TRY(check_place(p, i));
        if (a->parent != NO_BUFFER)
            TRY(check_part(p, i));
        bool always = lives_always(a);
        for (int k = 0; (always || a->parent != NO_BUFFER) && k < i; k++) {
            const struct buffer *b = &p->buffers[k];
            if ((always || a->parent == b->parent) && overlap(a, b))
                return status_fail(STATUS_FAILED,
                                   "program check: buffers %d (%s) and %d (%s) overlap", k, b->name,
                                   i, a->name);
        }
    }
    return STATUS_OK;
}

enum status check_program(const struct program *p, struct holdings *holdings)
{
    TRY(check_places(p));
    TRY(check_lists(p));
    TRY(check_memory(p));
    return check_meaning(p, holdings);
}

enum status verify_program(const struct program *p)
{
    struct holdings holdings;
    arena *memory;
    TRY(arena_create(&memory));
    enum status st = holdings_create(p->graph, p->plan, memory, &holdings);
    if (st == STATUS_OK)
        st = check_program(p, &holdings);
    arena_destroy(memory);
    return st;
}
