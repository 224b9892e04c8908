/* Keys and work of computing instructions.
 *
 * A program has thousands of instructions and all of them are keyed before a prediction, so keys
 * are put together from pieces of text and digits without printf. */
#include "program/work.h"

#include <assert.h>
#include <string.h>

static const char *const pass_words[] = {
    [PASS_FORWARD] = "forward",
    [PASS_BACKWARD] = "backward",
    [PASS_BACKWARD_DATA] = "data",
    [PASS_BACKWARD_WEIGHTS] = "weights",
    [PASS_FORWARD_STATISTICS] = "forward_statistics",
    [PASS_BACKWARD_STATISTICS] = "backward_statistics",
};
static_assert(sizeof pass_words / sizeof pass_words[0] == PASS_COUNT, "a word each");

static const char *const activation_words[] = {
    [ACTIVATION_NONE] = "",        [ACTIVATION_RELU] = " relu",
    [ACTIVATION_RELU6] = " relu6", [ACTIVATION_LOGISTIC] = " logistic",
    [ACTIVATION_TANH] = " tanh",
};
static_assert(sizeof activation_words / sizeof activation_words[0] == ACTIVATION_COUNT,
              "a word each");

/* Channels lie in blocks of at most this many; where a copy begins in one changes its time. */
enum { LARGEST_BLOCK = 16 };

/* ---- text that grows ---- */

enum { LAYOUT_TEXT_BYTES = 160, LONGEST = 4096 };

/* Room for any instruction: every layout it may name, and the words between them. */
static_assert(LONGEST > (OP_MAX_INPUTS + OP_MAX_PARAMS + 3) * LAYOUT_TEXT_BYTES + 1024, "room");

struct writer {
    const struct program *p;
    size_t n;
    char text[LONGEST];
};

static void put(struct writer *w, const char *word)
{
    size_t n = strlen(word), room = sizeof w->text - w->n;
    n = n < room ? n : room;
    memcpy(w->text + w->n, word, n);
    w->n += n;
}

static void put_number(struct writer *w, int64_t number)
{
    char digits[24], *at = digits + sizeof digits - 1;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    *at = '\0';
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (number < 0)
        *--at = '-';
    put(w, at);
}

/* " k3": the word and the number, unless it is the usual one. */
static void put_named(struct writer *w, const char *word, int64_t number, int64_t usual)
{
    if (number == usual)
        return;
    put(w, word);
    put_number(w, number);
}

/* " k3x5", and " k3" for a square. */
static void put_pair(struct writer *w, const char *word, const int64_t pair[2], int64_t usual)
{
    if (pair[0] == usual && pair[1] == usual)
        return;
    put(w, word);
    put_number(w, pair[0]);
    put_named(w, "x", pair[1], pair[0]);
}

static void put_flag(struct writer *w, const char *word, bool set)
{
    if (set)
        put(w, word);
}

static void put_shape(struct writer *w, const struct shape *s)
{
    for (int i = 0; i < s->rank; i++) {
        put(w, i ? "x" : " ");
        put_number(w, s->dim[i]);
    }
}

static void put_layout(struct writer *w, const layout *l)
{
    char text[LAYOUT_TEXT_BYTES];
    if (!l)
        return;
    put(w, " ");
    put(w, w->p->backend->layout_text(l, text, sizeof text));
}

/* " bf16", where a size alone says nothing of the type; nothing for the usual one. */
static void put_type(struct writer *w, enum element type)
{
    if (type == ELEMENT_F32)
        return;
    put(w, " ");
    put(w, element_name(type));
}

static void put_buffer(struct writer *w, int buffer)
{
    if (buffer != NO_BUFFER)
        put_layout(w, w->p->buffers[buffer].layout);
}

/* FNV-1a. */
static uint64_t hash(const char *text, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001B3u;
    return h;
}

