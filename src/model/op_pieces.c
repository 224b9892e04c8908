/* Pieces: one worker's share of a layer as an op of its own.
 *
 * A piece of a windowed op reads rows [begin, end) of its input, clipped to the tensor. Seen from
 * those rows its windows have another padding: where the clipped region begins at 0 some of the
 * layer's padding is left, elsewhere none:
 *
 *     rows      0 1 2 3 4 5 6 7          kernel 3, stride 1, padding 1 on both sides
 *     piece 0   0 1 2 3 4                p = 0..3: padding 1 before, 0 after
 *     piece 1         3 4 5 6 7          p = 4..7: padding 0 before, 1 after
 */
#include "model/op_rules.h"

static int64_t length(struct range r)
{
    return r.end - r.begin;
}

static bool is_whole(const struct loop_nest *nest, const struct box *box, int loop)
{
    return box->range[loop].begin == 0 && box->range[loop].end == nest->loop[loop].extent;
}

static bool axis_is_whole(const struct loop_nest *nest, const struct box *box,
                          const struct axis_map *axis)
{
    for (int i = 0; i < axis->n_terms; i++)
        if (!is_whole(nest, box, axis->term[i].loop))
            return false;
    return true;
}

/* Whole where it is not cut: windows may leave out the last elements of an axis, and then a piece
 * would own less than the layer's input for no reason. */
void op_get_piece_region(const struct loop_nest *nest, const struct tensor_map *map,
                         const struct box *box, struct range region[SHAPE_MAX_RANK])
{
    tensor_map_region(map, box, region);
    for (int i = 0; i < map->rank; i++)
        if (axis_is_whole(nest, box, &map->axis[i]))
            region[i] = (struct range){0, map->axis[i].extent};
}

static struct shape region_shape(int rank, const struct range region[SHAPE_MAX_RANK])
{
    struct shape s = {.rank = rank};
    for (int i = 0; i < rank; i++)
        s.dim[i] = length(region[i]);
    return s;
}

/* ---- what each op adapts; the rows of the table point here ---- */

/* The window of image axis `axis` (0: height), whose output loop is p and whose window loop is r.
 */
static void cut_window(const struct op_case *c, const struct loop_nest *nest, const struct box *box,
                       struct op_piece *piece, int axis, int p, int r)
{
    if (is_whole(nest, box, p) && is_whole(nest, box, r))
        return;
    struct op_attrs *a = &piece->op.attrs;
    int64_t stride = a->stride[axis], dilation = a->dilation[axis] ? a->dilation[axis] : 1;
    struct range rows = piece->input[0][2 + axis];
    a->kernel[axis] = length(box->range[r]);
    a->pad_before[axis] = rows.begin + c->attrs.pad_before[axis] - stride * box->range[p].begin -
                          dilation * box->range[r].begin;
    int64_t read = stride * (length(box->range[p]) - 1) + dilation * (a->kernel[axis] - 1) + 1;
    int64_t after = read - a->pad_before[axis] - length(rows);
    a->pad_after[axis] = after > 0 ? after : 0;
}

void op_piece_conv2d(const struct op_case *c, const struct loop_nest *nest, const struct box *box,
                     struct op_piece *piece)
{
    enum { G = 1, K, P, Q, C, R, S };
    struct op_attrs *a = &piece->op.attrs;
    a->groups = length(box->range[G]);
    a->out_channels = a->groups * length(box->range[K]);
    a->bias = piece->n_params > 1;
    cut_window(c, nest, box, piece, 0, P, R);
    cut_window(c, nest, box, piece, 1, Q, S);
}

void op_piece_linear(const struct op_case *c, const struct loop_nest *nest, const struct box *box,
                     struct op_piece *piece)
{
    enum { O = 1 };
    (void)c;
    (void)nest;
    piece->op.attrs.out_channels = length(box->range[O]);
    piece->op.attrs.bias = piece->n_params > 1;
}

void op_piece_pool(const struct op_case *c, const struct loop_nest *nest, const struct box *box,
                   struct op_piece *piece)
{
    enum { P = 2, Q, R, S };
    cut_window(c, nest, box, piece, 0, P, R);
    cut_window(c, nest, box, piece, 1, Q, S);
}

