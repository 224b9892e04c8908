#include "pieces.h"

/* ---- numbers and devices ---- */

int64_t roll(struct dice *d, int64_t sides)
{
    struct random_key key = {.seed = d->seed, .use = RANDOM_TEST, .stream = 77};
    return (int64_t)(random_word(key, 0, d->rolled++) % (uint64_t)sides);
}

const struct backend *find_cpu(void)
{
    for (const struct backend *const *b = backend_list(); *b; b++)
        if (strcmp((*b)->name, "cpu") == 0)
            return *b;
    return NULL;
}

void open_both(struct opdevice *fast, struct opdevice *exact, int threads)
{
    const struct backend *cpu = find_cpu();
    opdevice_open(fast, cpu ? cpu : &backend_reference, PRECISION_FLOAT, threads);
    opdevice_open(exact, &backend_reference, PRECISION_DOUBLE, 1);
}

static double tolerance_of(const struct opdevice *d)
{
    return d->precision == PRECISION_DOUBLE ? 1e-6 : 3e-5;
}

/* ---- tensors on a device ---- */

/* In the plain layout, or in the layout of transfers, which is nearer to that of kernels. */
const layout *choose_layout(const struct opdevice *d, const struct shape *shape, bool plain)
{
    const struct axes axes = axes_of_images(shape->rank);
    const layout *l;
    const enum element type = precision_get_info(d->precision)->activation;
    if (plain)
        assert_ok(d->backend->layout_plain(d->device, type, shape, &l));
    else
        assert_ok(d->backend->layout_transfer(d->device, type, shape, &axes, &l));
    return l;
}

struct tensor tensor_open(const struct opdevice *d, const layout *l, const float *host)
{
    struct tensor t = {d, l, NULL};
    assert_ok(d->backend->memory_alloc(d->device, d->backend->layout_bytes(l), &t.memory));
    if (host)
        assert_ok(d->backend->upload(d->stream, host, t.memory, l));
    return t;
}

void tensor_close(struct tensor *t)
{
    if (t->memory)
        t->on->backend->memory_free(t->on->device, t->memory);
    *t = (struct tensor){0};
}

int64_t tensor_elements(const struct tensor *t)
{
    return shape_elements(t->on->backend->layout_shape(t->layout));
}

float *tensor_read(const struct tensor *t)
{
    float *host = calloc((size_t)tensor_elements(t) + 1, sizeof *host);
    assert_non_null(host);
    assert_ok(t->on->backend->download(t->on->stream, t->memory, t->layout, host));
    return host;
}

void assert_padding_is_zero(const char *name, const struct tensor *t)
{
    if (t->on->precision != PRECISION_FLOAT)
        return;
    float *host = tensor_read(t);
    const float *raw = t->memory;
    int64_t apart = 0;
    for (int64_t i = 0; i < tensor_elements(t); i++)
        apart += host[i] != 0;
    for (int64_t i = 0; i < t->on->backend->layout_bytes(t->layout) / (int64_t)sizeof *raw; i++)
        apart -= raw[i] != 0;
    assert_that(apart == 0, "%s: %lld added elements are not zero", name, (long long)-apart);
    free(host);
}

void assert_near_all(const char *name, const char *what, const struct tensor *t, const float *truth)
{
    float *host = tensor_read(t);
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < tensor_elements(t); i++) {
        double apart = fabs((double)host[i] - (double)truth[i]);
        largest = fmax(largest, fabs((double)truth[i]));
        worst = apart <= worst ? worst : apart; /* NaN counts as the worst */
    }
    free(host);
    assert_that(worst <= tolerance_of(t->on) * fmax(largest, 1e-3),
                "%s: %s differs by %g (largest value %g)", name, what, worst, largest);
}

/* Between a region of the whole and the tensor of a piece. */
static void move(const struct tensor *whole, const struct range *region, const layout *l, void *p,
                 bool to_whole, bool add)
{
    int rank = whole->on->backend->layout_shape(l)->rank;
    struct region_copy c = {.add = add};
    c.from_layout = to_whole ? l : whole->layout;
    c.to_layout = to_whole ? whole->layout : l;
    for (int a = 0; a < rank; a++) {
        (to_whole ? c.to_begin : c.from_begin)[a] = region[a].begin;
        c.extent[a] = region[a].end - region[a].begin;
    }
    assert_ok(whole->on->backend->copy_region(whole->on->stream, &c, to_whole ? p : whole->memory,
                                              to_whole ? whole->memory : p));
}

