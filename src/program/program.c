#include "program/program.h"

#include "program/lowering.h"

#include <assert.h>

static const char *const class_names[] = {
    [BUFFER_WEIGHTS] = "weights",     [BUFFER_OPTIMIZER] = "optimizer",
    [BUFFER_GRADIENTS] = "gradients", [BUFFER_ACTIVATIONS] = "activations",
    [BUFFER_WORKSPACE] = "workspace",
};
static_assert(sizeof class_names / sizeof class_names[0] == BUFFER_CLASS_COUNT, "a name each");

static const char *const pass_names[] = {
    [PASS_FORWARD] = "forward",
    [PASS_BACKWARD] = "backward",
    [PASS_BACKWARD_DATA] = "backward_data",
    [PASS_BACKWARD_WEIGHTS] = "backward_weights",
};
static_assert(sizeof pass_names / sizeof pass_names[0] == PASS_COUNT, "a name each");

const char *buffer_class_name(enum buffer_class class)
{
    return class_names[class];
}

static enum status lower(struct program *p, const struct program *shares_params_of)
{
    TRY(lowering_group_nodes(p));
    TRY(lowering_emit(p, shares_params_of));
    lowering_find_live_ranges(p);
    return lowering_place_buffers(p, shares_params_of);
}

enum status program_create(const struct graph *graph, const struct program_options *options,
                           struct program **out)
{
    arena *memory;
    TRY(arena_create(&memory));
    struct program *p;
    enum status st = arena_alloc(memory, sizeof *p, &p);
    if (st != STATUS_OK) {
        arena_destroy(memory);
        return st;
    }
    *p = (struct program){.memory = memory,
                          .graph = graph,
                          .backend = options->backend,
                          .device = options->device,
                          .training = options->training,
                          .n_states = options->n_states};
    st = lower(p, options->shares_params_of);
#ifndef NDEBUG
    if (st == STATUS_OK)
        st = program_check(p);
#endif
    if (st != STATUS_OK) {
        program_destroy(p);
        return st;
    }
    *out = p;
    return STATUS_OK;
}

void program_destroy(struct program *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_groups; i++)
        if (p->groups[i].kernels)
            p->backend->group_destroy(p->groups[i].kernels);
    arena_destroy(p->memory);
}

int64_t program_memory_bytes(const struct program *p)
{
    int64_t total = 0;
    for (int i = 0; i < BUFFER_CLASS_COUNT; i++)
        total += p->slab_bytes[i];
    return total;
}

const char *program_instr_text(const struct program *p, int i, char *buffer, size_t size)
{
    const struct instr *instr = &p->instrs[i];
    switch (instr->kind) {
    case INSTR_LOAD:
        (void)snprintf(buffer, size, "load");
        break;
    case INSTR_RUN:
        (void)snprintf(buffer, size, "%s %s", pass_names[instr->pass],
                       p->groups[instr->group].name);
        break;
    case INSTR_FOLD:
        (void)snprintf(buffer, size, "fold %s", p->groups[instr->group].name);
        break;
    case INSTR_UPDATE:
        (void)snprintf(buffer, size, "update %s", p->graph->params[instr->param].name);
        break;
    case INSTR_KIND_COUNT:
        break;
    }
    return buffer;
}

static void dump_list(FILE *out, const char *what, int n, const int *buffers)
{
    (void)fprintf(out, " %s", what);
    for (int k = 0; k < n; k++)
        (void)fprintf(out, "%c%d", k ? ',' : ' ', buffers[k]);
}

void program_dump(const struct program *p, FILE *out)
{
    char text[160];
    (void)fprintf(out, "program %s batch %lld %s\n", p->graph->name, (long long)p->graph->batch,
                  p->training ? "training" : "evaluation");
    for (int i = 0; i < BUFFER_CLASS_COUNT; i++)
        (void)fprintf(out, "slab %s %lld bytes\n", class_names[i], (long long)p->slab_bytes[i]);
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *b = &p->buffers[i];
        (void)fprintf(out, "buffer %d %s offset %lld bytes %lld live %d..%d %s\n", i,
                      class_names[b->class], (long long)b->offset, (long long)b->n_bytes,
                      b->first_write, b->last_use, b->name);
    }
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *instr = &p->instrs[i];
        (void)fprintf(out, "instr %d %s", i, program_instr_text(p, i, text, sizeof text));
        dump_list(out, "reads", instr->n_reads, instr->reads);
        dump_list(out, "writes", instr->n_writes, instr->writes);
        (void)fprintf(out, "\n");
    }
}
