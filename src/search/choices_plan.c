/* Choices as a plan has them, and as people read them. */
#include "search/choices.h"

#include <stdio.h>

/* The axis of the output that a loop indexes; -1: it is summed over. */
static int find_axis(const struct loop_nest *nest, int loop)
{
    for (int a = 0; a < nest->output.rank; a++)
        for (int i = 0; i < nest->output.axis[a].n_terms; i++)
            if (nest->output.axis[a].term[i].loop == loop)
                return a;
    return -1;
}

/* The sizes of the parts along an axis of the output whose extent is not the loop's (flatten). */
static enum status size_axis(const struct loop_nest *nest, const struct plan_cut *cut, int axis,
                             arena *memory, const int64_t **out)
{
    int64_t *sizes;
    struct box box;
    TRY(arena_alloc_array(memory, (size_t)cut->n_parts, sizeof *sizes, &sizes));
    loop_nest_whole(nest, &box);
    for (int i = 0; i < cut->n_parts; i++) {
        struct range region[SHAPE_MAX_RANK];
        box.range[cut->loop] = plan_part(cut, i, nest->loop[cut->loop].extent);
        op_get_piece_region(nest, &nest->output, &box, region);
        sizes[i] = region[axis].end - region[axis].begin;
    }
    *out = sizes;
    return STATUS_OK;
}

/* Sizes of another extent, scaled. */
static enum status scale_sizes(const struct plan_cut *cut, int64_t extent, arena *memory,
                               const int64_t **out)
{
    int64_t *sizes;
    TRY(arena_alloc_array(memory, (size_t)cut->n_parts, sizeof *sizes, &sizes));
    for (int i = 0; i < cut->n_parts; i++) {
        struct range part = plan_part(cut, i, extent);
        sizes[i] = part.end - part.begin;
        if (sizes[i] < 1) { /* too fine for it: even parts are legal */
            *out = NULL;
            return STATUS_OK;
        }
    }
    *out = sizes;
    return STATUS_OK;
}

/* The cut of a follower that goes with a cut of the first node. */
static enum status follow_cut(const struct loop_nest *first, const struct loop_nest *nest,
                              const struct plan_cut *cut, arena *memory, struct plan_cut *out)
{
    int axis = find_axis(first, cut->loop);
    bool summed = axis < 0;
    if (summed)
        axis = tensor_map_find(&first->output, USE_CHANNEL);
    int loop = nest->output.axis[axis].term[0].loop;
    int64_t extent = nest->loop[loop].extent;
    *out = (struct plan_cut){loop, cut->n_parts, cut->sizes};
    if (!summed && extent == first->loop[cut->loop].extent)
        return STATUS_OK;
    if (!summed)
        return size_axis(first, cut, axis, memory, &out->sizes);
    return cut->sizes ? scale_sizes(cut, extent, memory, &out->sizes) : STATUS_OK;
}

enum status choice_write(const struct graph *graph, const struct choice_layer *layer, int member,
                         const struct choice *c, arena *memory, struct plan_layer *out)
{
    struct loop_nest first, nest;
    op_get_loops(&graph->nodes[layer->node[0]].op, &first);
    if (member > 0)
        op_get_loops(&graph->nodes[layer->node[member]].op, &nest);
    out->n_cuts = c->n_cuts;
    out->n_pieces = c->n_pieces;
    out->workers = c->workers;
    for (int i = 0; i < c->n_cuts; i++) {
        out->cut[i] = c->cut[i];
        if (member > 0)
            TRY(follow_cut(&first, &nest, &c->cut[i], memory, &out->cut[i]));
    }
    return STATUS_OK;
}

const char *choice_text(const struct graph *graph, const struct choice_layer *layer,
                        const struct choice *c, int n_workers, char *text, size_t size)
{
    struct loop_nest nest;
    size_t n = 0;
    op_get_loops(&graph->nodes[layer->node[0]].op, &nest);
    if (size > 0)
        text[0] = '\0';
    for (int i = 0; i < c->n_cuts && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s=%d%s", i ? " " : "",
                              nest.loop[c->cut[i].loop].name, c->cut[i].n_parts,
                              c->cut[i].sizes ? " uneven" : "");
    if (c->n_cuts == 0 && n < size)
        n += (size_t)snprintf(text + n, size - n, "whole");
    if (c->n_pieces < n_workers && c->n_pieces > 1 && n < size)
        (void)snprintf(text + n, size - n, " on %d", c->n_pieces);
    return text;
}
