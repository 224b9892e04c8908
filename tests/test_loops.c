/* The loop nests of the op table against the reference backend: the inputs on which an output
 * element really depends, found by changing inputs and looking at the output, must be those that
 * the index maps name. Everything that plans and transfers derive from the maps rests on this. */
#include "backend/reference/reference.h"

#include "opcases.h"

static struct opdevice in_double;

static int open_device(void **state)
{
    (void)state;
    opdevice_open(&in_double, &backend_reference, PRECISION_DOUBLE, 1);
    return 0;
}

static int close_device(void **state)
{
    opdevice_close(&in_double);
    return test_remove_folder(state);
}

/* ---- walking loops and regions ---- */

static bool is_empty(struct range r)
{
    return r.begin >= r.end;
}

/* The next point of the whole nest, in the order of its loops; false after the last. */
static bool next_point(const struct loop_nest *nest, struct box *point)
{
    for (int i = nest->n_loops - 1; i >= 0; i--) {
        struct range *r = &point->range[i];
        *r = (struct range){r->begin + 1, r->end + 1};
        if (r->begin < nest->loop[i].extent)
            return true;
        *r = (struct range){0, 1};
    }
    return false;
}

static struct box first_point(const struct loop_nest *nest)
{
    struct box point = {0};
    for (int i = 0; i < nest->n_loops; i++)
        point.range[i] = (struct range){0, 1};
    return point;
}

/* Sets marks[element] for every element of a region, by its plain index. */
static void mark_region(const struct tensor_map *map, const struct range *region, bool *marks)
{
    int64_t n = 1;
    for (int i = 0; i < map->rank; i++)
        n *= is_empty(region[i]) ? 0 : region[i].end - region[i].begin;
    for (int64_t j = 0; j < n; j++) {
        int64_t element = 0, rest = j, below = 1;
        for (int i = map->rank - 1; i >= 0; i--) {
            int64_t length = region[i].end - region[i].begin;
            element += (region[i].begin + rest % length) * below;
            rest /= length;
            below *= map->axis[i].extent;
        }
        marks[element] = true;
    }
}

static int64_t count_elements(const struct tensor_map *map)
{
    int64_t n = 1;
    for (int i = 0; i < map->rank; i++)
        n *= map->axis[i].extent;
    return n;
}

/* The one element that a point of the nest writes. */
static int64_t output_element(const struct loop_nest *nest, const struct box *point)
{
    struct range region[SHAPE_MAX_RANK];
    tensor_map_region(&nest->output, point, region);
    int64_t element = 0;
    for (int i = 0; i < nest->output.rank; i++) {
        assert_int_equal(region[i].end - region[i].begin, 1);
        element = element * nest->output.axis[i].extent + region[i].begin;
    }
    return element;
}

/* Statistics over a loop make each output element read all of it. */
static struct box with_statistics(const struct loop_nest *nest, struct box point)
{
    for (int i = 0; i < nest->n_loops; i++)
        if (nest->loop[i].role == LOOP_STATISTIC)
            point.range[i] = (struct range){0, nest->loop[i].extent};
    return point;
}

static bool touches_nothing(const struct tensor_map *map, const struct box *piece)
{
    struct range region[SHAPE_MAX_RANK];
    tensor_map_region(map, piece, region);
    for (int i = 0; i < map->rank; i++)
        if (is_empty(region[i]))
            return true;
    return false;
}

static bool uses_summed_loop(const struct loop_nest *nest, const struct tensor_map *map)
{
    for (int i = 0; i < map->rank; i++)
        for (int j = 0; j < map->axis[i].n_terms; j++)
            if (nest->loop[map->axis[i].term[j].loop].role == LOOP_SUMMED)
                return true;
    return false;
}

/* reads[o * elements + e]: some point of the nest that writes o touches e of this tensor. Where the
 * input is padding there is no product, and the weight is not read either. */
static bool *claimed_reads(const struct loop_nest *nest, const struct tensor_map *map)
{
    const bool needs_input = uses_summed_loop(nest, map);
    int64_t count = count_elements(map), outputs = count_elements(&nest->output);
    bool *reads = calloc((size_t)(count * outputs), sizeof *reads);
    assert_non_null(reads);
    struct box point = first_point(nest);
    do {
        struct box piece = with_statistics(nest, point);
        struct range region[SHAPE_MAX_RANK];
        if (needs_input && touches_nothing(&nest->input[0], &piece))
            continue;
        tensor_map_region(map, &piece, region);
        mark_region(map, region, reads + output_element(nest, &point) * count);
    } while (next_point(nest, &point));
    return reads;
}

