#include "mutations.h"

/* ---- random numbers and copies to be changed ---- */

uint64_t random_state;

static int random_below(int n)
{
    random_state++;
    return (int)(fixture_bits(77, random_state) % (uint64_t)n);
}

static void *mutant_copy(const struct mutant *m, const void *items, int n, size_t size)
{
    void *copy;
    assert_ok(arena_alloc_array(m->memory, (size_t)n + 1, size, &copy));
    if (n)
        memcpy(copy, items, (size_t)n * size);
    return copy;
}

/* Worker w's program as one that may be changed. */
static struct program *mutant_open(struct mutant *m, int w)
{
    const struct program *p = m->team.programs[w];
    struct program *q = &m->changed[w];
    if (p == q)
        return q;
    *q = *p;
    q->instrs = mutant_copy(m, p->instrs, p->n_instrs, sizeof *p->instrs);
    q->buffers = mutant_copy(m, p->buffers, p->n_buffers, sizeof *p->buffers);
    q->runs = mutant_copy(m, p->runs, p->n_runs, sizeof *p->runs);
    q->folds = mutant_copy(m, p->folds, p->n_folds, sizeof *p->folds);
    q->copies = mutant_copy(m, p->copies, p->n_copies, sizeof *p->copies);
    q->loads = mutant_copy(m, p->loads, p->n_loads, sizeof *p->loads);
    q->messages = mutant_copy(m, p->messages, p->n_messages, sizeof *p->messages);
    q->reductions = mutant_copy(m, p->reductions, p->n_reductions, sizeof *p->reductions);
    q->results = mutant_copy(m, p->results, p->n_results, sizeof *p->results);
    m->team.programs[w] = q;
    return q;
}

void mutant_begin(struct mutant *m, const struct team *t)
{
    memset(m, 0, sizeof *m);
    m->team = *t;
    assert_ok(arena_create(&m->memory));
}

static void describe(struct mutant *m, const struct program *p, int number)
{
    char text[96];
    (void)snprintf(m->what, sizeof m->what, "worker %d, instruction %d (%s)", p->worker, number,
                   program_instr_text(p, number, text, sizeof text));
}

/* A random instruction, of a random kind among those that there are, so that rare ones get their
 * turn; only of `kinds` (a set of bits). -1: none. */
static int pick_instr(const struct program *p, unsigned kinds)
{
    unsigned present = 0;
    int kind, i;
    for (i = 0; i < p->n_instrs; i++)
        present |= 1u << p->instrs[i].kind;
    present &= kinds;
    if (!present)
        return -1;
    do
        kind = random_below(INSTR_KIND_COUNT);
    while (!(present >> kind & 1));
    do
        i = random_below(p->n_instrs);
    while ((int)p->instrs[i].kind != kind);
    return i;
}

enum { ALL_KINDS = (1 << INSTR_KIND_COUNT) - 1 };

enum { MESSAGES = 1 << INSTR_SEND | 1 << INSTR_RECEIVE };

/* ---- editing the list of instructions: waits keep naming the same ones ---- */

/* The computation before i; -1: none. */
static int computation_before(const struct program *p, int i)
{
    do
        i--;
    while (i >= 0 && p->instrs[i].stream != STREAM_COMPUTE);
    return i;
}

struct wait_list {
    int n, items[512];
};

/* The new number for a wait for old instruction `number`: its place (-1: gone), or else that of the
 * instruction before it; only numbers before `now`. */
static void add_wait(const struct program *old, const int *place, int number, int now,
                     struct wait_list *l)
{
    const struct instr *instr = &old->instrs[number];
    if (place[number] >= 0 && place[number] < now && l->n < 512)
        l->items[l->n++] = place[number];
    if (place[number] >= 0)
        return;
    for (int k = 0; k < instr->n_waits; k++)
        add_wait(old, place, instr->waits[k], now, l);
    int before = computation_before(old, number);
    if (instr->stream == STREAM_COMPUTE && before >= 0)
        add_wait(old, place, before, now, l);
}

