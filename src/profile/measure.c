#include "profile/measure.h"

#include "base/arena.h"
#include "base/numbers.h"
#include "base/timer.h"
#include "profile/rounds.h"
#include "program/work.h"
#include "runtime/pin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 1000, FACTORS = 3 };
static const double BUDGET_S = 1, MOST_S = 4, CHECK_S = 0.2;

static const char start_name[] = "start", slowest_name[] = "slowest", cold_name[] = "cold";

/* A key of the plan. */
struct plan_key {
    const char *key;
    struct instr_work work;
    bool is_known, is_checked;
    struct profile_cost kept; /* if known */
    /* Of the rounds so far: sums over its instructions, and over the rounds of each. */
    int n_instrs, n_times;
    double seconds, spread;
};

/* One way to measure: a setting, and the costs missing in it. */
struct session {
    profile *profile;
    const struct measure_request *request;
    const struct graph *graph;
    const struct plan *plan;
    arena *memory;
    int at_once;                            /* workers at the same time */
    struct profile_setting setting, factor; /* of costs, and of factors */
    bool in_turn;
    int n_keys, n_missing, n_unchecked;
    struct plan_key *keys; /* sorted */
    double *scratch;       /* room for the rounds of an instruction */
    /* Of the teams so far: */
    int n_teams, team; /* all of them, and the one that is measured */
    int n_rounds;      /* of the team with the fewest */
    double start_s, slowest, cold, disturbed;
    char what[96];
};

/* ---- devices ---- */

const char *profile_describe_processor(char *text, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    (void)snprintf(text, size, "an unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(text, size, "%s", colon + 1 + (colon[1] == ' '));
        break;
    }
    if (f)
        (void)fclose(f);
    return text;
}

/* The number of threads, which a backend names last, is a field of its own in a setting. */
const char *profile_describe_device(const struct backend *backend, const device *d, char *text,
                                    size_t size)
{
    char processor[128];
    const char *about = backend->device_describe(d), *threads = strstr(about, ", threads ");
    (void)snprintf(text, size, "%s %.*s on %s", backend->name,
                   threads ? (int)(threads - about) : (int)strlen(about), about,
                   profile_describe_processor(processor, sizeof processor));
    return text;
}

/* ---- which keys ---- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct plan_key *)a)->key, ((const struct plan_key *)b)->key);
}

static const uint64_t HASH_START = 0xCBF29CE484222325u;

/* FNV-1a; the zero at the end counts, so that texts one after the other stay apart. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (;; text++) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3u;
        if (!*text)
            return hash;
    }
}

/* The keys met so far, by their hashes: programs repeat them many times over. */
struct seen {
    size_t capacity; /* a power of two, more than twice the expected entries */
    uint64_t *slots; /* 0: free */
};

/* Whether the key is new. */
static bool see(struct seen *s, const char *key)
{
    uint64_t hash = hash_text(HASH_START, key);
    size_t at = (hash ^ hash >> 32) & (s->capacity - 1);
    while (s->slots[at] && s->slots[at] != hash)
        at = (at + 1) & (s->capacity - 1);
    if (s->slots[at])
        return false;
    s->slots[at] = hash;
    return true;
}

static bool is_twin(const struct session *s, int worker)
{
    for (int w = 0; w < worker; w++)
        if (s->request->programs[w] == s->request->programs[worker])
            return true;
    return false;
}

static bool computes(const struct program *p, int i)
{
    return p->instrs[i].stream == STREAM_COMPUTE;
}

static enum status note_key(struct session *s, const struct program *p, int i, struct seen *seen)
{
    char text[WORK_KEY_BYTES];
    if (!program_instr_key(p, i, text, sizeof text)[0] || !see(seen, text))
        return STATUS_OK;
    struct plan_key *k = &s->keys[s->n_keys++];
    program_instr_work(p, i, &k->work);
    k->is_known = profile_find(s->profile, &s->setting, text, &k->kept);
    k->is_checked = k->is_known && profile_is_checked(s->profile, &s->setting, text);
    s->n_missing += !k->is_known;
    s->n_unchecked += !k->is_checked;
    return arena_copy_text(s->memory, text, &k->key);
}