/* ---- the real dependencies ---- */

/* Which outputs change when element e changes, up or down by much: a maximum then notices it. */
static void observe(struct oprun *r, double *element, const double *before, bool *changed)
{
    const double at = *element;
    for (int sign = -1; sign <= 1; sign += 2) {
        *element = at + sign * 1000.0;
        oprun_forward(r);
        for (int64_t o = 0; o < shape_elements(&r->c.spec.op.output); o++)
            changed[o] |= ((const double *)r->args.output)[o] != before[o];
    }
    *element = at;
}

static void check_tensor(struct oprun *r, const struct loop_nest *nest, const char *tensor,
                         const struct tensor_map *map, void *values)
{
    int64_t count = count_elements(map), outputs = count_elements(&nest->output);
    assert_int_equal(outputs, shape_elements(&r->c.spec.op.output));
    bool *reads = claimed_reads(nest, map);
    bool *changed = calloc((size_t)outputs, sizeof *changed);
    double *before = calloc((size_t)outputs, sizeof *before);
    assert_true(changed && before);
    oprun_forward(r);
    memcpy(before, r->args.output, (size_t)outputs * sizeof *before);
    for (int64_t e = 0; e < count; e++) {
        memset(changed, 0, (size_t)outputs * sizeof *changed);
        observe(r, (double *)values + e, before, changed);
        for (int64_t o = 0; o < outputs; o++)
            assert_that(changed[o] == reads[o * count + e],
                        "%s: output %lld %s element %lld of its %s, but the loops say otherwise",
                        r->c.name, (long long)o, changed[o] ? "reads" : "does not read",
                        (long long)e, tensor);
    }
    free(before);
    free(changed);
    free(reads);
}

/* Folded activations hide changes, and add nothing to the loops; so does dropout, and the loss is 0
 * whatever the logit of an only class. */
static bool is_plain(const struct opcase *c)
{
    if (c->spec.op.op == OP_SOFTMAX_CROSS_ENTROPY && c->spec.op.input[0].dim[1] == 1)
        return false;
    return c->spec.activation == ACTIVATION_NONE && !c->spec.residual && c->n_output_grads <= 1 &&
           c->spec.op.attrs.drop_probability == 0;
}

static void test_reads(void **state)
{
    (void)state;
    for (int i = 0; i < opcase_count(); i++) {
        if (!is_plain(opcase_get(i)))
            continue;
        struct oprun r;
        oprun_open(&r, &in_double, opcase_get(i), NULL);
        if (r.needs.output_is_input) { /* to see a change there must be a copy */
            r.args.output = oprun_result(&r, r.layouts.output);
            r.needs.output_is_input = false;
        }
        struct loop_nest nest;
        op_get_loops(&r.c.spec.op, &nest);
        assert_int_equal(nest.n_inputs, r.c.spec.op.n_inputs);
        assert_int_equal(nest.n_params, r.n_params);
        for (int j = 0; j < nest.n_inputs; j++)
            check_tensor(&r, &nest, "input", &nest.input[j], (void *)(uintptr_t)r.args.input[j]);
        for (int j = 0; j < nest.n_params; j++)
            if (r.param[j].trained)
                check_tensor(&r, &nest, r.param[j].name, &nest.param[j], r.args.param[j]);
        oprun_close(&r);
    }
}

/* ---- values from the loops alone ---- */

/* The plain index of the one element that a point touches, -1 for padding. */
static int64_t touched_element(const struct tensor_map *map, const struct box *point)
{
    struct range region[SHAPE_MAX_RANK];
    int64_t element = 0;
    if (touches_nothing(map, point))
        return -1;
    tensor_map_region(map, point, region);
    for (int i = 0; i < map->rank; i++)
        element = element * map->axis[i].extent + region[i].begin;
    return element;
}

/* Convolution and linear computed as the table says it: output += input * weight at every point. */
static void check_product(struct oprun *r)
{
    const double *input = r->args.input[0], *weight = r->args.param[0], *bias = r->args.param[1];
    struct loop_nest nest;
    op_get_loops(&r->c.spec.op, &nest);
    int64_t outputs = count_elements(&nest.output);
    double *expected = calloc((size_t)outputs, sizeof *expected);
    assert_non_null(expected);
    struct box point = first_point(&nest);
    do {
        int64_t e = touched_element(&nest.input[0], &point), o = output_element(&nest, &point);
        bool first = true; /* of the points that sum into o: it brings the bias */
        for (int i = 0; i < nest.n_loops; i++)
            first &= nest.loop[i].role != LOOP_SUMMED || point.range[i].begin == 0;
        if (e >= 0)
            expected[o] += input[e] * weight[touched_element(&nest.param[0], &point)];
        if (first && nest.n_params > 1)
            expected[o] += bias[touched_element(&nest.param[1], &point)];
    } while (next_point(&nest, &point));
    oprun_forward(r);
    for (int64_t o = 0; o < outputs; o++)
        assert_that(fabs(((const double *)r->args.output)[o] - expected[o]) < 1e-12,
                    "%s: output %lld is %g, by its loops %g", r->c.name, (long long)o,
                    ((const double *)r->args.output)[o], expected[o]);
    free(expected);
}