/* The new list is old[order[0]], old[order[1]], ... */
static void rearrange(const struct mutant *m, struct program *p, const int *order, int n)
{
    struct program old = *p;
    int *place = mutant_copy(m, NULL, 0, sizeof *place);
    assert_ok(arena_alloc_array(m->memory, (size_t)old.n_instrs, sizeof *place, &place));
    for (int i = 0; i < old.n_instrs; i++)
        place[i] = -1;
    for (int i = n - 1; i >= 0; i--)
        place[order[i]] = i;
    assert_ok(arena_alloc_array(m->memory, (size_t)n + 1, sizeof *p->instrs, &p->instrs));
    for (int i = 0; i < n; i++) {
        struct wait_list l = {0};
        p->instrs[i] = old.instrs[order[i]];
        for (int k = 0; k < p->instrs[i].n_waits; k++)
            add_wait(&old, place, p->instrs[i].waits[k], i, &l);
        p->instrs[i].waits = mutant_copy(m, l.items, l.n, sizeof l.items[0]);
        p->instrs[i].n_waits = l.n;
    }
    p->n_instrs = n;
}

/* Instruction `from` to place `to` (of the list without it); to -1: away; twice: a second time. */
static void move_instr(const struct mutant *m, struct program *p, int from, int to, bool twice)
{
    int *order, n = 0;
    assert_ok(arena_alloc_array(m->memory, (size_t)p->n_instrs + 1, sizeof *order, &order));
    for (int i = 0; i < p->n_instrs; i++) {
        if (n == to)
            order[n++] = from;
        if (i != from || twice)
            order[n++] = i;
    }
    if (n == to)
        order[n++] = from;
    rearrange(m, p, order, n);
}

/* ---- kinds of mutations; false: nothing to break here ---- */

static struct program *open_any(struct mutant *m)
{
    return mutant_open(m, random_below(m->team.n));
}

static bool reads_buffer(const struct instr *instr, int b)
{
    for (int k = 0; k < instr->n_reads; k++)
        if (instr->reads[k] == b)
            return true;
    return false;
}

/* A layer that is run again though no instruction reads its result: a waste, but no fault. */
static bool is_idle(const struct program *p, int number)
{
    const struct instr *instr = &p->instrs[number];
    if (instr->kind != INSTR_RUN || !p->runs[instr->index].again)
        return false;
    for (int k = 0; k < instr->n_writes; k++)
        for (int i = number + 1; i < p->n_instrs; i++)
            if (reads_buffer(&p->instrs[i], instr->writes[k]))
                return false;
    return true;
}

static bool drop_instr(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, ALL_KINDS);
    if (i < 0 || is_idle(p, i))
        return false;
    describe(m, p, i);
    move_instr(m, p, i, -1, false);
    return true;
}

/* Harmless where the instruction does not change what it reads: the second time gives the same. */
static bool repeat_instr(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, 1 << INSTR_ACCUMULATE | 1 << INSTR_UPDATE | 1 << INSTR_SEND |
                              1 << INSTR_RECEIVE | 1 << INSTR_REDUCE | 1 << INSTR_FOLD);
    if (i < 0)
        return false;
    const struct instr *instr = &p->instrs[i];
    bool changes_input = instr->kind == INSTR_UPDATE || instr->stream == STREAM_COMMUNICATE;
    for (int k = 0; k < instr->n_reads; k++)
        for (int j = 0; j < instr->n_writes; j++)
            changes_input |= instr->reads[k] == instr->writes[j];
    describe(m, p, i);
    move_instr(m, p, i, i + 1, true);
    return changes_input;
}

static bool two_messages(struct mutant *m, struct program **p, struct program_message *of[2],
                         int at[2])
{
    *p = open_any(m);
    for (int k = 0; k < 2; k++) {
        at[k] = pick_instr(*p, MESSAGES);
        if (at[k] < 0)
            return false;
        of[k] = &(*p)->messages[(*p)->instrs[at[k]].index];
    }
    describe(m, *p, at[0]);
    return at[0] != at[1];
}

static bool swap_tags(struct mutant *m)
{
    struct program *p;
    struct program_message *x[2];
    int at[2];
    if (!two_messages(m, &p, x, at) || x[0]->tag == x[1]->tag)
        return false;
    int64_t tag = x[0]->tag;
    x[0]->tag = x[1]->tag;
    x[1]->tag = tag;
    return true;
}

static bool swap_peers(struct mutant *m)
{
    struct program *p;
    struct program_message *x[2];
    int at[2];
    if (!two_messages(m, &p, x, at) || x[0]->peer == x[1]->peer)
        return false;
    int peer = x[0]->peer;
    x[0]->peer = x[1]->peer;
    x[1]->peer = peer;
    return true;
}