/* A text that does not fit is cut, and ends in a hash of all of it. */
static const char *hand_over(const struct writer *w, char *text, size_t size)
{
    enum { HASH = 17 };
    if (size == 0)
        return text;
    if (w->n < size) {
        memcpy(text, w->text, w->n);
        text[w->n] = '\0';
        return text;
    }
    size_t kept = size > HASH ? size - 1 - HASH : 0, at = kept;
    memcpy(text, w->text, kept);
    uint64_t number = hash(w->text, w->n);
    text[at++] = '#';
    for (int digit = 15; digit >= 0 && at + 1 < size; digit--)
        text[at++] = "0123456789abcdef"[number >> 4 * digit & 15];
    text[at < size ? at : size - 1] = '\0';
    return text;
}

/* ---- one pass of a group ---- */

static bool is_backward(enum pass pass)
{
    return pass != PASS_FORWARD && pass != PASS_FORWARD_STATISTICS;
}

static bool is_depthwise(const struct op_case *op)
{
    int channels = axes_find(&op->axes, USE_CHANNEL);
    return op->attrs.groups > 1 && op->attrs.groups == op->input[0].dim[channels];
}

/* Attributes that an op does not have are zero and leave nothing, but for a pool's groups: its keys
 * say "g0". */
static void put_attributes(struct writer *w, const struct group_spec *spec)
{
    int64_t number[2];
    for (const struct op_attr *attr = op_attr_table; attr->name; attr++) {
        if (!attr->key[0] || op_attr_is_usual(attr, &spec->op.attrs))
            continue;
        op_attr_numbers(attr, &spec->op.attrs, number);
        put(w, " ");
        put(w, attr->key);
        if (attr->type == ATTR_FLAG)
            continue;
        put_number(w, number[0]);
        put_named(w, "x", number[1], number[0]);
    }
    /* A piece draws by the index of the whole. */
    put_flag(w, " part", spec->op.attrs.drop_probability > 0 && spec->whole.rank > 0);
}

static void put_spec(struct writer *w, const struct group_spec *spec)
{
    put(w, op_get_info(spec->op.op)->name);
    put_attributes(w, spec);
    put(w, activation_words[spec->activation]);
    put_flag(w, " residual", spec->residual);
    put(w, spec->training ? " train" : " eval");
    put_flag(w, " +grad", spec->input_gradient);
    put_flag(w, " shared", spec->shared_statistics);
}

/* How many gradients come in, which go out, and whether one is written over another. */
static void put_gradients(struct writer *w, const struct program_run *run, int n_inputs)
{
    put_named(w, " of", run->n_output_grads, 1);
    bool in_place = false;
    put(w, " to");
    for (int k = 0; k < n_inputs; k++) {
        put(w, run->input_grad[k] == NO_BUFFER ? "-" : "+");
        in_place |= run->input_grad[k] != NO_BUFFER && run->input_grad[k] == run->folded_grad;
    }
    put_flag(w, "!", in_place);
}

static void put_run(struct writer *w, const struct instr *instr)
{
    const struct program_run *run = &w->p->runs[instr->index];
    const struct group_spec *spec = &w->p->groups[instr->group].spec;
    put(w, pass_words[instr->pass]);
    put(w, " ");
    put_spec(w, spec);
    put_flag(w, " again", run->again);
    if (is_backward(instr->pass))
        put_gradients(w, run, spec->op.n_inputs);
    put(w, ":");
    for (int k = 0; k < spec->op.n_inputs; k++)
        put_buffer(w, run->input[k]);
    if (run->residual != NO_BUFFER) {
        put(w, " +");
        put_buffer(w, run->residual);
    }
    if (run->param[0] != NO_BUFFER) {
        put(w, " *");
        put_buffer(w, run->param[0]);
    }
    put(w, " ->");
    put_shape(w, &spec->op.output);
}

/* ---- the others ---- */

static void put_fold(struct writer *w, const struct program_fold *fold)
{
    bool in_place = false;
    for (int k = 0; k < fold->n_addends; k++)
        in_place |= fold->addend[k] == fold->to;
    put(w, "fold ");
    put_number(w, fold->n_addends);
    put_flag(w, "!", in_place);
    put(w, activation_words[fold->activation]);
    put_buffer(w, fold->to);
}

