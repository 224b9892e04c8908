/* Order and ownership, from memory alone.
 *
 * Order. Of two instructions that touch the same bytes, at least one of them writing, the one that
 * comes first in the list must have ended before the other starts, however long anything takes.
 * Before an instruction starts, its waits have ended, all that had ended before those started, and
 * for a computation also the computation before it. As computations end in order, one number and a
 * set of communications say all of it.
 *
 * Ownership. Memory is a line of segments, each with the buffer that it was last written as:
 *
 *     |  conv1 output  |  (never written)  |  bn1 saved  |  conv2 output ...
 *        written by 3       a read fails       by 7, read since by 9 and 12
 *
 * A write makes its range one segment; a read must find nothing but its own buffer there (parts and
 * their whole are one). Each access is checked against the segments it meets. That is enough: an
 * earlier access that its segment no longer notes was followed there by a write that is ordered
 * behind it. */
#include "base/array.h"
#include "base/numbers.h"
#include "verify/checking.h"

#include <string.h>

struct reader {
    int instr;
    const struct reader *next;
};

struct segment {
    int64_t begin, end;
    int owner;                    /* the outermost buffer */
    int writer;                   /* -1: content from before the program */
    int computing_reader;         /* the last computation that read it since, or -1 */
    const struct reader *readers; /* communication that read it since */
};

struct line {
    int n, capacity;
    struct segment *segments; /* ascending, not overlapping */
};

struct memory {
    const struct program *p;
    arena *scratch;
    struct line lines[BUFFER_CLASS_COUNT];
    int *number_of;    /* by instruction: its number among the communications */
    size_t n_words;    /* of a set of communications */
    uint64_t **ended;  /* by instruction: communications that ended before it starts */
    int *computations; /* by instruction: the last computation that did, or -1 */
};

/* ---- order ---- */

static bool is_ordered(const struct memory *m, int before, int number)
{
    if (before < 0 || before == number || number == m->p->n_instrs)
        return true;
    if (m->p->instrs[before].stream == STREAM_COMPUTE)
        return before <= m->computations[number];
    int bit = m->number_of[before];
    return m->ended[number][bit / 64] >> bit % 64 & 1;
}

static void come_behind(struct memory *m, int number, int before)
{
    for (size_t w = 0; w < m->n_words; w++)
        m->ended[number][w] |= m->ended[before][w];
    int *last = &m->computations[number];
    *last = int_max(*last, m->computations[before]);
    if (m->p->instrs[before].stream == STREAM_COMPUTE) {
        *last = int_max(*last, before);
    } else {
        int bit = m->number_of[before];
        m->ended[number][bit / 64] |= (uint64_t)1 << bit % 64;
    }
}

static enum status find_order(struct memory *m)
{
    const struct program *p = m->p;
    int last = -1;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        TRY(arena_alloc_array(m->scratch, m->n_words, sizeof(uint64_t), &m->ended[i]));
        m->computations[i] = -1;
        for (int k = 0; k < instr->n_waits; k++) {
            if (instr->waits[k] < 0 || instr->waits[k] >= i)
                return check_fail(p, i, "waits for instruction %d", instr->waits[k]);
            come_behind(m, i, instr->waits[k]);
        }
        if (instr->stream != STREAM_COMPUTE)
            continue;
        if (last >= 0)
            come_behind(m, i, last);
        last = i;
    }
    return STATUS_OK;
}

/* ---- segments ---- */

static enum status insert_segment(struct memory *m, struct line *l, int at, struct segment s)
{
    TRY(array_reserve(m->scratch, &l->segments, l->n + 1, &l->capacity, sizeof s));
    memmove(&l->segments[at + 1], &l->segments[at], (size_t)(l->n - at) * sizeof s);
    l->segments[at] = s;
    l->n++;
    return STATUS_OK;
}

static void remove_segments(struct line *l, int from, int to)
{
    if (from == to)
        return;
    memmove(&l->segments[from], &l->segments[to], (size_t)(l->n - to) * sizeof *l->segments);
    l->n -= to - from;
}