static enum status gather_keys(struct session *s)
{
    int n = 0, n_workers = s->plan->n_workers;
    struct seen seen = {.capacity = 64};
    for (int w = 0; w < n_workers; w++)
        for (int i = 0; !is_twin(s, w) && i < s->request->programs[w]->n_instrs; i++)
            n += computes(s->request->programs[w], i);
    while (seen.capacity < 2 * (size_t)n)
        seen.capacity *= 2;
    TRY(arena_alloc_array(s->memory, seen.capacity, sizeof *seen.slots, &seen.slots));
    TRY(arena_alloc_array(s->memory, (size_t)n, sizeof *s->keys, &s->keys));
    s->n_keys = s->n_missing = s->n_unchecked = 0;
    for (int w = 0; w < n_workers; w++)
        for (int i = 0; !is_twin(s, w) && i < s->request->programs[w]->n_instrs; i++)
            if (computes(s->request->programs[w], i))
                TRY(note_key(s, s->request->programs[w], i, &seen));
    qsort(s->keys, (size_t)s->n_keys, sizeof *s->keys, compare_keys);
    return STATUS_OK;
}

/* NULL: it takes no time. */
static struct plan_key *find_key(const struct session *s, const struct program *p, int instr)
{
    char text[WORK_KEY_BYTES];
    const struct plan_key looked_for = {.key = program_instr_key(p, instr, text, sizeof text)};
    return bsearch(&looked_for, s->keys, (size_t)s->n_keys, sizeof looked_for, compare_keys);
}

/* ---- times of a team ---- */

/* The median round over the sum of all medians. Medians leave out an interrupt or a neighbour's
 * burst, but over a whole program one strikes somewhere every time. */
static double find_scale(struct session *s, const struct rounds *r, int player,
                         const double *medians_s)
{
    int n_instrs = rounds_program(r, player)->n_instrs;
    double sum = 0;
    for (int i = 0; i < n_instrs; i++)
        sum += medians_s[i];
    for (int round = 0; round < r->n_rounds; round++) {
        s->scratch[round] = 0;
        for (int i = 0; i < n_instrs; i++)
            s->scratch[round] += rounds_seconds(r, player, round)[i];
    }
    numbers_sort(s->scratch, r->n_rounds);
    return sum > 0 ? numbers_middle(s->scratch, r->n_rounds) / sum : 1;
}

/* Adds what the player's instructions took to their keys. */
static enum status take_player(struct session *s, const struct rounds *r, int player)
{
    const struct program *p = rounds_program(r, player);
    double *medians_s, *spreads;
    TRY(arena_alloc_array(s->memory, (size_t)p->n_instrs, sizeof *medians_s, &medians_s));
    TRY(arena_alloc_array(s->memory, (size_t)p->n_instrs, sizeof *spreads, &spreads));
    for (int i = 0; i < p->n_instrs; i++) {
        for (int round = 0; round < r->n_rounds; round++)
            s->scratch[round] = rounds_seconds(r, player, round)[i];
        numbers_sort(s->scratch, r->n_rounds);
        medians_s[i] = numbers_middle(s->scratch, r->n_rounds);
        spreads[i] = (numbers_quantile(s->scratch, r->n_rounds, 0.75) -
                      numbers_quantile(s->scratch, r->n_rounds, 0.25)) /
                     2;
    }
    double scale = find_scale(s, r, player, medians_s);
    for (int i = 0; i < p->n_instrs; i++) {
        struct plan_key *k = computes(p, i) ? find_key(s, p, i) : NULL;
        if (!k)
            continue;
        k->n_instrs++;
        k->n_times += r->n_rounds;
        k->seconds += scale * medians_s[i];
        k->spread += spreads[i];
    }
    return STATUS_OK;
}