static void test_products(void **state)
{
    (void)state;
    for (int i = 0; i < opcase_count(); i++) {
        const struct opcase *c = opcase_get(i);
        if (!is_plain(c) || !(op_get_info(c->spec.op.op)->flags & OP_SPLIT_GRADIENT))
            continue;
        struct oprun r;
        oprun_open(&r, &in_double, c, NULL);
        check_product(&r);
        oprun_close(&r);
    }
}

/* ---- maps against shapes ---- */

static void check_map(const struct opcase *c, const struct tensor_map *map,
                      const struct shape *shape)
{
    assert_that(map->rank == shape->rank, "%s", c->name);
    for (int i = 0; i < map->rank; i++)
        assert_that(map->axis[i].extent == shape->dim[i], "%s: axis %d", c->name, i);
}

/* The maps index tensors of the right shapes; the output is written whole, by equally many points
 * each; loops that only index the output are those in its map. */
static void test_maps_fit_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < opcase_count(); i++) {
        const struct opcase *c = opcase_get(i);
        struct loop_nest nest;
        struct op_param params[OP_MAX_PARAMS];
        op_get_loops(&c->spec.op, &nest);
        check_map(c, &nest.output, &c->spec.op.output);
        for (int j = 0; j < nest.n_inputs; j++)
            check_map(c, &nest.input[j], &c->spec.op.input[j]);
        assert_int_equal(nest.n_params, op_get_params(&c->spec.op, params));
        for (int j = 0; j < nest.n_params; j++)
            check_map(c, &nest.param[j], &params[j].shape);

        int64_t outputs = count_elements(&nest.output), written = 1, summed = 1;
        for (int j = 0; j < nest.n_loops; j++)
            *(nest.loop[j].role == LOOP_SUMMED ? &summed : &written) *= nest.loop[j].extent;
        assert_that(written == outputs, "%s", c->name);
        int *writes = calloc((size_t)outputs, sizeof *writes);
        assert_non_null(writes);
        struct box point = first_point(&nest);
        do
            writes[output_element(&nest, &point)]++;
        while (next_point(&nest, &point));
        for (int64_t o = 0; o < outputs; o++)
            assert_that(writes[o] == summed, "%s: output %lld", c->name, (long long)o);
        free(writes);
    }
}

/* ---- regions of boxes ---- */

static struct box random_box(const struct loop_nest *nest, uint64_t draw)
{
    struct random_key key = {.seed = 5, .use = RANDOM_TEST};
    struct box b = {0};
    for (int i = 0; i < nest->n_loops; i++) {
        int64_t extent = nest->loop[i].extent;
        uint64_t at = 2 * (draw * OP_MAX_LOOPS + (uint64_t)i);
        b.range[i].begin = (int64_t)(random_word(key, 0, at) % (uint64_t)extent);
        b.range[i].end =
            b.range[i].begin + 1 +
            (int64_t)(random_word(key, 0, at + 1) % (uint64_t)(extent - b.range[i].begin));
    }
    return b;
}

/* The next point of a box; false after the last. */
static bool next_in_box(const struct loop_nest *nest, const struct box *b, struct box *point)
{
    for (int i = nest->n_loops - 1; i >= 0; i--) {
        struct range *r = &point->range[i];
        *r = (struct range){r->begin + 1, r->end + 1};
        if (r->begin < b->range[i].end)
            return true;
        *r = (struct range){b->range[i].begin, b->range[i].begin + 1};
    }
    return false;
}

static void widen(struct range *hull, struct range by)
{
    if (is_empty(by))
        return;
    if (is_empty(*hull))
        *hull = by;
    hull->begin = hull->begin < by.begin ? hull->begin : by.begin;
    hull->end = hull->end > by.end ? hull->end : by.end;
}

/* Whether the elements met along an axis have gaps, so that a range that begins or ends in padding
 * may be wider than the elements met inside the tensor. */
