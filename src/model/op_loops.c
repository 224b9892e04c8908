/* The loop nests of the op table's rows, and the regions that follow from them. */
#include "model/op_rules.h"

static int add_loop(struct loop_nest *nest, const char *name, enum loop_use use, int64_t extent,
                    enum loop_role role, enum loop_cut cut)
{
    nest->loop[nest->n_loops] = (struct loop){name, use, role, cut, extent};
    return nest->n_loops++;
}

/* An axis of `extent` elements indexed by one loop. */
static struct axis_map axis1(int64_t extent, int loop)
{
    return (struct axis_map){
        .kind = AXIS_AFFINE, .n_terms = 1, .term = {{loop, 1}}, .extent = extent};
}

/* scale * outer + inner: a channel of a group, or an element of a window. */
static struct axis_map axis2(int64_t extent, int outer, int64_t scale, int inner)
{
    return (struct axis_map){
        .kind = AXIS_AFFINE, .n_terms = 2, .term = {{outer, scale}, {inner, 1}}, .extent = extent};
}

/* stride * p + dilation * r - padding, the window of convolutions and pools. */
static struct axis_map axis_window(const struct op_attrs *a, int axis, int64_t extent, int p, int r)
{
    int64_t dilation = a->dilation[axis] ? a->dilation[axis] : 1;
    return (struct axis_map){.kind = AXIS_AFFINE,
                             .n_terms = 2,
                             .term = {{p, a->stride[axis]}, {r, dilation}},
                             .offset = -a->pad_before[axis],
                             .extent = extent};
}

/* A window that does not overlap its neighbour needs no halo. */
static enum loop_cut window_cut(const struct op_attrs *a, int axis)
{
    bool overlaps = a->kernel[axis] > a->stride[axis] || a->dilation[axis] > 1;
    return overlaps ? CUT_HALO : CUT_FREE;
}

void op_loops_conv2d(const struct op_case *c, struct loop_nest *nest)
{
    const struct op_attrs *a = &c->attrs;
    const struct shape *in = &c->input[0], *out = &c->output;
    int64_t group_out = a->out_channels / a->groups, group_in = in->dim[1] / a->groups;
    int n = add_loop(nest, "n", USE_BATCH, out->dim[0], LOOP_OUTPUT, CUT_FREE);
    int g = add_loop(nest, "g", USE_CHANNEL, a->groups, LOOP_OUTPUT, CUT_FREE);
    /* Channels of a part of every group would not lie together, so with groups only g is cut. */
    bool grouped = a->groups > 1;
    int k =
        add_loop(nest, "k", USE_CHANNEL, group_out, LOOP_OUTPUT, grouped ? CUT_NEVER : CUT_FREE);
    int p = add_loop(nest, "p", USE_ROW, out->dim[2], LOOP_OUTPUT, window_cut(a, 0));
    int q = add_loop(nest, "q", USE_COLUMN, out->dim[3], LOOP_OUTPUT, window_cut(a, 1));
    int ch =
        add_loop(nest, "c", USE_CHANNEL, group_in, LOOP_SUMMED, grouped ? CUT_NEVER : CUT_PARTIAL);
    int r = add_loop(nest, "r", USE_WINDOW, a->kernel[0], LOOP_SUMMED, CUT_PARTIAL);
    int s = add_loop(nest, "s", USE_WINDOW, a->kernel[1], LOOP_SUMMED, CUT_PARTIAL);

    struct axis_map out_channel = axis2(a->out_channels, g, group_out, k);
    nest->output = (struct tensor_map){
        4, {axis1(out->dim[0], n), out_channel, axis1(out->dim[2], p), axis1(out->dim[3], q)}};
    nest->input[0] = (struct tensor_map){4,
                                         {axis1(in->dim[0], n), axis2(in->dim[1], g, group_in, ch),
                                          axis_window(a, 0, in->dim[2], p, r),
                                          axis_window(a, 1, in->dim[3], q, s)}};
    nest->n_params = a->bias ? 2 : 1;
    nest->param[0] = (struct tensor_map){
        4, {out_channel, axis1(group_in, ch), axis1(a->kernel[0], r), axis1(a->kernel[1], s)}};
    nest->param[1] = (struct tensor_map){1, {out_channel}};
}

void op_loops_linear(const struct op_case *c, struct loop_nest *nest)
{
    int64_t batch = c->output.dim[0], outs = c->output.dim[1], ins = c->input[0].dim[1];
    int n = add_loop(nest, "n", USE_BATCH, batch, LOOP_OUTPUT, CUT_FREE);
    int o = add_loop(nest, "o", USE_CHANNEL, outs, LOOP_OUTPUT, CUT_FREE);
    int i = add_loop(nest, "i", USE_CHANNEL, ins, LOOP_SUMMED, CUT_PARTIAL);
    nest->output = (struct tensor_map){2, {axis1(batch, n), axis1(outs, o)}};
    nest->input[0] = (struct tensor_map){2, {axis1(batch, n), axis1(ins, i)}};
    nest->n_params = c->attrs.bias ? 2 : 1;
    nest->param[0] = (struct tensor_map){2, {axis1(outs, o), axis1(ins, i)}};
    nest->param[1] = (struct tensor_map){1, {axis1(outs, o)}};
}