/* The first segment that ends behind `offset`. */
static int find_segment(const struct line *l, int64_t offset)
{
    int low = 0, high = l->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (l->segments[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Afterwards no segment reaches across `offset`. */
static enum status split_at(struct memory *m, struct line *l, int64_t offset)
{
    int i = find_segment(l, offset);
    if (i == l->n || l->segments[i].begin >= offset)
        return STATUS_OK;
    struct segment before = l->segments[i];
    before.end = offset;
    l->segments[i].begin = offset;
    return insert_segment(m, l, i, before);
}

/* ---- accesses ---- */

static enum status fail_order(const struct memory *m, int number, int before, int b)
{
    char text[160];
    return check_fail(
        m->p, number, "touches buffer %d (%s) and does not wait for instruction %d (%s)", b,
        m->p->buffers[b].name, before, program_instr_text(m->p, before, text, sizeof text));
}

static enum status fail_content(const struct memory *m, int number, int b)
{
    if (number == m->p->n_instrs)
        return status_fail(STATUS_FAILED,
                           "program check: the result in buffer %d (%s) does not "
                           "survive the step",
                           b, m->p->buffers[b].name);
    return check_fail(m->p, number,
                      "reads buffer %d (%s), which was never written or has been overwritten", b,
                      m->p->buffers[b].name);
}

static enum status note_reader(struct memory *m, struct segment *s, int number)
{
    if (number == m->p->n_instrs || m->p->instrs[number].stream == STREAM_COMPUTE) {
        s->computing_reader = number;
        return STATUS_OK;
    }
    struct reader *r;
    TRY(arena_alloc(m->scratch, sizeof *r, &r));
    *r = (struct reader){number, s->readers};
    s->readers = r;
    return STATUS_OK;
}

static enum status read_memory(struct memory *m, int number, int b)
{
    const struct buffer *buffer = &m->p->buffers[b];
    struct line *l = &m->lines[buffer->class];
    int64_t at = buffer->offset, end = buffer->offset + buffer->n_bytes;
    TRY(split_at(m, l, at));
    TRY(split_at(m, l, end));
    for (int i = find_segment(l, at); at < end; i++) {
        if (i == l->n || l->segments[i].begin != at || l->segments[i].owner != check_root(m->p, b))
            return fail_content(m, number, b);
        struct segment *s = &l->segments[i];
        if (!is_ordered(m, s->writer, number))
            return fail_order(m, number, s->writer, b);
        TRY(note_reader(m, s, number));
        at = s->end;
    }
    return STATUS_OK;
}

/* A segment that is about to be overwritten. */
static enum status check_overwriting(const struct memory *m, const struct segment *s, int number,
                                     int b)
{
    bool own = s->writer == number || s->computing_reader == number;
    for (const struct reader *r = s->readers; r; r = r->next) {
        own |= r->instr == number;
        if (!is_ordered(m, r->instr, number))
            return fail_order(m, number, r->instr, b);
    }
    if (own && s->owner != check_root(m->p, b))
        return check_fail(m->p, number, "overwrites its own buffer %d (%s)", s->owner,
                          m->p->buffers[s->owner].name);
    if (!is_ordered(m, s->writer, number))
        return fail_order(m, number, s->writer, b);
    if (!is_ordered(m, s->computing_reader, number))
        return fail_order(m, number, s->computing_reader, b);
    return STATUS_OK;
}

static enum status write_memory(struct memory *m, int number, int b)
{
    const struct buffer *buffer = &m->p->buffers[b];
    struct line *l = &m->lines[buffer->class];
    int64_t end = buffer->offset + buffer->n_bytes;
    TRY(split_at(m, l, buffer->offset));
    TRY(split_at(m, l, end));
    int first = find_segment(l, buffer->offset), behind = first;
    for (; behind < l->n && l->segments[behind].begin < end; behind++)
        TRY(check_overwriting(m, &l->segments[behind], number, b));
    remove_segments(l, first, behind);
    return insert_segment(m, l, first,
                          (struct segment){.begin = buffer->offset,
                                           .end = end,
                                           .owner = check_root(m->p, b),
                                           .writer = number,
                                           .computing_reader = -1});
}

/* ---- the whole ---- */

static enum status create(struct memory *m)
{
    const struct program *p = m->p;
    size_t n = (size_t)p->n_instrs;
    TRY(arena_alloc_array(m->scratch, n, sizeof *m->number_of, &m->number_of));
    TRY(arena_alloc_array(m->scratch, n, sizeof *m->computations, &m->computations));
    TRY(arena_alloc_array(m->scratch, n, sizeof(uint64_t *), &m->ended));
    int communications = 0;
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].stream == STREAM_COMMUNICATE)
            m->number_of[i] = communications++;
    m->n_words = ((size_t)communications + 63) / 64;
    for (int i = 0; i < p->n_buffers; i++) {
        enum buffer_class class = p->buffers[i].class;
        if (class == BUFFER_WEIGHTS || class == BUFFER_OPTIMIZER)
            TRY(write_memory(m, -1, i));
    }
    return find_order(m);
}

static enum status run(struct memory *m)
{
    const struct program *p = m->p;
    TRY(create(m));
    for (int i = 0; i < p->n_instrs; i++) {
        for (int k = 0; k < p->instrs[i].n_reads; k++)
            TRY(read_memory(m, i, p->instrs[i].reads[k]));
        for (int k = 0; k < p->instrs[i].n_writes; k++)
            TRY(write_memory(m, i, p->instrs[i].writes[k]));
    }
    for (int i = 0; i < p->n_results; i++) {
        TRY(read_memory(m, p->n_instrs, p->results[i].losses));
        if (p->results[i].logits != NO_BUFFER)
            TRY(read_memory(m, p->n_instrs, p->results[i].logits));
    }
    return STATUS_OK;
}

enum status check_memory(const struct program *p)
{
    struct memory m = {.p = p};
    TRY(arena_create(&m.scratch));
    enum status st = run(&m);
    arena_destroy(m.scratch);
    return st;
}