static void set_only(const struct mutant *m, struct instr *instr, int buffer)
{
    int *list = mutant_copy(m, &buffer, 1, sizeof buffer);
    *(instr->kind == INSTR_SEND ? &instr->reads : &instr->writes) = list;
}

/* Of the same size, in array entry and lists alike. */
static bool swap_message_buffers(struct mutant *m)
{
    struct program *p;
    struct program_message *x[2];
    int at[2];
    if (!two_messages(m, &p, x, at) || x[0]->buffer == x[1]->buffer ||
        x[0]->n_bytes != x[1]->n_bytes || p->instrs[at[0]].kind != p->instrs[at[1]].kind)
        return false;
    int buffer = x[0]->buffer;
    x[0]->buffer = x[1]->buffer;
    x[1]->buffer = buffer;
    for (int k = 0; k < 2; k++)
        set_only(m, &p->instrs[at[k]], x[k]->buffer);
    return true;
}

/* Two workers take each other's message. */
static bool exchange_receives(struct mutant *m)
{
    int u = random_below(m->team.n), v = random_below(m->team.n);
    struct program *p = mutant_open(m, u), *q = mutant_open(m, v);
    int i = pick_instr(p, 1 << INSTR_RECEIVE), k = pick_instr(q, 1 << INSTR_RECEIVE);
    if (u == v || i < 0 || k < 0)
        return false;
    struct program_message *x = &p->messages[p->instrs[i].index];
    struct program_message *y = &q->messages[q->instrs[k].index], old = *x;
    describe(m, p, i);
    if (y->peer == u || x->peer == v)
        return false;
    x->peer = y->peer;
    x->tag = y->tag;
    y->peer = old.peer;
    y->tag = old.tag;
    return true;
}

static void replace_in(int *field, int old, int new)
{
    if (*field == old)
        *field = new;
}

/* Every use of a buffer by one run. */
static void replace_in_run(struct program_run *run, int old, int new)
{
    int *single[] = {&run->residual,   &run->output, &run->saved,      &run->workspace,
                     &run->statistics, &run->labels, &run->folded_grad};
    for (size_t k = 0; k < sizeof single / sizeof single[0]; k++)
        replace_in(single[k], old, new);
    for (int k = 0; k < OP_MAX_INPUTS; k++) {
        replace_in(&run->input[k], old, new);
        replace_in(&run->input_grad[k], old, new);
    }
    for (int k = 0; k < OP_MAX_PARAMS; k++) {
        replace_in(&run->param[k], old, new);
        replace_in(&run->param_grad[k], old, new);
    }
    for (int k = 0; k < GROUP_MAX_ADDENDS; k++)
        replace_in(&run->output_grad[k], old, new);
}

static void replace_in_table(struct program *p, const struct instr *instr, int old, int new)
{
    if (instr->kind == INSTR_RUN)
        replace_in_run(&p->runs[instr->index], old, new);
    if (instr->kind == INSTR_FOLD) {
        struct program_fold *fold = &p->folds[instr->index];
        for (int k = 0; k < fold->n_addends; k++)
            replace_in(&fold->addend[k], old, new);
        replace_in(&fold->output, old, new);
        replace_in(&fold->to, old, new);
    }
    if (instr->kind == INSTR_COPY || instr->kind == INSTR_ACCUMULATE ||
        instr->kind == INSTR_STASH || instr->kind == INSTR_CLEAR) {
        replace_in(&p->copies[instr->index].from, old, new);
        replace_in(&p->copies[instr->index].to, old, new);
    }
    if (instr->kind == INSTR_SEND || instr->kind == INSTR_RECEIVE)
        replace_in(&p->messages[instr->index].buffer, old, new);
}

static void replace_in_list(const struct mutant *m, const int **list, int n, int old, int new)
{
    int *copy = mutant_copy(m, *list, n, sizeof **list);
    for (int k = 0; k < n; k++)
        replace_in(&copy[k], old, new);
    *list = copy;
}

/* Whether the instruction uses the buffer's content, or makes one. Workspaces are neither. */
static bool matters(const struct program *p, int buffer)
{
    return p->buffers[buffer].class != BUFFER_WORKSPACE;
}