void *writable(const void *p)
{
    return (void *)(uintptr_t)p;
}

/* Memory of a run begins as NaN, so all elements that a pass does not write are NaN, rounded-up
 * ones, too. */
void poison(struct oprun *r)
{
    const struct backend *b = r->on->backend;
    const struct group_needs *n = &r->needs;
    int64_t forward = n->forward_workspace_bytes, backward = n->backward_workspace_bytes;
    if (r->args.workspace)
        memset(r->args.workspace, 0xff, (size_t)(forward > backward ? forward : backward));
    if (r->args.saved)
        memset(r->args.saved, 0xff, (size_t)n->saved_bytes);
    if (n->output_is_input)
        return;
    memset(r->args.output, 0xff, (size_t)b->layout_bytes(r->layouts.output));
    if (r->args.folded_grad)
        memset(r->args.folded_grad, 0xff, (size_t)b->layout_bytes(r->layouts.output));
    for (int i = 0; i < r->c.spec.op.n_inputs; i++)
        if (r->args.input_grad[i])
            memset(r->args.input_grad[i], 0xff, (size_t)b->layout_bytes(r->layouts.input[i]));
    for (int i = 0; i < r->n_params; i++)
        if (r->args.param_grad[i])
            memset(r->args.param_grad[i], 0xff, (size_t)b->layout_bytes(r->layouts.param[i]));
}

/* ---- the whole op ---- */

static bool has_backward(const struct opcase *c)
{
    return c->spec.training && !(op_get_info(c->spec.op.op)->flags & OP_PASSES_GRADIENT);
}

void truth_open(struct truth *t, const struct opdevice *exact, const struct opcase *c)
{
    struct oprun o;
    const int n_inputs = c->spec.op.n_inputs;
    oprun_open(&o, exact, c, NULL);
    *t = (struct truth){.c = *c, .n_params = o.n_params};
    memcpy(t->param, o.param, sizeof t->param);
    memcpy(t->labels, o.labels, sizeof t->labels);
    for (int i = 0; i < n_inputs; i++)
        t->input[i] = oprun_download(&o, o.args.input[i], o.layouts.input[i]);
    if (c->spec.residual)
        t->residual = oprun_download(&o, o.args.residual, o.layouts.residual);
    for (int i = 0; i < o.n_params; i++)
        t->params[i] = oprun_download(&o, o.args.param[i], o.layouts.param[i]);
    for (int i = 0; i < o.args.n_output_grads; i++)
        t->output_grad[i] = oprun_download(&o, o.args.output_grad[i], o.layouts.output);
    oprun_forward(&o);
    t->output = oprun_download(&o, o.args.output, o.layouts.output);
    for (int i = 0; i < o.n_params; i++)
        t->params_after[i] = oprun_download(&o, o.args.param[i], o.layouts.param[i]);
    if (has_backward(c)) {
        oprun_backward(&o);
        for (int i = 0; c->spec.input_gradient && i < n_inputs; i++)
            t->input_grad[i] = oprun_download(&o, o.args.input_grad[i], o.layouts.input[i]);
        for (int i = 0; i < o.n_params; i++)
            if (o.args.param_grad[i])
                t->param_grad[i] = oprun_download(&o, o.args.param_grad[i], o.layouts.param[i]);
        if (c->spec.residual)
            t->residual_grad = oprun_download(&o, oprun_residual_grad(&o), o.layouts.output);
    }
    oprun_close(&o);
}

void truth_close(struct truth *t)
{
    for (int i = 0; i < OP_MAX_INPUTS; i++) {
        free(t->input[i]);
        free(t->input_grad[i]);
    }
    for (int i = 0; i < OP_MAX_PARAMS; i++) {
        free(t->params[i]);
        free(t->params_after[i]);
        free(t->param_grad[i]);
    }
    for (int i = 0; i < GROUP_MAX_ADDENDS; i++)
        free(t->output_grad[i]);
    free(t->residual);
    free(t->output);
    free(t->residual_grad);
}

/* ---- cuts ---- */

/* A loop's borders, all different. */
static void cut_loop(struct dice *dice, int64_t extent, int parts, int64_t *border)
{
    border[0] = 0;
    for (int i = 1; i < parts; i++) /* leaves at least one for each part behind it */
        border[i] = border[i - 1] + 1 + roll(dice, extent - border[i - 1] - (parts - i));
    border[parts] = extent;
}