/* ---- the slowest ---- */

/* A worker's program, cut where it waits for others: between two cuts is a stretch. Workers of one
 * stage with as many stretches each are taken to meet after every stretch. */
struct lane {
    int stage, n_stretches;
    int *stretch_of;             /* by instruction */
    double *usual_s, *seconds_s; /* by stretch: by the costs, and in a round */
};

static int stage_of(const struct plan *plan, int worker)
{
    for (int i = 0; i < plan->n_stages; i++)
        for (int k = 0; k < plan->stages[i].n_workers; k++)
            if (plan->stages[i].workers[k] == worker)
                return i;
    return -1; /* a server */
}

static bool waits_for_others(const struct program *p, const struct instr *instr)
{
    for (int k = 0; k < instr->n_waits; k++)
        if (p->instrs[instr->waits[k]].stream != STREAM_COMPUTE)
            return true;
    return false;
}

static enum status make_lane(struct session *s, const struct rounds *r, int player,
                             struct lane *lane)
{
    const struct program *p = rounds_program(r, player);
    size_t n = (size_t)p->n_instrs + 1;
    *lane = (struct lane){.stage = stage_of(s->plan, r->workers[player])};
    TRY(arena_alloc_array(s->memory, n, sizeof *lane->stretch_of, &lane->stretch_of));
    TRY(arena_alloc_array(s->memory, n, sizeof *lane->usual_s, &lane->usual_s));
    TRY(arena_alloc_array(s->memory, n, sizeof *lane->seconds_s, &lane->seconds_s));
    for (int i = 0; i < p->n_instrs; i++) {
        lane->n_stretches += computes(p, i) && waits_for_others(p, &p->instrs[i]);
        lane->stretch_of[i] = lane->n_stretches;
        const struct plan_key *k = computes(p, i) ? find_key(s, p, i) : NULL;
        lane->usual_s[lane->n_stretches] += k ? k->seconds / k->n_instrs : 0;
    }
    lane->n_stretches++;
    return STATUS_OK;
}

static bool meet(const struct lane *a, const struct lane *b)
{
    return a->stage == b->stage && a->n_stretches == b->n_stretches;
}

/* Of the workers that meet, the slowest in each stretch; the sum over stretches and stages. */
static double sum_slowest(const struct lane *lanes, int n, bool usual)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        bool is_first = true;
        for (int k = 0; k < i; k++)
            is_first = is_first && !meet(&lanes[k], &lanes[i]);
        for (int at = 0; is_first && at < lanes[i].n_stretches; at++) {
            double slowest_s = 0;
            for (int k = i; k < n; k++)
                if (meet(&lanes[k], &lanes[i]))
                    slowest_s =
                        fmax(slowest_s, usual ? lanes[k].usual_s[at] : lanes[k].seconds_s[at]);
            sum += slowest_s;
        }
    }
    return sum;
}

/* What workers that wait for each other take, over what their costs say: the median round. */
static enum status find_slowest(struct session *s, const struct rounds *r, double *out)
{
    struct lane *lanes;
    TRY(arena_alloc_array(s->memory, (size_t)r->n, sizeof *lanes, &lanes));
    for (int i = 0; i < r->n; i++)
        TRY(make_lane(s, r, i, &lanes[i]));
    for (int round = 0; round < r->n_rounds; round++) {
        for (int i = 0; i < r->n; i++) {
            struct lane *lane = &lanes[i];
            memset(lane->seconds_s, 0, (size_t)lane->n_stretches * sizeof *lane->seconds_s);
            for (int k = 0; k < rounds_program(r, i)->n_instrs; k++)
                lane->seconds_s[lane->stretch_of[k]] += rounds_seconds(r, i, round)[k];
        }
        s->scratch[round] = sum_slowest(lanes, r->n, false);
    }
    double usual_s = sum_slowest(lanes, r->n, true);
    numbers_sort(s->scratch, r->n_rounds);
    *out = usual_s > 0 ? fmax(1, numbers_middle(s->scratch, r->n_rounds) / usual_s) : 1;
    return STATUS_OK;
}