/* An instruction gets another buffer of the same kind and size, in array entry and lists alike. */
static bool change_buffer(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, 1 << INSTR_RUN | 1 << INSTR_FOLD | 1 << INSTR_COPY | 1 << INSTR_STASH |
                              1 << INSTR_ACCUMULATE | MESSAGES);
    if (i < 0)
        return false;
    struct instr *instr = &p->instrs[i];
    int k = random_below(instr->n_reads + instr->n_writes), other = -1;
    int old = k < instr->n_reads ? instr->reads[k] : instr->writes[k - instr->n_reads];
    for (int tries = 0; tries < 200 && other < 0; tries++) {
        int b = random_below(p->n_buffers);
        const struct buffer *x = &p->buffers[b], *y = &p->buffers[old];
        if (b != old && x->first_write >= 0 && x->class == y->class && x->layout == y->layout &&
            x->n_bytes == y->n_bytes)
            other = b;
    }
    if (other < 0 || !matters(p, old))
        return false;
    describe(m, p, i);
    replace_in_table(p, instr, old, other);
    replace_in_list(m, &instr->reads, instr->n_reads, old, other);
    replace_in_list(m, &instr->writes, instr->n_writes, old, other);
    return true;
}

/* The list differs from the array entry. */
static bool change_list(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, ALL_KINDS);
    if (i < 0 || p->instrs[i].n_reads == 0)
        return false;
    struct instr *instr = &p->instrs[i];
    int *reads = mutant_copy(m, instr->reads, instr->n_reads, sizeof *reads);
    int k = random_below(instr->n_reads), old = reads[k];
    bool twice = false;
    for (int j = 0; j < instr->n_reads; j++)
        twice |= j != k && reads[j] == old;
    describe(m, p, i);
    if (random_below(2)) {
        reads[k] = reads[--instr->n_reads];
    } else {
        reads[k] = random_below(p->n_buffers);
        twice |= reads[k] == old;
    }
    instr->reads = reads;
    return !twice;
}

/* ---- waits and moves ---- */

/* Whether `target` has ended before i starts, by order and waits, leaving out one wait of i. */
static bool still_ordered(const struct program *p, int i, int left_out, int target, bool *seen)
{
    const struct instr *instr = &p->instrs[i];
    if (seen[i])
        return false;
    seen[i] = true;
    int before = instr->stream == STREAM_COMPUTE ? computation_before(p, i) : -1;
    for (int k = -1; k < instr->n_waits; k++) {
        int next = k < 0 ? before : instr->waits[k];
        if (next < 0 || (k >= 0 && k == left_out))
            continue;
        if (next == target || still_ordered(p, next, -1, target, seen))
            return true;
    }
    return false;
}

/* Not where the others imply it. */
static bool remove_wait(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = -1;
    for (int tries = 0; tries < 100 && (i < 0 || p->instrs[i].n_waits == 0); tries++)
        i = random_below(p->n_instrs);
    struct instr *instr = &p->instrs[i];
    if (instr->n_waits == 0)
        return false;
    int *waits = mutant_copy(m, instr->waits, instr->n_waits, sizeof *waits);
    int k = random_below(instr->n_waits);
    bool *seen = calloc((size_t)p->n_instrs, sizeof *seen);
    assert_true(seen);
    describe(m, p, i);
    bool implied = still_ordered(p, i, k, waits[k], seen);
    free(seen);
    waits[k] = waits[--instr->n_waits];
    instr->waits = waits;
    return !implied;
}

static bool writes_buffer(const struct instr *instr, int b)
{
    for (int k = 0; k < instr->n_writes; k++)
        if (instr->writes[k] == b)
            return true;
    return false;
}

/* An instruction that only adds to what it writes: two of these may change places. */
static bool adds_to(const struct program *p, const struct instr *instr, int b)
{
    bool adds = instr->kind == INSTR_ACCUMULATE ||
                (instr->kind == INSTR_COPY && p->copies[instr->index].region.add);
    return adds && p->copies[instr->index].to == b && p->copies[instr->index].from != b;
}

/* Moved right before the last instruction that writes a buffer it reads. */
static bool read_early(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, ALL_KINDS);
    if (i < 0 || p->instrs[i].n_reads == 0)
        return false;
    int b = p->instrs[i].reads[random_below(p->instrs[i].n_reads)], writer = i - 1;
    while (writer >= 0 && !writes_buffer(&p->instrs[writer], b))
        writer--;
    if (writer < 0 || (adds_to(p, &p->instrs[i], b) && adds_to(p, &p->instrs[writer], b)))
        return false;
    describe(m, p, i);
    move_instr(m, p, i, writer, false);
    return true;
}