/* Where the box begins in a block, and whether it takes a last block that is not full. Layouts of
 * rank 4 may be in blocks of the second axis, whatever that is. */
static void put_channels(struct writer *w, const struct region_copy *c, const int64_t *begin,
                         const layout *l)
{
    const struct shape *whole = w->p->backend->layout_shape(l);
    if (whole->rank != 4)
        return;
    put_named(w, "@", begin[1] % LARGEST_BLOCK, 0);
    put_flag(w, "$", c->extent[1] % LARGEST_BLOCK && begin[1] + c->extent[1] == whole->dim[1]);
}

static void put_copy(struct writer *w, const struct region_copy *c)
{
    struct shape extent = *w->p->backend->layout_shape(c->from_layout);
    memcpy(extent.dim, c->extent, sizeof extent.dim);
    put(w, c->add ? "add" : "copy");
    put_shape(w, &extent);
    put(w, ":");
    put_layout(w, c->from_layout);
    put_channels(w, c, c->from_begin, c->from_layout);
    put(w, " ->");
    put_layout(w, c->to_layout);
    put_channels(w, c, c->to_begin, c->to_layout);
}

static int count_states(const struct program_param *param)
{
    int states = 0;
    for (int k = 0; k < 2; k++)
        states += param->state[k] != NO_BUFFER;
    return states;
}

/* First words of keys, and families of instructions that have no more. */
static const char *const kind_words[INSTR_KIND_COUNT] = {[INSTR_LOAD] = "upload",
                                                         [INSTR_FOLD] = "fold",
                                                         [INSTR_CLEAR] = "clear",
                                                         [INSTR_ACCUMULATE] = "accumulate",
                                                         [INSTR_STASH] = "stash"};

static void put_instr(struct writer *w, const struct instr *instr)
{
    const struct program *p = w->p;
    switch (instr->kind) {
    case INSTR_LOAD: {
        const struct program_load *load = &p->loads[instr->index];
        put(w, kind_words[instr->kind]);
        put_buffer(w, load->images);
        put_named(w, " labels ", load->label_samples.end - load->label_samples.begin, 0);
        break;
    }
    case INSTR_RUN:
        if (!p->groups[instr->group].needs.output_is_input)
            put_run(w, instr);
        break;
    case INSTR_FOLD:
        put_fold(w, &p->folds[instr->index]);
        break;
    case INSTR_COPY:
        put_copy(w, &p->copies[instr->index].region);
        break;
    case INSTR_CLEAR:
    case INSTR_ACCUMULATE:
    case INSTR_STASH:
        put(w, kind_words[instr->kind]);
        put(w, " ");
        put_number(w, p->buffers[p->copies[instr->index].to].n_bytes);
        if (instr->kind == INSTR_ACCUMULATE)
            put_type(w, p->buffers[p->copies[instr->index].to].type);
        break;
    case INSTR_UPDATE:
        put(w, "update ");
        put_number(w, count_states(&p->params[instr->param]));
        put(w, " ");
        put_number(w, p->buffers[p->params[instr->param].weight].n_bytes);
        put_type(w, p->buffers[p->params[instr->param].weight].type);
        break;
    case INSTR_SEND: /* these do not compute */
    case INSTR_RECEIVE:
    case INSTR_REDUCE:
    case INSTR_KIND_COUNT:
        break;
    }
}

const char *program_instr_key(const struct program *p, int i, char *key, size_t size)
{
    struct writer w;
    w.p = p;
    w.n = 0;
    put_instr(&w, &p->instrs[i]);
    return hand_over(&w, key, size);
}

/* ---- amounts ---- */

static double elements(const struct shape *s)
{
    return (double)shape_elements(s);
}

static double input_elements(const struct op_case *op)
{
    double sum = 0;
    for (int k = 0; k < op->n_inputs; k++)
        sum += elements(&op->input[k]);
    return sum;
}

/* Of an op: operations, and elements read and written. */
struct amount {
    double flops, elements;
};