/* ---- teams ---- */

static enum status look_up(void *user, double share)
{
    const struct session *s = user;
    const struct measure_callbacks *c = &s->request->how.callbacks;
    if (c->stops && c->stops(c->user))
        return status_fail(STATUS_STOPPED, "stopped while measuring %s", s->what);
    if (!c->on_progress)
        return STATUS_OK;
    return c->on_progress(c->user, (s->team + share) / s->n_teams, s->what);
}

static enum status take_team(struct session *s, const struct rounds *r)
{
    double slowest = 1;
    for (int i = 0; i < r->n; i++)
        TRY(take_player(s, r, i));
    if (!s->in_turn)
        TRY(find_slowest(s, r, &slowest));
    s->slowest += slowest / s->n_teams;
    s->cold += r->cold / s->n_teams;
    s->start_s += r->start_s / s->n_teams;
    s->disturbed = fmax(s->disturbed, r->disturbed);
    s->n_rounds = int_min(s->n_rounds, r->n_rounds);
    return STATUS_OK;
}

/* Rounds of at_once workers; short ones for a check. */
static enum status run_team(struct session *s, const int *workers, bool checks)
{
    const struct measure_options *how = &s->request->how;
    double budget_s = how->budget_s > 0 ? how->budget_s : BUDGET_S;
    struct rounds r = {.programs = s->request->programs,
                       .n = s->at_once,
                       .workers = workers,
                       .n_places = s->at_once,
                       .in_turn = s->in_turn,
                       .budget_s = checks ? fmin(budget_s, CHECK_S / s->n_teams) : budget_s,
                       .most_s = checks || how->budget_s > 0 ? 0 : MOST_S,
                       .least_rounds = checks              ? 1
                                       : how->least_rounds ? how->least_rounds
                                                           : LEAST_ROUNDS,
                       .most_rounds = how->most_rounds ? how->most_rounds : MOST_ROUNDS,
                       .between = look_up,
                       .user = s};
    r.most_rounds = int_max(r.most_rounds, r.least_rounds);
    TRY(arena_alloc_array(s->memory, (size_t)r.most_rounds, sizeof *s->scratch, &s->scratch));
    (void)snprintf(s->what, sizeof s->what, "%.40s %.20s, %d of %d workers at a time",
                   s->graph->name, s->plan->name, s->in_turn ? 1 : s->at_once, s->plan->n_workers);
    enum status st;
    TRY_GOTO(st, rounds_run(&r), out);
    TRY_GOTO(st, take_team(s, &r), out);
    s->team++;
out:
    rounds_free(&r);
    return st;
}

/* Whether some of its keys are to be looked at; and what it computes, in a number. */
static bool is_wanted(const struct session *s, const struct program *p, uint64_t *identity)
{
    bool wanted = false;
    *identity = HASH_START;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct plan_key *k = computes(p, i) ? find_key(s, p, i) : NULL;
        if (!k)
            continue;
        wanted |= s->request->how.again || (s->n_missing > 0 ? !k->is_known : !k->is_checked);
        *identity = hash_text(*identity, k->key);
    }
    return wanted;
}

/* All workers at once where they fit; else one worker for each different program, as many at a time
 * as fit, the last ones together with some again. */