/* ---- places ---- */

/* Whether writing `a` at some time would spoil what a later instruction reads in b. */
static bool spoils(const struct program *p, int a, int b)
{
    bool filled = false, hit = false;
    for (int i = 0; i < p->n_instrs; i++) {
        if (hit && reads_buffer(&p->instrs[i], b))
            return true;
        hit |= filled && writes_buffer(&p->instrs[i], a);
        if (writes_buffer(&p->instrs[i], b)) {
            filled = true;
            hit = false;
        }
    }
    return false;
}

static bool overlap_buffers(struct mutant *m)
{
    struct program *p = open_any(m);
    for (int tries = 0; tries < 400; tries++) {
        int a = random_below(p->n_buffers), b = random_below(p->n_buffers);
        struct buffer *x = &p->buffers[a], *y = &p->buffers[b];
        if (a == b || x->class != y->class || x->first_write < 0 || y->first_write < 0 ||
            x->parent != NO_BUFFER || y->parent != NO_BUFFER ||
            y->offset + x->n_bytes > p->slab_bytes[x->class] || !spoils(p, a, b))
            continue;
        (void)snprintf(m->what, sizeof m->what, "worker %d, buffer %d (%s) onto %d (%s)", p->worker,
                       a, x->name, b, y->name);
        x->offset = y->offset;
        return true;
    }
    return false;
}

/* ---- numbers in array entries ---- */

static bool change_reduction(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, 1 << INSTR_REDUCE);
    if (i < 0)
        return false;
    struct comm_reduction *r = &p->reductions[p->instrs[i].index].spec;
    describe(m, p, i);
    switch (random_below(6)) {
    case 0:
        r->count--;
        break;
    case 1:
        r->method = r->method == COMM_RING ? COMM_TREE : COMM_RING;
        break;
    case 2:
        r->type = r->type == ELEMENT_F32 ? ELEMENT_F64 : ELEMENT_F32;
        break;
    case 3:
        r->node_size++;
        break;
    case 4:
        r->tag++;
        break;
    default:
        r->n_members--;
    }
    return true;
}

static bool change_copy(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, 1 << INSTR_COPY);
    if (i < 0)
        return false;
    struct region_copy *r = &p->copies[p->instrs[i].index].region;
    const struct shape *shape = p->backend->layout_shape(r->to_layout);
    int axis = random_below(shape->rank);
    describe(m, p, i);
    switch (random_below(3)) {
    case 0: /* beside where it belongs */
        r->to_begin[axis] += r->to_begin[axis] ? -1 : 1;
        return true;
    case 1:
        r->from_begin[axis] += r->from_begin[axis] ? -1 : 1;
        return true;
    default: /* one too few */
        r->extent[axis]--;
        return true;
    }
}

static bool change_fold(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, 1 << INSTR_FOLD);
    if (i < 0)
        return false;
    struct instr *instr = &p->instrs[i];
    struct program_fold *fold = &p->folds[instr->index];
    int *reads = mutant_copy(m, instr->reads, instr->n_reads, sizeof *reads), n = 0;
    describe(m, p, i);
    if (fold->n_addends > 1) { /* one is forgotten */
        fold->n_addends--;
        for (int k = 0; k < fold->n_addends; k++)
            reads[n++] = fold->addend[k];
        if (fold->output != NO_BUFFER)
            reads[n++] = fold->output;
    } else { /* the activation is */
        fold->activation = ACTIVATION_NONE;
        fold->output = NO_BUFFER;
        reads[n++] = fold->addend[0];
    }
    instr->reads = reads;
    instr->n_reads = n;
    return true;
}

/* Groups of one layer differ only in the size of the micro-batch, and a worker's piece may have as
 * many samples of the one as of the other. */
static bool same_kernel(const struct program_group *a, const struct program_group *b)
{
    const struct group_spec *x = &a->spec, *y = &b->spec;
    bool same = a->first_node == b->first_node && shape_equal(&x->op.output, &y->op.output) &&
                x->statistics_count == y->statistics_count;
    for (int i = 0; i < SHAPE_MAX_RANK; i++)
        same &= x->origin[i] == y->origin[i];
    return same;
}