/* Ops that are folded behind the op need whole sums before them. */
static bool may_cut(const struct group_spec *spec, const struct loop *loop)
{
    bool folds = spec->residual || spec->activation != ACTIVATION_NONE;
    return loop->extent > 1 && loop->cut != CUT_NEVER && !(loop->cut == CUT_PARTIAL && folds);
}

void choose_cut(struct dice *dice, const struct group_spec *spec, int forced, struct cut *cut)
{
    struct loop_nest nest = {0};
    op_get_loops(&spec->op, &nest);
    *cut = (struct cut){.n_loops = nest.n_loops, .n_pieces = 1};
    for (int l = 0; l < nest.n_loops; l++) {
        int64_t extent = nest.loop[l].extent;
        int parts = 1;
        if (may_cut(spec, &nest.loop[l]) && (roll(dice, 5) < 2 || l == forced % nest.n_loops))
            parts = extent > 2 ? 2 + (int)roll(dice, 2) : 2;
        if (cut->n_pieces * parts > MAX_PIECES)
            parts = 1;
        cut->parts[l] = parts;
        cut->n_pieces *= parts;
        cut_loop(dice, extent, parts, cut->border[l]);
        for (int i = 1; i < parts; i++) {
            size_t used = strlen(cut->text);
            (void)snprintf(cut->text + used, sizeof cut->text - used, " %s%lld", nest.loop[l].name,
                           (long long)cut->border[l][i]);
        }
    }
}

static struct box piece_box(const struct cut *cut, int piece)
{
    struct box box = {0};
    for (int l = 0; l < cut->n_loops; l++) {
        int part = piece % cut->parts[l];
        box.range[l] = (struct range){cut->border[l][part], cut->border[l][part + 1]};
        piece /= cut->parts[l];
    }
    return box;
}

/* ---- running the pieces ---- */

struct pieces {
    const struct opdevice *on;
    const struct truth *truth;
    char name[288];
    int n;
    struct op_piece piece[MAX_PIECES];
    struct oprun run[MAX_PIECES];
    double *statistics[MAX_PIECES];
    /* the whole's tensors on the device */
    struct tensor input[OP_MAX_INPUTS], residual, params[OP_MAX_PARAMS];
    struct tensor output_grad[GROUP_MAX_ADDENDS], labels;
    struct tensor output, input_grad[OP_MAX_INPUTS], param_grad[OP_MAX_PARAMS], residual_grad;
    struct tensor params_after[OP_MAX_PARAMS];
};

/* False if a piece would read only padding, which is no legal cut. */
static bool take_pieces(struct pieces *p, const struct cut *cut)
{
    p->n = cut->n_pieces;
    for (int i = 0; i < p->n; i++) {
        struct box box = piece_box(cut, i);
        if (op_get_piece(&p->truth->c.spec.op, &box, &p->piece[i]) != STATUS_OK) {
            status_clear();
            return false;
        }
        assert_false(p->piece[i].empty);
    }
    return true;
}

static struct tensor whole_tensor(struct pieces *p, struct dice *dice, const struct shape *shape,
                                  const float *host)
{
    return tensor_open(p->on, choose_layout(p->on, shape, roll(dice, 2)), host);
}

static void open_wholes(struct pieces *p, struct dice *dice)
{
    const struct truth *t = p->truth;
    const struct op_case *op = &t->c.spec.op;
    for (int i = 0; i < op->n_inputs; i++) {
        p->input[i] = whole_tensor(p, dice, &op->input[i], t->input[i]);
        p->input_grad[i] = whole_tensor(p, dice, &op->input[i], NULL);
    }
    for (int i = 0; i < t->n_params; i++) {
        const layout *plain = choose_layout(p->on, &t->param[i].shape, true);
        p->params[i] = tensor_open(p->on, plain, t->params[i]);
        p->params_after[i] = tensor_open(p->on, plain, NULL);
        p->param_grad[i] = tensor_open(p->on, plain, NULL);
    }
    p->output = whole_tensor(p, dice, &op->output, NULL);
    p->residual_grad = whole_tensor(p, dice, &op->output, NULL);
    if (t->residual)
        p->residual = whole_tensor(p, dice, &op->output, t->residual);
    for (int i = 0; i < t->c.n_output_grads; i++)
        p->output_grad[i] = whole_tensor(p, dice, &op->output, t->output_grad[i]);
}