/* The loops n c p q of an image-shaped output, with its map. */
static void add_image_loops(const struct shape *out, struct loop_nest *nest, enum loop_cut p_cut,
                            enum loop_cut q_cut)
{
    int n = add_loop(nest, "n", USE_BATCH, out->dim[0], LOOP_OUTPUT, CUT_FREE);
    int c = add_loop(nest, "c", USE_CHANNEL, out->dim[1], LOOP_OUTPUT, CUT_FREE);
    int p = add_loop(nest, "p", USE_ROW, out->dim[2], LOOP_OUTPUT, p_cut);
    int q = add_loop(nest, "q", USE_COLUMN, out->dim[3], LOOP_OUTPUT, q_cut);
    nest->output = (struct tensor_map){4,
                                       {axis1(out->dim[0], n), axis1(out->dim[1], c),
                                        axis1(out->dim[2], p), axis1(out->dim[3], q)}};
}

void op_loops_pool(const struct op_case *c, struct loop_nest *nest)
{
    const struct op_attrs *a = &c->attrs;
    const struct shape *in = &c->input[0];
    add_image_loops(&c->output, nest, window_cut(a, 0), window_cut(a, 1));
    /* The maximum over a cut window is not a sum, so r and s are never cut. */
    int r = add_loop(nest, "r", USE_WINDOW, a->kernel[0], LOOP_SUMMED, CUT_NEVER);
    int s = add_loop(nest, "s", USE_WINDOW, a->kernel[1], LOOP_SUMMED, CUT_NEVER);
    nest->input[0] = (struct tensor_map){4,
                                         {axis1(in->dim[0], 0), axis1(in->dim[1], 1),
                                          axis_window(a, 0, in->dim[2], 2, r),
                                          axis_window(a, 1, in->dim[3], 3, s)}};
}

void op_loops_global_pool(const struct op_case *c, struct loop_nest *nest)
{
    const struct shape *in = &c->input[0];
    add_image_loops(&c->output, nest, CUT_NEVER, CUT_NEVER); /* p and q have extent 1 */
    int r = add_loop(nest, "r", USE_ROW, in->dim[2], LOOP_SUMMED, CUT_PARTIAL);
    int s = add_loop(nest, "s", USE_COLUMN, in->dim[3], LOOP_SUMMED, CUT_PARTIAL);
    nest->input[0] = (struct tensor_map){
        4,
        {axis1(in->dim[0], 0), axis1(in->dim[1], 1), axis1(in->dim[2], r), axis1(in->dim[3], s)}};
}

void op_loops_adaptive_pool(const struct op_case *c, struct loop_nest *nest)
{
    const struct shape *in = &c->input[0];
    add_image_loops(&c->output, nest, CUT_HALO, CUT_HALO);
    nest->input[0] = (struct tensor_map){4, {axis1(in->dim[0], 0), axis1(in->dim[1], 1)}};
    for (int i = 2; i < 4; i++)
        nest->input[0].axis[i] = (struct axis_map){.kind = AXIS_ADAPTIVE,
                                                   .n_terms = 1,
                                                   .term = {{i, 1}},
                                                   .extent = in->dim[i],
                                                   .out_extent = c->output.dim[i]};
}

/* ---- ops that take tensors of any axes ---- */

/* A loop over each axis of a tensor, which indexes it. Where two axes have one use, the loop over
 * the second has the other name. */
static void add_axis_loops(const struct axes *axes, const struct shape *shape,
                           struct loop_nest *nest)
{
    static const char *const names[LOOP_USE_COUNT][2] = {
        [USE_BATCH] = {"n", "n2"},      [USE_TOKEN] = {"t", "t2"}, [USE_CHANNEL] = {"c", "c2"},
        [USE_HEAD] = {"head", "head2"}, [USE_ROW] = {"h", "h2"},   [USE_COLUMN] = {"w", "w2"},
        [USE_VOCABULARY] = {"v", "v2"}, [USE_EXPERT] = {"e", "e2"}};
    nest->output.rank = shape->rank;
    for (int i = 0; i < shape->rank; i++) {
        enum loop_use use = axes->use[i];
        const char *name = names[use][axes_find(axes, use) != i];
        nest->output.axis[i] =
            axis1(shape->dim[i], add_loop(nest, name, use, shape->dim[i], LOOP_OUTPUT, CUT_FREE));
    }
}

void op_loops_elementwise(const struct op_case *c, struct loop_nest *nest)
{
    add_axis_loops(&c->axes, &c->output, nest);
    for (int i = 0; i < c->n_inputs; i++)
        nest->input[i] = nest->output;
}

void op_loops_concat(const struct op_case *c, struct loop_nest *nest)
{
    op_loops_elementwise(c, nest);
    int channels = axes_find(&c->axes, USE_CHANNEL);
    int64_t first_channel = 0;
    for (int i = 0; i < c->n_inputs; i++) {
        struct axis_map *channel = &nest->input[i].axis[channels];
        channel->extent = c->input[i].dim[channels];
        channel->offset = -first_channel;
        first_channel += channel->extent;
    }
}