static bool has_gaps(const struct axis_map *axis, const struct box *b)
{
    if (axis->kind == AXIS_ADAPTIVE)
        return false;
    int64_t reach = 1; /* consecutive elements met by the terms of smaller scale */
    for (int64_t met = 0; met != reach;) {
        met = reach;
        reach = 1;
        for (int i = 0; i < axis->n_terms; i++) {
            struct range r = b->range[axis->term[i].loop];
            if (axis->term[i].scale <= met)
                reach += axis->term[i].scale * (r.end - r.begin - 1);
        }
    }
    for (int i = 0; i < axis->n_terms; i++) {
        struct range r = b->range[axis->term[i].loop];
        if (axis->term[i].scale > reach && r.end - r.begin > 1)
            return true;
    }
    return false;
}

static void check_box(const struct opcase *c, const struct loop_nest *nest,
                      const struct tensor_map *map, const struct box *b)
{
    struct range hull[SHAPE_MAX_RANK] = {{0, 0}}, region[SHAPE_MAX_RANK], one[SHAPE_MAX_RANK];
    struct box point = *b;
    for (int i = 0; i < nest->n_loops; i++)
        point.range[i].end = point.range[i].begin + 1;
    do {
        tensor_map_region(map, &point, one);
        for (int i = 0; i < map->rank; i++)
            widen(&hull[i], one[i]);
    } while (next_in_box(nest, b, &point));
    tensor_map_region(map, b, region);
    for (int i = 0; i < map->rank; i++) {
        assert_that(0 <= region[i].begin && region[i].end <= map->axis[i].extent, "%s", c->name);
        bool covers =
            is_empty(hull[i]) || (region[i].begin <= hull[i].begin && hull[i].end <= region[i].end);
        assert_that(covers, "%s: axis %d: a region misses what its points touch", c->name, i);
        if (has_gaps(&map->axis[i], b))
            continue;
        bool equal = is_empty(hull[i])
                         ? is_empty(region[i])
                         : hull[i].begin == region[i].begin && hull[i].end == region[i].end;
        assert_that(equal, "%s: axis %d: region %lld..%lld, but its points touch %lld..%lld",
                    c->name, i, (long long)region[i].begin, (long long)region[i].end,
                    (long long)hull[i].begin, (long long)hull[i].end);
    }
}

static void test_regions(void **state)
{
    (void)state;
    enum { DRAWS = 12 };
    for (int i = 0; i < opcase_count(); i++) {
        const struct opcase *c = opcase_get(i);
        if (!is_plain(c))
            continue;
        struct loop_nest nest;
        op_get_loops(&c->spec.op, &nest);
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            struct box b = random_box(&nest, draw);
            bool whole_summed = draw % 2 == 0;
            for (int j = 0; whole_summed && j < nest.n_loops; j++)
                if (nest.loop[j].role == LOOP_SUMMED)
                    b.range[j] = (struct range){0, nest.loop[j].extent};
            for (int j = 0; j < nest.n_inputs; j++)
                check_box(c, &nest, &nest.input[j], &b);
            for (int j = 0; j < nest.n_params; j++)
                check_box(c, &nest, &nest.param[j], &b);
            check_box(c, &nest, &nest.output, &b);
        }
    }
}

/* The whole nest as one piece touches every element that is read; an empty piece touches none. */
static void test_whole_and_empty(void **state)
{
    (void)state;
    for (int i = 0; i < opcase_count(); i++) {
        const struct opcase *c = opcase_get(i);
        struct loop_nest nest;
        struct box whole;
        struct range region[SHAPE_MAX_RANK];
        op_get_loops(&c->spec.op, &nest);
        loop_nest_whole(&nest, &whole);
        tensor_map_region(&nest.output, &whole, region);
        for (int j = 0; j < nest.output.rank; j++)
            assert_that(region[j].begin == 0 && region[j].end == nest.output.axis[j].extent, "%s",
                        c->name);
        for (int l = 0; l < nest.n_loops; l++) {
            struct box empty = whole;
            empty.range[l].begin = empty.range[l].end = nest.loop[l].extent / 2;
            for (int j = 0; j < nest.input[0].rank; j++) {
                const struct axis_map *axis = &nest.input[0].axis[j];
                bool uses = false;
                for (int t = 0; t < axis->n_terms; t++)
                    uses |= axis->term[t].loop == l;
                tensor_map_region(&nest.input[0], &empty, region);
                assert_that(!uses || is_empty(region[j]), "%s: loop %s, axis %d: %lld..%lld",
                            c->name, nest.loop[l].name, j, (long long)region[j].begin,
                            (long long)region[j].end);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_fit_shapes), cmocka_unit_test(test_reads),
        cmocka_unit_test(test_products),        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_whole_and_empty),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