static void close_wholes(struct pieces *p)
{
    for (int i = 0; i < OP_MAX_INPUTS; i++) {
        tensor_close(&p->input[i]);
        tensor_close(&p->input_grad[i]);
    }
    for (int i = 0; i < OP_MAX_PARAMS; i++) {
        tensor_close(&p->params[i]);
        tensor_close(&p->params_after[i]);
        tensor_close(&p->param_grad[i]);
    }
    for (int i = 0; i < GROUP_MAX_ADDENDS; i++)
        tensor_close(&p->output_grad[i]);
    tensor_close(&p->residual);
    tensor_close(&p->output);
    tensor_close(&p->residual_grad);
}

static struct opcase case_of_piece(const struct pieces *p, int i)
{
    const struct op_piece *piece = &p->piece[i];
    struct opcase c = p->truth->c;
    const struct shape *in = &c.spec.op.input[0];
    c.spec.whole = c.spec.op.output;
    for (int a = 0; a < c.spec.op.output.rank; a++)
        c.spec.origin[a] = piece->output[a].begin;
    c.spec.shared_statistics = piece->shared_statistics != 0;
    c.spec.statistics_count = shape_elements(in) / in->dim[1];
    c.spec.op = piece->op;
    return c;
}

/* Copies the piece's regions of the whole's tensors into its own. */
static void fill_piece(struct pieces *p, int i)
{
    const struct op_piece *piece = &p->piece[i];
    struct oprun *r = &p->run[i];
    for (int k = 0; k < piece->op.n_inputs; k++)
        move(&p->input[piece->slot[k]], piece->input[k], r->layouts.input[k],
             writable(r->args.input[k]), false, false);
    for (int k = 0; k < piece->n_params; k++)
        move(&p->params[k], piece->param[k], r->layouts.param[k], r->args.param[k], false, false);
    if (r->args.residual)
        move(&p->residual, piece->output, r->layouts.residual, writable(r->args.residual), false,
             false);
    for (int k = 0; k < r->args.n_output_grads; k++)
        move(&p->output_grad[k], piece->output, r->layouts.output, writable(r->args.output_grad[k]),
             false, false);
    if (r->args.labels)
        assert_ok(p->on->backend->upload_labels(p->on->stream,
                                                p->truth->labels + piece->output[0].begin,
                                                piece->op.output.dim[0], writable(r->args.labels)));
}

static void open_piece(struct pieces *p, struct dice *dice, int i)
{
    struct opcase c = case_of_piece(p, i);
    struct group_layouts given = {0};
    struct op_case inferred = c.spec.op;
    assert_ok(op_infer_shape(&inferred));
    assert_that(shape_equal(&inferred.output, &c.spec.op.output), "%s: piece %d", p->name, i);
    for (int k = 0; k < c.spec.op.n_inputs; k++)
        given.input[k] = choose_layout(p->on, &c.spec.op.input[k], roll(dice, 3) == 0);
    if (c.spec.residual)
        given.residual = choose_layout(p->on, &c.spec.op.output, roll(dice, 3) == 0);
    oprun_open(&p->run[i], p->on, &c, &given);
    assert_int_equal(p->run[i].n_params, p->piece[i].n_params);
    poison(&p->run[i]);
    fill_piece(p, i);
    if (p->run[i].needs.statistics_count)
        p->statistics[i] = p->run[i].args.statistics =
            oprun_alloc(&p->run[i], p->run[i].needs.statistics_count * (int64_t)sizeof(double));
}

static void run_pass(struct pieces *p, enum pass pass)
{
    for (int i = 0; i < p->n; i++) {
        struct oprun *r = &p->run[i];
        if (p->statistics[i])
            assert_ok(p->on->backend->group_run(r->group, pass, p->on->stream, &r->args, &r->step));
    }
}

/* The statistics that workers would share: sums over all pieces of the same channels. */
static void sum_statistics(struct pieces *p)
{
    double *sum[MAX_PIECES];
    for (int i = 0; i < p->n; i++) {
        int64_t count = p->run[i].needs.statistics_count;
        sum[i] = calloc((size_t)count + 1, sizeof *sum[i]);
        assert_non_null(sum[i]);
        for (int j = 0; j < p->n; j++)
            for (int64_t k = 0; k < count; k++)
                if (p->piece[j].output[1].begin == p->piece[i].output[1].begin)
                    sum[i][k] += p->statistics[j][k];
    }
    for (int i = 0; i < p->n; i++) {
        if (p->statistics[i])
            memcpy(p->statistics[i], sum[i],
                   (size_t)p->run[i].needs.statistics_count * sizeof *sum[i]);
        free(sum[i]);
    }
}