static enum status run_teams(struct session *s, bool checks)
{
    int n_workers = s->plan->n_workers, n = 0, *workers, *team;
    uint64_t *seen;
    TRY(arena_alloc_array(s->memory, (size_t)n_workers, sizeof *seen, &seen));
    TRY(arena_alloc_array(s->memory, (size_t)n_workers, sizeof *workers, &workers));
    TRY(arena_alloc_array(s->memory, (size_t)s->at_once, sizeof *team, &team));
    for (int w = 0; w < n_workers; w++) {
        bool skips = n_workers > s->at_once &&
                     (is_twin(s, w) || !is_wanted(s, s->request->programs[w], &seen[n]));
        for (int k = 0; k < n && n_workers > s->at_once; k++)
            skips |= seen[k] == seen[n];
        workers[n] = w;
        n += !skips;
    }
    for (int i = 0; i < s->n_keys; i++) {
        struct plan_key *k = &s->keys[i];
        k->n_instrs = k->n_times = 0;
        k->seconds = k->spread = 0;
    }
    s->n_teams = (n + s->at_once - 1) / s->at_once;
    s->n_rounds = MOST_ROUNDS;
    s->team = 0;
    s->start_s = s->slowest = s->cold = s->disturbed = 0;
    for (int first = 0; first < n; first += s->at_once) {
        for (int k = 0; k < s->at_once; k++)
            team[k] = workers[(first + k) % n];
        TRY(run_team(s, team, checks));
    }
    return STATUS_OK;
}

/* ---- keeping costs ---- */

static const char *name_of_plan(const char *what, const struct graph *graph,
                                const struct plan *plan, char *text, size_t size)
{
    (void)snprintf(text, size, "%s of %.60s %lld, %.60s %d", what, graph->name,
                   (long long)graph->batch, plan->name, plan->n_workers);
    return text;
}

static double find_factor(profile *p, const struct profile_setting *setting,
                          const struct graph *graph, const struct plan *plan, const char *name,
                          double unknown)
{
    char own[WORK_KEY_BYTES];
    struct profile_cost cost;
    bool known = profile_find(p, setting, name_of_plan(name, graph, plan, own, sizeof own), &cost);
    return known || profile_find(p, setting, name, &cost) ? cost.seconds : unknown;
}

void measure_find_factors(profile *p, const struct profile_setting *setting,
                          const struct graph *graph, const struct plan *plan,
                          struct measure_factors *out)
{
    *out = (struct measure_factors){
        .start_s = find_factor(p, setting, graph, plan, start_name, 0),
        .slowest = find_factor(p, setting, graph, plan, slowest_name, 1),
        .cold = find_factor(p, setting, graph, plan, cold_name, 1),
    };
}

/* Each under its own name and the plan's. */
static enum status keep_factors(struct session *s, bool replaces)
{
    const struct {
        const char *name;
        double figure;
        bool there;
    } factors[FACTORS] = {{start_name, s->start_s, !s->in_turn && s->at_once > 1},
                          {slowest_name, s->slowest, !s->in_turn && s->at_once > 1},
                          {cold_name, s->cold, s->in_turn}};
    struct profile_entry entries[2 * FACTORS];
    char names[FACTORS][WORK_KEY_BYTES];
    int n = 0;
    for (int i = 0; i < FACTORS; i++) {
        struct profile_entry e = {
            .key = factors[i].name,
            .work = {.family = factors[i].name},
            .cost = {.seconds = factors[i].figure, .count = 1, .disturbed = s->disturbed}};
        if (!factors[i].there)
            continue;
        entries[n++] = e;
        e.key = name_of_plan(factors[i].name, s->graph, s->plan, names[i], sizeof names[i]);
        entries[n++] = e;
    }
    return (replaces ? profile_replace : profile_add)(s->profile, &s->factor, entries, n);
}

/* Whether costs that were known are to be measured again: they are off, by as calm a measurement,
 * or this one is much calmer. */