void op_loops_batch_norm(const struct op_case *c, struct loop_nest *nest)
{
    op_loops_elementwise(c, nest);
    int channels = axes_find(&c->axes, USE_CHANNEL);
    for (int i = 0; i < nest->n_loops; i++)
        if (i != channels) {
            nest->loop[i].role = LOOP_STATISTIC;
            nest->loop[i].cut = CUT_STATISTICS;
        }
    nest->n_params = 4;
    for (int i = 0; i < 4; i++)
        nest->param[i] = (struct tensor_map){1, {nest->output.axis[channels]}};
}

/* ---- the rest of those that read images ---- */

void op_loops_local_response_norm(const struct op_case *c, struct loop_nest *nest)
{
    const struct shape *in = &c->input[0];
    add_image_loops(&c->output, nest, CUT_FREE, CUT_FREE);
    nest->loop[1].cut = CUT_NEVER; /* a piece's output would have fewer channels than its input */
    int r = add_loop(nest, "r", USE_WINDOW, c->attrs.lrn_size, LOOP_SUMMED, CUT_NEVER);
    nest->input[0] = nest->output;
    nest->input[0].axis[1] = axis2(in->dim[1], 1, 1, r);
    nest->input[0].axis[1].offset = -(c->attrs.lrn_size / 2);
}

void op_loops_flatten(const struct op_case *c, struct loop_nest *nest)
{
    const struct shape *in = &c->input[0];
    add_axis_loops(&c->axes, in, nest);
    nest->input[0] = nest->output;
    nest->loop[2].cut = nest->loop[3].cut = CUT_NEVER; /* it would leave holes in the flat axis */
    nest->output =
        (struct tensor_map){2,
                            {axis1(in->dim[0], 0),
                             {.kind = AXIS_AFFINE,
                              .n_terms = 3,
                              .term = {{1, in->dim[2] * in->dim[3]}, {2, in->dim[3]}, {3, 1}},
                              .extent = c->output.dim[1]}}};
}

void op_loops_softmax_cross_entropy(const struct op_case *c, struct loop_nest *nest)
{
    const struct shape *in = &c->input[0];
    int n = add_loop(nest, "n", USE_BATCH, in->dim[0], LOOP_OUTPUT, CUT_FREE);
    int k = add_loop(nest, "k", USE_CHANNEL, in->dim[1], LOOP_SUMMED, CUT_NEVER);
    nest->output = (struct tensor_map){1, {axis1(in->dim[0], n)}};
    nest->input[0] = (struct tensor_map){2, {axis1(in->dim[0], n), axis1(in->dim[1], k)}};
}

/* ---- looking for uses ---- */

int loop_nest_find(const struct loop_nest *nest, enum loop_use use)
{
    int found = -1;
    for (int i = 0; i < nest->n_loops; i++) {
        if (nest->loop[i].use != use || nest->loop[i].role == LOOP_SUMMED)
            continue;
        if (nest->loop[i].extent > 1)
            return i;
        found = found < 0 ? i : found;
    }
    return found;
}

int tensor_map_find(const struct tensor_map *map, enum loop_use use)
{
    for (int i = 0; i < map->rank; i++)
        if (map->axis[i].use == use)
            return i;
    return -1;
}

struct axes tensor_map_axes(const struct tensor_map *map)
{
    struct axes axes = {.rank = map->rank};
    for (int i = 0; i < map->rank; i++)
        axes.use[i] = map->axis[i].use;
    return axes;
}

/* ---- pieces and regions ---- */

void loop_nest_whole(const struct loop_nest *nest, struct box *piece)
{
    for (int i = 0; i < nest->n_loops; i++)
        piece->range[i] = (struct range){0, nest->loop[i].extent};
}

static struct range axis_region(const struct axis_map *axis, const struct box *piece)
{
    struct range r = {axis->offset, axis->offset + 1};
    if (axis->kind == AXIS_ADAPTIVE) {
        struct range p = piece->range[axis->term[0].loop];
        if (p.end <= p.begin) /* an empty piece touches nothing */
            return (struct range){0, 0};
        r.begin = p.begin * axis->extent / axis->out_extent;
        r.end = (p.end * axis->extent + axis->out_extent - 1) / axis->out_extent;
        return r;
    }
    for (int i = 0; i < axis->n_terms; i++) {
        struct range l = piece->range[axis->term[i].loop];
        if (l.end <= l.begin)
            return (struct range){0, 0};
        r.begin += axis->term[i].scale * l.begin;
        r.end += axis->term[i].scale * (l.end - 1);
    }
    if (r.begin < 0)
        r.begin = 0;
    if (r.end > axis->extent)
        r.end = axis->extent;
    return r.begin < r.end ? r : (struct range){0, 0};
}

void tensor_map_region(const struct tensor_map *map, const struct box *piece,
                       struct range region[SHAPE_MAX_RANK])
{
    for (int i = 0; i < map->rank; i++)
        region[i] = axis_region(&map->axis[i], piece);
}