/* Batch norm cannot write its first element before it has read the last one of the channel, and a
 * channel of a whole batch is larger than what a core or a multiprocessor keeps at hand. So
 * it reads the summed tensors twice, whether workers share the sums (then in a pass of its own) or
 * not. */
static bool reads_twice(const struct group_spec *spec)
{
    return spec->op.op == OP_BATCH_NORM && spec->training && !spec->shared_statistics;
}

/* The op's part of each pass. Backward in one pass reads what the two gradients share only once.
 * With shared statistics the sums are a pass of their own: half of batch norm's forward. */
static struct amount amount_of_pass(const struct group_spec *spec, enum pass pass)
{
    const struct op_case *op = &spec->op;
    struct op_cost c;
    op_get_cost(op, &c);
    double in = input_elements(op), out = elements(&op->output);
    double trained = (double)c.weight_gradient_elements - in - out;
    trained = trained > 0 ? trained : 0;
    double share = spec->shared_statistics ? 0.5 : 1;
    switch (pass) {
    case PASS_FORWARD:
        return (struct amount){share * c.forward_flops,
                               (double)c.forward_elements + (reads_twice(spec) ? in : 0)};
    case PASS_BACKWARD_DATA:
        return (struct amount){c.data_gradient_flops, (double)c.data_gradient_elements};
    case PASS_BACKWARD_WEIGHTS:
        return (struct amount){c.weight_gradient_flops, (double)c.weight_gradient_elements};
    case PASS_FORWARD_STATISTICS:
        return (struct amount){share * c.forward_flops, in};
    case PASS_BACKWARD_STATISTICS:
        return (struct amount){c.weight_gradient_flops, in + out + trained};
    case PASS_BACKWARD:
    case PASS_COUNT:
        break;
    }
    if (spec->shared_statistics)
        return (struct amount){c.data_gradient_flops, (double)c.data_gradient_elements};
    return (struct amount){c.data_gradient_flops + c.weight_gradient_flops,
                           (double)c.data_gradient_elements + trained +
                               (reads_twice(spec) ? in + out : 0)};
}

/* Folded in are a residual and an activation forward; backward the sum of several gradients, times
 * the activation's slope, written where the residual's gradient is. */
static struct amount amount_of_folded(const struct group_spec *spec, enum pass pass,
                                      int n_gradients)
{
    double out = elements(&spec->op.output);
    bool activates = spec->activation != ACTIVATION_NONE;
    if (pass == PASS_FORWARD)
        return (struct amount){(spec->residual + activates) * out, spec->residual ? out : 0};
    bool folds = op_get_info(spec->op.op)->flags & OP_FOLDS_GRADIENTS;
    if (!is_backward(pass) || !folds || (spec->shared_statistics && pass == PASS_BACKWARD))
        return (struct amount){0, 0};
    int more = n_gradients > 1 ? n_gradients - 1 : 0;
    return (struct amount){(more + activates) * out, (more + (more || activates)) * out};
}

/* Products have units of their own; all else is done as precisely as what it sums. */
static enum arithmetic arithmetic_of(const struct group_spec *spec)
{
    const struct precision_info *types = precision_get_info(spec->precision);
    if (op_get_info(spec->op.op)->flags & OP_SPLIT_GRADIENT)
        return types->products;
    return types->statistic == ELEMENT_F64 ? ARITHMETIC_F64 : ARITHMETIC_F32;
}

static struct work_amount amount_of_group(const struct group_spec *spec, enum pass pass,
                                          int n_gradients)
{
    const struct precision_info *types = precision_get_info(spec->precision);
    struct amount op = amount_of_pass(spec, pass);
    struct amount folded = amount_of_folded(spec, pass, n_gradients);
    return (struct work_amount){.flops = op.flops + folded.flops,
                                .arithmetic = arithmetic_of(spec),
                                .bytes = (op.elements + folded.elements) *
                                         (double)element_bytes(types->activation),
                                .convolves = spec->op.op == OP_CONV2D};
}