static void run_forward(struct pieces *p)
{
    run_pass(p, PASS_FORWARD_STATISTICS);
    sum_statistics(p);
    for (int i = 0; i < p->n; i++)
        oprun_forward(&p->run[i]);
}

/* oprun_backward, but for the statistics. */
static void run_backward(struct pieces *p)
{
    run_pass(p, PASS_BACKWARD_STATISTICS);
    sum_statistics(p);
    for (int i = 0; i < p->n; i++)
        oprun_backward(&p->run[i]);
}

/* ---- putting the results together ---- */

static void assemble_forward(struct pieces *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct op_piece *piece = &p->piece[i];
        struct oprun *r = &p->run[i];
        move(&p->output, piece->output, r->layouts.output, r->args.output, true, piece->partial);
        struct tensor own = {p->on, r->layouts.output, r->args.output};
        assert_padding_is_zero(p->name, &own);
        for (int k = 0; k < piece->n_params; k++)
            move(&p->params_after[k], piece->param[k], r->layouts.param[k], r->args.param[k], true,
                 false);
    }
    assert_near_all(p->name, "output", &p->output, p->truth->output);
    for (int k = 0; k < p->truth->n_params; k++)
        assert_near_all(p->name, p->truth->param[k].name, &p->params_after[k],
                        p->truth->params_after[k]);
}

static void add_gradients(struct pieces *p, int i)
{
    const struct op_piece *piece = &p->piece[i];
    struct oprun *r = &p->run[i];
    for (int k = 0; k < piece->op.n_inputs; k++)
        if (r->args.input_grad[k]) {
            struct tensor own = {p->on, r->layouts.input[k], r->args.input_grad[k]};
            assert_padding_is_zero(p->name, &own);
            move(&p->input_grad[piece->slot[k]], piece->input[k], r->layouts.input[k],
                 r->args.input_grad[k], true, true);
        }
    for (int k = 0; k < piece->n_params; k++)
        if (r->args.param_grad[k]) {
            struct tensor own = {p->on, r->layouts.param[k], r->args.param_grad[k]};
            assert_padding_is_zero(p->name, &own);
            move(&p->param_grad[k], piece->param[k], r->layouts.param[k], r->args.param_grad[k],
                 true, true);
        }
    if (r->args.residual)
        move(&p->residual_grad, piece->output, r->layouts.output, writable(oprun_residual_grad(r)),
             true, false);
}

static void assemble_backward(struct pieces *p)
{
    const struct truth *t = p->truth;
    for (int i = 0; i < p->n; i++)
        add_gradients(p, i);
    for (int k = 0; k < t->c.spec.op.n_inputs; k++)
        if (t->input_grad[k])
            assert_near_all(p->name, "input gradient", &p->input_grad[k], t->input_grad[k]);
    for (int k = 0; k < t->n_params; k++)
        if (t->param_grad[k])
            assert_near_all(p->name, "parameter gradient", &p->param_grad[k], t->param_grad[k]);
    if (t->residual_grad)
        assert_near_all(p->name, "residual gradient", &p->residual_grad, t->residual_grad);
}

bool run_cut(const struct opdevice *on, const struct truth *t, struct dice *dice,
             const struct cut *cut)
{
    struct pieces *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->on = on;
    p->truth = t;
    (void)snprintf(p->name, sizeof p->name, "%s on %s, seed %u, cut at%s", t->c.name,
                   on->backend->device_describe(on->device), dice->seed, cut->text);
    bool legal = take_pieces(p, cut);
    if (legal) {
        open_wholes(p, dice);
        for (int i = 0; i < p->n; i++)
            open_piece(p, dice, i);
        run_forward(p);
        assemble_forward(p);
        if (has_backward(&t->c)) {
            run_backward(p);
            assemble_backward(p);
        }
        for (int i = 0; i < p->n; i++)
            oprun_close(&p->run[i]);
        close_wholes(p);
    }
    free(p);
    return legal;
}