static bool change_run(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, 1 << INSTR_RUN);
    if (i < 0)
        return false;
    struct instr *instr = &p->instrs[i];
    struct program_run *run = &p->runs[instr->index];
    describe(m, p, i);
    switch (random_below(3)) {
    case 0:
        run->first_sample++;
        return true;
    case 1: { /* two inputs change places, if they are two */
        int input = run->input[0];
        run->input[0] = run->input[1];
        run->input[1] = input;
        return p->groups[instr->group].spec.op.n_inputs > 1 && run->input[0] != input &&
               instr->pass == PASS_FORWARD;
    }
    default: { /* the kernel of another group */
        int other = random_below(p->n_groups);
        bool same = same_kernel(&p->groups[other], &p->groups[instr->group]);
        instr->group = other;
        return !same;
    }
    }
}

static bool change_samples(struct mutant *m)
{
    struct program *p = open_any(m);
    if (p->n_loads && random_below(2)) {
        struct program_load *load = &p->loads[random_below(p->n_loads)];
        struct range *r = load->images == NO_BUFFER ? &load->label_samples : &load->image_samples;
        r->begin += r->begin ? -1 : 1;
        r->end += r->begin ? 1 : -1;
    } else if (p->n_results) {
        struct program_result *r = &p->results[random_below(p->n_results)];
        if (random_below(2))
            r->samples.begin++;
        else
            r->losses = (r->losses + 1) % p->n_buffers;
    } else {
        return false;
    }
    (void)snprintf(m->what, sizeof m->what, "worker %d, samples", p->worker);
    return true;
}

static bool update_another(struct mutant *m)
{
    struct program *p = open_any(m);
    int i = pick_instr(p, 1 << INSTR_UPDATE), k = pick_instr(p, 1 << INSTR_UPDATE);
    if (i < 0 || p->instrs[i].param == p->instrs[k].param)
        return false;
    describe(m, p, i);
    p->instrs[i] = p->instrs[k];
    return true;
}

/* A send waits for the answer to it:  worker u  send A .. receive B   becomes
 * receive B, send A waits for it; while worker v's B waits for A. */
static bool make_deadlock(struct mutant *m)
{
    int v = random_below(m->team.n);
    const struct program *q = m->team.programs[v];
    int answer = pick_instr(q, 1 << INSTR_SEND);
    if (answer < 0)
        return false;
    int u = q->messages[q->instrs[answer].index].peer, question = -1;
    bool *seen = calloc((size_t)q->n_instrs, sizeof *seen);
    assert_true(seen);
    for (int i = 0; i < answer && question < 0; i++) {
        memset(seen, 0, (size_t)q->n_instrs);
        if (q->instrs[i].kind == INSTR_RECEIVE && q->messages[q->instrs[i].index].peer == u &&
            still_ordered(q, answer, -1, i, seen))
            question = i;
    }
    free(seen);
    if (question < 0)
        return false;
    struct program *p = mutant_open(m, u);
    int send = -1, receive = -1;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct program_message *x = &p->messages[p->instrs[i].index];
        if (p->instrs[i].kind == INSTR_SEND && x->peer == v &&
            x->tag == q->messages[q->instrs[question].index].tag)
            send = i;
        if (p->instrs[i].kind == INSTR_RECEIVE && x->peer == v &&
            x->tag == q->messages[q->instrs[answer].index].tag)
            receive = i;
    }
    assert_true(send >= 0 && receive > send);
    describe(m, p, send);
    move_instr(m, p, send, receive, false); /* right behind the receive */
    struct instr *instr = &p->instrs[receive];
    int *waits = mutant_copy(m, instr->waits, instr->n_waits, sizeof *waits);
    waits[instr->n_waits++] = receive - 1;
    instr->waits = waits;
    return true;
}

const struct mutation mutations[] = {
    {"drop", drop_instr},
    {"drop", drop_instr}, /* the most important one */
    {"repeat", repeat_instr},
    {"swap tags", swap_tags},
    {"swap peers", swap_peers},
    {"swap message buffers", swap_message_buffers},
    {"exchange receives", exchange_receives},
    {"change buffer", change_buffer},
    {"change list", change_list},
    {"remove wait", remove_wait},
    {"read early", read_early},
    {"overlap", overlap_buffers},
    {"change reduction", change_reduction},
    {"change copy", change_copy},
    {"change fold", change_fold},
    {"change run", change_run},
    {"change samples", change_samples},
    {"update another", update_another},
    {"deadlock", make_deadlock},
};