static struct work_amount amount_of_fold(int n_addends, bool activates, double n_bytes,
                                         enum element type)
{
    double count = n_bytes / (double)element_bytes(type);
    return (struct work_amount){.flops = (n_addends - 1 + activates) * count,
                                .bytes = (n_addends + activates + 1) * n_bytes};
}

static struct work_amount amount_of_copy(const struct program *p, const struct region_copy *c)
{
    double n = 1;
    for (int a = 0; a < p->backend->layout_shape(c->from_layout)->rank; a++)
        n *= (double)c->extent[a];
    return (struct work_amount){.flops = c->add ? n : 0,
                                .bytes =
                                    (c->add ? 3 : 2) * n *
                                    (double)element_bytes(p->backend->layout_type(c->to_layout))};
}

static struct work_amount amount_of_load(const struct program *p, const struct program_load *load)
{
    struct work_amount a = {0};
    if (load->images != NO_BUFFER)
        a.bytes += 2 * (double)p->buffers[load->images].n_bytes;
    if (load->labels != NO_BUFFER)
        a.bytes += 2 * (double)p->buffers[load->labels].n_bytes;
    return a;
}

/* `tensors`: how many of the buffer's size are read and written. */
static struct work_amount amount_of_bytes(const struct program *p, int buffer, int tensors)
{
    return (struct work_amount){.bytes = tensors * (double)p->buffers[buffer].n_bytes};
}

static struct work_amount amount_of_update(int states, double n_bytes, enum element type)
{
    return (struct work_amount){.flops = (2 + 3 * states) * n_bytes / (double)element_bytes(type),
                                .bytes = (3 + 2 * states) * n_bytes};
}

bool program_instr_is_free(const struct program *p, int i)
{
    const struct instr *instr = &p->instrs[i];
    return instr->kind == INSTR_RUN && p->groups[instr->group].needs.output_is_input;
}

struct work_amount program_instr_amount(const struct program *p, int i)
{
    const struct instr *instr = &p->instrs[i];
    struct work_amount none = {0};
    switch (instr->kind) {
    case INSTR_LOAD:
        return amount_of_load(p, &p->loads[instr->index]);
    case INSTR_RUN:
        if (program_instr_is_free(p, i))
            return none;
        return amount_of_group(&p->groups[instr->group].spec, instr->pass,
                               p->runs[instr->index].n_output_grads);
    case INSTR_FOLD: {
        const struct program_fold *fold = &p->folds[instr->index];
        const struct buffer *to = &p->buffers[fold->to];
        return amount_of_fold(fold->n_addends, fold->activation != ACTIVATION_NONE,
                              (double)to->n_bytes, to->type);
    }
    case INSTR_COPY:
        return amount_of_copy(p, &p->copies[instr->index].region);
    case INSTR_CLEAR:
        return amount_of_bytes(p, p->copies[instr->index].to, 1);
    case INSTR_ACCUMULATE: {
        struct work_amount a = amount_of_bytes(p, p->copies[instr->index].to, 3);
        a.flops = a.bytes / 3 / (double)element_bytes(p->buffers[p->copies[instr->index].to].type);
        return a;
    }
    case INSTR_STASH:
        return amount_of_bytes(p, p->copies[instr->index].to, 2);
    case INSTR_UPDATE: {
        const struct program_param *param = &p->params[instr->param];
        const struct buffer *weight = &p->buffers[param->weight];
        const struct buffer *master =
            param->master == NO_BUFFER ? weight : &p->buffers[param->master];
        struct work_amount a =
            amount_of_update(count_states(param), (double)master->n_bytes, master->type);
        a.bytes += master == weight ? 0 : (double)weight->n_bytes;
        return a;
    }
    case INSTR_SEND:
    case INSTR_RECEIVE:
    case INSTR_REDUCE:
    case INSTR_KIND_COUNT:
        break;
    }
    return none;
}

/* ---- families ---- */

