/* The checker: believes nothing but the instructions and the offsets. */
#include "program/program.h"

static bool lives_always(const struct buffer *b)
{
    return b->class == BUFFER_WEIGHTS || b->class == BUFFER_OPTIMIZER;
}

static enum status check_place(const struct program *p, int i)
{
    const struct buffer *b = &p->buffers[i];
    if (b->offset < 0 || b->offset % BUFFER_ALIGNMENT || b->n_bytes <= 0 ||
        b->offset + b->n_bytes > p->slab_bytes[b->class])
        return status_fail(STATUS_FAILED,
                           "program check: buffer %d (%s) of %lld bytes at %lld leaves the %s slab "
                           "of %lld",
                           i, b->name, (long long)b->n_bytes, (long long)b->offset,
                           buffer_class_name(b->class), (long long)p->slab_bytes[b->class]);
    return STATUS_OK;
}

/* Runs the program on ownership instead of numbers: `owner` says for every buffer whether its
 * content is intact; writing a buffer destroys every other one that overlaps it. */
static void write_buffer(const struct program *p, int written, bool *intact)
{
    const struct buffer *w = &p->buffers[written];
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *b = &p->buffers[i];
        bool overlaps = b->class == w->class && b->offset < w->offset + w->n_bytes &&
                        w->offset < b->offset + b->n_bytes;
        if (overlaps)
            intact[i] = false;
    }
    intact[written] = true;
}

/* Buffers that live always must not overlap, whether this program writes them or not. */
static enum status check_apart(const struct program *p, int i)
{
    const struct buffer *a = &p->buffers[i];
    for (int k = 0; k < i; k++) {
        const struct buffer *b = &p->buffers[k];
        if (a->class == b->class && a->offset < b->offset + b->n_bytes &&
            b->offset < a->offset + a->n_bytes)
            return status_fail(STATUS_FAILED, "program check: buffers %d (%s) and %d (%s) overlap",
                               k, b->name, i, a->name);
    }
    return STATUS_OK;
}

static enum status check_instr(const struct program *p, int number, bool *intact)
{
    char text[160];
    const struct instr *instr = &p->instrs[number];
    for (int k = 0; k < instr->n_reads + instr->n_writes; k++) {
        int b = k < instr->n_reads ? instr->reads[k] : instr->writes[k - instr->n_reads];
        if (b < 0 || b >= p->n_buffers)
            return status_fail(STATUS_FAILED, "program check: instruction %d (%s) names buffer %d",
                               number, program_instr_text(p, number, text, sizeof text), b);
    }
    for (int k = 0; k < instr->n_reads; k++)
        if (!intact[instr->reads[k]])
            return status_fail(STATUS_FAILED,
                               "program check: instruction %d (%s) reads buffer %d (%s), which was "
                               "never written or has been overwritten",
                               number, program_instr_text(p, number, text, sizeof text),
                               instr->reads[k], p->buffers[instr->reads[k]].name);
    for (int k = 0; k < instr->n_writes; k++)
        write_buffer(p, instr->writes[k], intact);
    /* What an instruction reads and writes must not overlap unless it is one buffer, and its
     * writes must all survive it. */
    for (int k = 0; k < instr->n_reads + instr->n_writes; k++) {
        int b = k < instr->n_reads ? instr->reads[k] : instr->writes[k - instr->n_reads];
        if (!intact[b])
            return status_fail(STATUS_FAILED,
                               "program check: instruction %d (%s) overwrites its own buffer %d "
                               "(%s)",
                               number, program_instr_text(p, number, text, sizeof text), b,
                               p->buffers[b].name);
    }
    return STATUS_OK;
}

/* Where an instruction belongs: load, the groups forward, the groups backward; and in a group's
 * backward first fold, then the passes, then the updates. Two instructions of one place may come
 * in either order. Ownership alone cannot see a gradient that is folded in place twice or never, or
 * a weight that is updated before its last use. */
