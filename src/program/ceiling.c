/* How far buffers can reach at most, without placing them.
 *
 * Where only the sizes of slabs are wanted, and larger ones are needed anyway by another program,
 * it is enough to know that no buffer would lie beyond those. Buffers are placed largest first at
 * the lowest offset where they fit (places.c). Say some are placed, of which none reaches beyond
 * `top`, and the others, the rest, are still to come. Looking for a place from `top` on, a buffer b
 * of the rest meets nobody but members of the rest that live together with it; it passes each, and
 * before each a gap that is smaller than b. So
 *
 *     end of b  <=  top + n_bytes of b + sum over those ( their n_bytes + n_bytes of b )
 *
 * and as whoever was placed before b is not smaller, the sum is at most twice their bytes. Who
 * lives together with b is all that begin before its end, less all that end before its begin: two
 * sums over time, for all buffers at once. */
#include "program/lowering.h"

/* Bytes of the rest, and how many they are: that begin at an instruction or before, and that end
 * before it. */
struct moment {
    int64_t begun_bytes, ended_bytes;
    int n_begun, n_ended;
};

static void add_up(struct moment *moments, int n_moments)
{
    for (int t = 1; t < n_moments; t++) {
        moments[t].begun_bytes += moments[t - 1].begun_bytes;
        moments[t].ended_bytes += moments[t - 1].ended_bytes;
        moments[t].n_begun += moments[t - 1].n_begun;
        moments[t].n_ended += moments[t - 1].n_ended;
    }
}

static int64_t reach_of(const struct moment *moments, const struct buffer *b)
{
    const struct moment *first = &moments[b->first_write], *last = &moments[b->last_use];
    int64_t others = last->begun_bytes - first->ended_bytes - b->n_bytes;
    int64_t gaps = (last->n_begun - first->n_ended - 1) * b->n_bytes;
    return b->n_bytes + others + (gaps < others ? gaps : others);
}

enum status ceiling_find(const struct program *p, const struct buffer *const *rest, int n,
                         arena *scratch, int64_t *out)
{
    int n_moments = p->n_instrs + 2; /* results live on behind the last instruction */
    struct moment *moments;
    *out = 0;
    TRY(arena_alloc_array(scratch, (size_t)n_moments, sizeof *moments, &moments));
    for (int i = 0; i < n; i++) {
        moments[rest[i]->first_write].begun_bytes += rest[i]->n_bytes;
        moments[rest[i]->first_write].n_begun++;
        moments[rest[i]->last_use + 1].ended_bytes += rest[i]->n_bytes;
        moments[rest[i]->last_use + 1].n_ended++;
    }
    add_up(moments, n_moments);
    for (int i = 0; i < n; i++) {
        int64_t reach = reach_of(moments, rest[i]);
        *out = reach > *out ? reach : *out;
    }
    return STATUS_OK;
}