void op_piece_global_pool(const struct op_case *c, const struct loop_nest *nest,
                          const struct box *box, struct op_piece *piece)
{
    enum { R = 4, S };
    if (is_whole(nest, box, R) && is_whole(nest, box, S))
        return;
    for (int i = 0; i < 2; i++)
        piece->op.attrs.whole_in[i] = c->input[0].dim[2 + i];
}

void op_piece_adaptive_pool(const struct op_case *c, const struct loop_nest *nest,
                            const struct box *box, struct op_piece *piece)
{
    enum { P = 2, Q };
    struct op_attrs *a = &piece->op.attrs;
    if (is_whole(nest, box, P) && is_whole(nest, box, Q))
        return;
    for (int i = 0; i < 2; i++) {
        a->whole_in[i] = c->input[0].dim[2 + i];
        a->whole_out[i] = c->output.dim[2 + i];
        a->first_in[i] = piece->input[0][2 + i].begin;
        a->first_out[i] = box->range[P + i].begin;
        a->out_size[i] = length(box->range[P + i]);
    }
}

/* ---- any op ---- */

/* A parameter without a loop that is summed in parts (a bias) would be added by every part; only
 * the one at the loop's begin has it. Such parameters come last. */
static int count_params(const struct loop_nest *nest, const struct box *box)
{
    int n = 0;
    for (; n < nest->n_params; n++) {
        const struct tensor_map *map = &nest->param[n];
        for (int l = 0; l < nest->n_loops; l++) {
            bool reads = nest->loop[l].role != LOOP_SUMMED || box->range[l].begin == 0;
            for (int i = 0; !reads && i < map->rank; i++)
                for (int t = 0; t < map->axis[i].n_terms; t++)
                    reads |= map->axis[i].term[t].loop == l;
            if (!reads)
                return n;
        }
    }
    return n;
}

int op_get_piece_params(const struct loop_nest *nest, const struct box *box,
                        struct range param[OP_MAX_PARAMS][SHAPE_MAX_RANK])
{
    struct box with_batch = *box;
    for (int l = 0; l < nest->n_loops; l++)
        if (nest->loop[l].use == USE_BATCH)
            with_batch.range[l] = (struct range){0, nest->loop[l].extent};
    int n = count_params(nest, &with_batch);
    for (int i = 0; i < n; i++)
        op_get_piece_region(nest, &nest->param[i], &with_batch, param[i]);
    return n;
}

static enum status take_inputs(const struct op_case *c, const struct loop_nest *nest,
                               const struct box *box, struct op_piece *piece)
{
    struct op_case *op = &piece->op;
    op->n_inputs = 0;
    for (int slot = 0; slot < c->n_inputs; slot++) {
        int i = op->n_inputs, rank = c->input[slot].rank;
        op_get_piece_region(nest, &nest->input[slot], box, piece->input[i]);
        struct shape shape = region_shape(rank, piece->input[i]);
        if (shape_elements(&shape) == 0) {
            if (c->n_inputs == 1)
                return status_fail(STATUS_USAGE, "a piece of the %s would read only padding",
                                   op_get_info(c->op)->name);
            continue; /* a concat's piece need not touch every input */
        }
        op->input[i] = shape;
        piece->slot[i] = slot;
        op->n_inputs++;
    }
    return STATUS_OK;
}

enum status op_get_piece_of(const struct op_case *c, const struct loop_nest *nest,
                            const struct box *box, struct op_piece *piece)
{
    *piece = (struct op_piece){.op = *c};
    for (int l = 0; l < nest->n_loops; l++) {
        bool cut = !is_whole(nest, box, l);
        piece->empty |= length(box->range[l]) <= 0;
        piece->partial |= cut && nest->loop[l].role == LOOP_SUMMED;
        if (cut && nest->loop[l].role == LOOP_STATISTIC)
            piece->shared_statistics |= 1U << l;
    }
    piece->n_params = op_get_piece_params(nest, box, piece->param);
    if (piece->empty)
        return STATUS_OK;
    op_get_piece_region(nest, &nest->output, box, piece->output);
    piece->op.output = region_shape(nest->output.rank, piece->output);
    TRY(take_inputs(c, nest, box, piece));
    if (op_get_info(c->op)->piece)
        op_get_info(c->op)->piece(c, nest, box, piece);
    return STATUS_OK;
}

enum status op_get_piece(const struct op_case *c, const struct box *box, struct op_piece *piece)
{
    struct loop_nest nest;
    op_get_loops(c, &nest);
    return op_get_piece_of(c, &nest, box, piece);
}