static int place_in_order(const struct program *p, const struct instr *instr)
{
    enum { FOLD, PASSES, UPDATES, N_STEPS };
    int number = instr->group, step = instr->kind == INSTR_FOLD ? FOLD : PASSES;
    if (instr->kind == INSTR_LOAD)
        return 0;
    if (instr->kind == INSTR_RUN && instr->pass == PASS_FORWARD)
        return 1 + number;
    if (instr->kind == INSTR_UPDATE) {
        int node = p->graph->params[instr->param].node;
        step = UPDATES;
        for (number = 0; number < p->n_groups - 1 && p->groups[number].first_node != node;)
            number++;
    }
    return 1 + p->n_groups + (p->n_groups - 1 - number) * N_STEPS + step;
}

static enum status check_order(const struct program *p)
{
    char text[160];
    for (int i = 1; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i], *before = instr - 1;
        int place = place_in_order(p, instr), place_before = place_in_order(p, before);
        bool again = instr->kind == before->kind && instr->pass == before->pass &&
                     instr->param == before->param;
        if (place < place_before || (place == place_before && again))
            return status_fail(STATUS_FAILED,
                               "program check: instruction %d (%s) comes too late or twice", i,
                               program_instr_text(p, i, text, sizeof text));
    }
    return STATUS_OK;
}

/* Every group does what its buffers ask for: it has the forward pass, and folds and makes the
 * gradients that have a place. */
static enum status check_passes(const struct program *p, int number)
{
    const struct program_group *g = &p->groups[number];
    unsigned flags = op_get_info(g->spec.op.op)->flags;
    bool forward = g->needs.output_is_input, data = true, weights = true;
    bool folds =
        !program_group_folds(g) || g->folded_grad == NO_BUFFER || (flags & OP_FOLDS_GRADIENTS);
    for (int k = 0; k < OP_MAX_INPUTS; k++)
        data &= g->input_grad[k] == NO_BUFFER;
    for (int k = 0; k < OP_MAX_PARAMS; k++)
        weights &= g->param_grad[k] == NO_BUFFER;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        bool run = instr->kind == INSTR_RUN && instr->group == number;
        bool backward = run && instr->pass == PASS_BACKWARD;
        forward |= run && instr->pass == PASS_FORWARD;
        folds |= instr->kind == INSTR_FOLD && instr->group == number;
        data |= backward || (run && instr->pass == PASS_BACKWARD_DATA);
        weights |= backward || (run && instr->pass == PASS_BACKWARD_WEIGHTS);
    }
    if (forward && folds && data && weights)
        return STATUS_OK;
    return status_fail(STATUS_FAILED, "program check: %s of %s is missing",
                       !forward ? "the forward pass"
                       : !folds ? "the fold"
                                : "a gradient",
                       g->name);
}

/* Every trained parameter is updated exactly once in a training program. */
static enum status check_updates(const struct program *p)
{
    for (int i = 0; p->training && i < p->graph->n_params; i++) {
        int updates = 0;
        for (int k = 0; k < p->n_instrs; k++)
            updates += p->instrs[k].kind == INSTR_UPDATE && p->instrs[k].param == i;
        if (updates != p->graph->params[i].spec.trained)
            return status_fail(STATUS_FAILED, "program check: %s is updated %d times",
                               p->graph->params[i].name, updates);
    }
    return STATUS_OK;
}

enum status program_check(const struct program *p)
{
    arena *memory;
    TRY(arena_create(&memory));
    bool *intact;
    enum status st;
    TRY_GOTO(st, arena_alloc_array(memory, (size_t)p->n_buffers, sizeof *intact, &intact), out);
    for (int i = 0; i < p->n_buffers; i++) {
        intact[i] = lives_always(&p->buffers[i]);
        if (intact[i] || p->buffers[i].first_write >= 0)
            TRY_GOTO(st, check_place(p, i), out);
        if (intact[i])
            TRY_GOTO(st, check_apart(p, i), out);
    }
    for (int i = 0; i < p->n_instrs; i++)
        TRY_GOTO(st, check_instr(p, i, intact), out);
    if (!intact[p->losses] || (!p->training && !intact[p->logits]))
        TRY_GOTO(st, status_fail(STATUS_FAILED, "program check: the loss does not survive"), out);
    TRY_GOTO(st, check_updates(p), out);
    TRY_GOTO(st, check_order(p), out);
    for (int i = 0; i < p->n_groups; i++)
        TRY_GOTO(st, check_passes(p, i), out);
out:
    arena_destroy(memory);
    return st;
}