static bool is_better(const struct session *s)
{
    double now_s = 0, kept_s = 0, disturbed_s = 0;
    for (int i = 0; i < s->n_keys; i++) {
        const struct plan_key *k = &s->keys[i];
        if (!k->is_known)
            continue;
        now_s += k->seconds;
        kept_s += k->n_instrs * k->kept.seconds;
        disturbed_s += k->n_instrs * k->kept.seconds * k->kept.disturbed;
    }
    if (!(now_s > 0 && kept_s > 0))
        return false;
    double disturbed = disturbed_s / kept_s, off = fabs(log(now_s / kept_s));
    return s->disturbed < disturbed / 2 ||
           (s->disturbed <= disturbed && off > log1p(MEASURE_TOLERANCE));
}

static void note_checked(struct session *s)
{
    for (int i = 0; i < s->n_keys; i++)
        profile_note_checked(s->profile, &s->setting, s->keys[i].key);
}

/* Missing costs are added; those that were known are replaced if these are better. */
static enum status keep_costs(struct session *s, int *n_measured)
{
    struct profile_entry *entries;
    int n = 0;
    bool replaces = is_better(s);
    TRY(arena_alloc_array(s->memory, (size_t)s->n_keys, sizeof *entries, &entries));
    for (int i = 0; i < s->n_keys; i++) {
        const struct plan_key *k = &s->keys[i];
        if (k->n_instrs == 0 || (k->is_known && !replaces))
            continue;
        entries[n++] = (struct profile_entry){
            .key = k->key,
            .work = {k->work.family, k->work.amount.flops, k->work.amount.bytes},
            .cost = {.seconds = k->seconds / k->n_instrs,
                     .spread = k->seconds > 0 ? k->spread / k->seconds : 0,
                     .count = k->n_times,
                     .disturbed = s->disturbed}};
    }
    TRY((replaces ? profile_replace : profile_add)(s->profile, &s->setting, entries, n));
    TRY(keep_factors(s, replaces));
    note_checked(s);
    *n_measured += n;
    return STATUS_OK;
}

/* ---- all of it ---- */

static enum status measure_setting(struct session *s, bool alone, struct measure_result *result)
{
    s->setting = alone ? result->alone : result->setting;
    s->factor = result->setting;
    s->in_turn = alone;
    TRY(gather_keys(s));
    result->n_keys = s->n_keys;
    result->n_missing += s->n_missing;
    if (s->request->how.look_only)
        result->n_unchecked += s->n_unchecked;
    bool again = s->request->how.again;
    if (s->request->how.look_only || (s->n_unchecked == 0 && !again))
        return STATUS_OK;
    if (s->n_missing == 0 && !again) {
        TRY(run_teams(s, true));
        if (!is_better(s)) {
            note_checked(s);
            return s->n_rounds < LEAST_ROUNDS ? STATUS_OK : keep_factors(s, false);
        }
    }
    TRY(run_teams(s, false));
    result->disturbed = fmax(result->disturbed, s->disturbed);
    return keep_costs(s, &result->n_measured);
}

enum status profile_measure(profile *p, const struct measure_request *request,
                            struct measure_result *result)
{
    int64_t start_ns = timer_now_ns();
    const struct program *any = request->programs[0];
    int n_workers = any->plan->n_workers, threads = any->backend->device_threads(any->device);
    int most = request->most_at_once ? int_min(request->most_at_once, n_workers) : n_workers;
    struct session s = {.profile = p,
                        .request = request,
                        .graph = any->graph,
                        .plan = any->plan,
                        .at_once = int_max(1, int_min(most, pin_count_cores() / threads))};
    *result = (struct measure_result){.setting = {result->device, threads, s.at_once},
                                      .alone = {result->device, threads, 1}};
    (void)profile_describe_device(any->backend, any->device, result->device, sizeof result->device);
    TRY(arena_create(&s.memory));
    enum status st = measure_setting(&s, false, result);
    if (st == STATUS_OK && request->alone && s.at_once > 1)
        st = measure_setting(&s, true, result);
    arena_destroy(s.memory);
    result->seconds = (double)(timer_now_ns() - start_ns) * 1e-9;
    return st;
}
