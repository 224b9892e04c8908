#include "profile/turns.h"

#include "base/arena.h"
#include "machine/machine.h"

#include <math.h>

struct player {
    const struct program *program;
    /* [n_instrs][n]: of what communicates, with which instruction each of the others takes part;
     * -1: it does not. */
    int *partners;
    double *ended_s; /* by instruction; INFINITY: not yet, or not known yet */
    double
        *reached_s; /* by instruction: when it asked how long it would sleep there; INFINITY: not */
    double now_s;
    int waits_at; /* -1: for nothing */
    bool slept;   /* before its last turn */
    bool over;
};

struct turns {
    arena *memory;
    int n;
    struct player *players;
};

/* ---- who takes part in what ---- */

/* The first who runs a worker's program; -1: nobody does. */
static int find_player(const turns *t, int worker)
{
    for (int i = 0; i < t->n; i++)
        if (t->players[i].program->worker == worker)
            return i;
    return -1;
}

static bool is_same_sum(const struct comm_reduction *a, const struct comm_reduction *b)
{
    return a->tag == b->tag && a->n_members == b->n_members && a->members[0] == b->members[0] &&
           a->members[a->n_members - 1] == b->members[b->n_members - 1];
}

static bool is_other_side(const struct program *p, int i, const struct program *other, int k)
{
    const struct instr *mine = &p->instrs[i], *theirs = &other->instrs[k];
    if (theirs->stream != STREAM_COMMUNICATE)
        return false;
    if (mine->kind == INSTR_REDUCE || theirs->kind == INSTR_REDUCE)
        return mine->kind == theirs->kind && is_same_sum(&p->reductions[mine->index].spec,
                                                         &other->reductions[theirs->index].spec);
    const struct program_message *m = &p->messages[mine->index];
    return mine->kind != theirs->kind && m->tag == other->messages[theirs->index].tag &&
           other->messages[theirs->index].peer == p->worker;
}

/* Looked for from `first` on: both sides come to what they share in the same order. */
static int find_other_side(const struct program *p, int i, const struct program *other, int first)
{
    for (int k = 0; k < other->n_instrs; k++) {
        int at = (first + k) % other->n_instrs;
        if (is_other_side(p, i, other, at))
            return at;
    }
    return -1;
}

/* last[player]: where that one's side was last found. */
static void find_partners(turns *t, int who, int i, int *last)
{
    const struct program *p = t->players[who].program;
    const struct instr *instr = &p->instrs[i];
    int *to = t->players[who].partners + (size_t)i * (size_t)t->n;
    bool sums = instr->kind == INSTR_REDUCE;
    const int *workers =
        sums ? p->reductions[instr->index].spec.members : &p->messages[instr->index].peer;
    int n = sums ? p->reductions[instr->index].spec.n_members : 1;
    for (int k = 0; k < n; k++) {
        int player = find_player(t, workers[k]);
        if (player < 0 || workers[k] == p->worker)
            continue;
        to[player] = find_other_side(p, i, t->players[player].program, last[player]);
        last[player] = to[player] < 0 ? last[player] : to[player];
    }
    to[who] = i;
}

static enum status prepare(turns *t, int who)
{
    struct player *player = &t->players[who];
    size_t n_instrs = (size_t)player->program->n_instrs, n = n_instrs * (size_t)t->n;
    int *last;
    TRY(arena_alloc_array(t->memory, n, sizeof *player->partners, &player->partners));
    TRY(arena_alloc_array(t->memory, n_instrs, sizeof *player->ended_s, &player->ended_s));
    TRY(arena_alloc_array(t->memory, n_instrs, sizeof *player->reached_s, &player->reached_s));
    TRY(arena_alloc_array(t->memory, (size_t)t->n, sizeof *last, &last));
    for (size_t i = 0; i < n; i++)
        player->partners[i] = -1;
    for (int i = 0; i < player->program->n_instrs; i++)
        if (player->program->instrs[i].stream == STREAM_COMMUNICATE)
            find_partners(t, who, i, last);
    return STATUS_OK;
}

static enum status build(turns *t, const struct program *const *programs)
{
    TRY(arena_alloc_array(t->memory, (size_t)t->n, sizeof *t->players, &t->players));
    for (int i = 0; i < t->n; i++)
        t->players[i].program = programs[i];
    for (int i = 0; i < t->n; i++)
        TRY(prepare(t, i));
    turns_begin(t);
    return STATUS_OK;
}