static void name_group_family(const struct group_spec *spec, enum pass pass,
                              struct instr_work *work)
{
    const struct op_attrs *a = &spec->op.attrs;
    struct writer w;
    w.p = NULL;
    w.n = 0;
    put(&w, op_get_info(spec->op.op)->name);
    put_pair(&w, " k", a->kernel, 0);
    put_pair(&w, " s", a->stride, 0);
    if (a->groups > 1)
        put(&w, is_depthwise(&spec->op) ? " depthwise" : " grouped");
    put_flag(&w, " shared", spec->shared_statistics);
    put_flag(&w, " twice", reads_twice(spec)); /* profiles may have older times without it */
    put(&w, " ");
    put(&w, pass_words[pass]);
    put_type(&w, precision_get_info(spec->precision)->activation);
    (void)hand_over(&w, work->family, sizeof work->family);
}

/* "copy blocked16 plain": the kinds of the layouts, without their shapes. */
static void name_copy_family(const struct program *p, const struct region_copy *c,
                             struct instr_work *work)
{
    char from[LAYOUT_TEXT_BYTES], to[LAYOUT_TEXT_BYTES];
    p->backend->layout_text(c->from_layout, from, sizeof from);
    p->backend->layout_text(c->to_layout, to, sizeof to);
    from[strcspn(from, " ")] = to[strcspn(to, " ")] = '\0';
    struct writer w;
    w.p = p;
    w.n = 0;
    put(&w, c->add ? "add " : "copy ");
    put(&w, from);
    put(&w, " ");
    put(&w, to);
    (void)hand_over(&w, work->family, sizeof work->family);
}

static void name_family(const char *word, enum element type, struct instr_work *work)
{
    bool usual = type == ELEMENT_F32;
    (void)snprintf(work->family, sizeof work->family, "%s%s%s", word, usual ? "" : " ",
                   usual ? "" : element_name(type));
}

static void name_update_family(int states, enum element type, struct instr_work *work)
{
    char words[16];
    (void)snprintf(words, sizeof words, "update %d", states);
    name_family(words, type, work);
}

/* Of those instructions that are named by their kind; F32 where only bytes count. */
static enum element type_of(const struct program *p, const struct instr *instr)
{
    if (instr->kind == INSTR_FOLD)
        return p->buffers[p->folds[instr->index].to].type;
    if (instr->kind == INSTR_ACCUMULATE)
        return p->buffers[p->copies[instr->index].to].type;
    if (instr->kind == INSTR_LOAD && p->loads[instr->index].images != NO_BUFFER)
        return p->buffers[p->loads[instr->index].images].type;
    return ELEMENT_F32;
}

static void name_instr_family(const struct program *p, const struct instr *instr,
                              struct instr_work *work)
{
    if (instr->kind == INSTR_RUN)
        name_group_family(&p->groups[instr->group].spec, instr->pass, work);
    else if (instr->kind == INSTR_COPY)
        name_copy_family(p, &p->copies[instr->index].region, work);
    else if (instr->kind == INSTR_UPDATE)
        name_update_family(count_states(&p->params[instr->param]),
                           p->buffers[p->params[instr->param].weight].type, work);
    else if (kind_words[instr->kind])
        name_family(kind_words[instr->kind], type_of(p, instr), work);
}

/* ---- work ---- */

void work_of_group(const struct group_spec *spec, enum pass pass, int n_gradients,
                   struct instr_work *work)
{
    name_group_family(spec, pass, work);
    work->amount = amount_of_group(spec, pass, n_gradients);
}

void work_of_fold(int n_addends, bool activates, double n_bytes, enum element type,
                  struct instr_work *work)
{
    name_family(kind_words[INSTR_FOLD], type, work);
    work->amount = amount_of_fold(n_addends, activates, n_bytes, type);
}

void work_of_update(int states, double n_bytes, enum element type, struct instr_work *work)
{
    name_update_family(states, type, work);
    work->amount = amount_of_update(states, n_bytes, type);
}

void program_instr_work(const struct program *p, int i, struct instr_work *work)
{
    *work = (struct instr_work){.family = ""};
    name_instr_family(p, &p->instrs[i], work);
    work->amount = program_instr_amount(p, i);
}