enum status turns_create(const struct program *const *programs, int n, turns **out)
{
    arena *memory;
    turns *t;
    TRY(arena_create(&memory));
    enum status st = arena_alloc(memory, sizeof *t, &t);
    if (st == STATUS_OK) {
        *t = (turns){.memory = memory, .n = n};
        st = build(t, programs);
    }
    if (st == STATUS_OK)
        *out = t;
    else
        arena_destroy(memory);
    return st;
}

void turns_destroy(turns *t)
{
    if (t)
        arena_destroy(t->memory);
}

/* ---- when something has come ---- */

static double end_of(turns *t, int who, int instr);

/* Of all that an instruction waits for. A message that was sent is nobody's concern any more. */
static double end_of_waits(turns *t, int who, int instr)
{
    const struct program *p = t->players[who].program;
    const struct instr *i = &p->instrs[instr];
    double end_s = 0;
    for (int k = 0; k < i->n_waits && end_s < INFINITY; k++)
        if (p->instrs[i->waits[k]].kind != INSTR_SEND)
            end_s = fmax(end_s, end_of(t, who, i->waits[k]));
    return end_s;
}

/* Communication has ended when all of its members have come to it. */
static double end_of(turns *t, int who, int instr)
{
    struct player *player = &t->players[who];
    const int *partners = player->partners + (size_t)instr * (size_t)t->n;
    if (player->ended_s[instr] < INFINITY ||
        player->program->instrs[instr].stream == STREAM_COMPUTE)
        return player->ended_s[instr];
    double end_s = 0;
    for (int k = 0; k < t->n && end_s < INFINITY; k++)
        if (partners[k] >= 0)
            end_s = fmax(end_s, end_of_waits(t, k, partners[k]));
    player->ended_s[instr] = end_s;
    return end_s;
}

/* When it can go on. */
static double ready_s(turns *t, int who)
{
    const struct player *player = &t->players[who];
    double come_s = player->waits_at < 0 ? 0 : end_of_waits(t, who, player->waits_at);
    return fmax(player->now_s, come_s);
}

/* ---- turns ---- */

void turns_begin(turns *t)
{
    for (int i = 0; i < t->n; i++) {
        struct player *player = &t->players[i];
        player->now_s = 0;
        player->waits_at = -1;
        player->over = false;
        for (int k = 0; k < player->program->n_instrs; k++)
            player->ended_s[k] = player->reached_s[k] = INFINITY;
    }
}

void turns_compute(turns *t, int who, int instr, double seconds)
{
    struct player *player = &t->players[who];
    if (player->waits_at == instr)
        player->waits_at = -1;
    player->now_s += seconds;
    player->ended_s[instr] = player->now_s;
}

void turns_end(turns *t, int who)
{
    t->players[who].over = true;
}

double turns_sleep_s(turns *t, int who, int instr)
{
    struct player *player = &t->players[who];
    player->waits_at = instr;
    player->reached_s[instr] = player->now_s;
    double come_s = ready_s(t, who), sleep_s = come_s - player->now_s;
    if (sleep_s > COMM_SPIN_S)
        return sleep_s;
    player->now_s = come_s;
    player->waits_at = -1;
    return 0;
}

/* Programs that passed verify_programs never wait for each other in a circle, and what comes from
 * outside is there; should nobody be ready all the same, anybody goes on. */
int turns_pass(turns *t, int who)
{
    int next = who >= 0 && !t->players[who].over ? who : -1;
    double first_s = INFINITY;
    for (int i = 0; i < t->n; i++) {
        if (i == who || t->players[i].over)
            continue;
        double s = ready_s(t, i);
        if (next < 0 || s < first_s) {
            next = i;
            first_s = s;
        }
    }
    if (next < 0)
        return -1;
    double s = ready_s(t, next);
    t->players[next].now_s = s < INFINITY ? s : t->players[next].now_s;
    t->players[next].waits_at = -1;
    return next;
}

bool turns_slept(turns *t, int who, int instr)
{
    return end_of_waits(t, who, instr) - t->players[who].reached_s[instr] > COMM_SPIN_S;
}
