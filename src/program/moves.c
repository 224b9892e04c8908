/* Views: a region of a tensor put together from the parts that workers hold, and the way back.
 *
 * Forward and backward are the same operation with the two sides exchanged: every worker of the
 * receiving side needs, for its region, the sum of all that the giving side has of it.
 *
 *     forward    from: the source's regions   to: the view's     (one giver each, or partial sums)
 *     backward   from: the view's regions     to: the source's   (halos overlap: sums)
 *
 * Each pair of regions that meet (traffic.c) is a share, and between different workers a message:
 *
 *     source, rows of worker 0: 0..13, of worker 1: 14..27; view, rows 0..14 and 13..27
 *
 *     worker 0   receive row 14 from 1, send row 13 to 1; copy rows 0..13, copy row 14
 *     worker 1   receive row 13 from 0, send row 14 to 0; copy row 13, copy rows 14..27
 *
 * A share travels in the layout that the backend would choose for a tensor of its shape, so that a
 * whole tensor is sent from and received into its own buffer. Sums are added in the order of worker
 * numbers; the first share is copied where it covers the whole region. */
#include "program/lowering.h"

#include <string.h>

struct move {
    int from, to; /* tensors */
    int micro, size, rank;
    enum direction direction;
    const struct region *has, *needs; /* this worker's, of `from` and of `to` */
    int n_messages;                   /* of all workers */
    int n_givers, n_takers;
    const struct share *giver, *taker; /* of `needs`, and of `has`; by worker, itself included */
    struct instr like;
};

static struct move move_between(const struct emitter *e, int from, int to, int micro)
{
    bool forward = e->part->tensors[to].source == from;
    int size = emit_size(e, micro);
    const struct traffic *t = &e->analysis->traffic[forward ? to : from][size];
    int first_in_source = t->of_view[e->me], first_in_view = t->of_source[e->me];
    int n_in_source = t->of_view[e->me + 1] - first_in_source;
    int n_in_view = t->of_source[e->me + 1] - first_in_view;
    const struct share *in_source = t->in_source + first_in_source;
    const struct share *in_view = t->in_view + first_in_view;
    return (struct move){.from = from,
                         .to = to,
                         .micro = micro,
                         .size = size,
                         .rank = e->part->tensors[from].axes.rank,
                         .direction = forward ? TO_VIEW : TO_SOURCE,
                         .has = emit_region(e, from, size, e->me),
                         .needs = emit_region(e, to, size, e->me),
                         .n_messages = t->n_messages,
                         .n_givers = forward ? n_in_source : n_in_view,
                         .n_takers = forward ? n_in_view : n_in_source,
                         .giver = forward ? in_source : in_view,
                         .taker = forward ? in_view : in_source,
                         .like = {.group = -1, .micro = micro, .param = -1}};
}

static const layout *layout_here(const struct emitter *e, const struct move *v, int tensor)
{
    return e->layouts[tensor][v->size];
}

/* The part of `taker`'s needs that `giver` has; they are a pair of the move's. */
static struct region share_of(const struct emitter *e, const struct move *v, int giver, int taker)
{
    struct region share;
    (void)region_intersect(emit_region(e, v->from, v->size, giver),
                           emit_region(e, v->to, v->size, taker), v->rank, &share);
    return share;
}

/* Whether this worker is the only one in the list. */
static bool is_alone(const struct emitter *e, int n, const struct share *list)
{
    return n == 0 || (n == 1 && list[0].peer == e->me);
}

/* Whether this worker has exactly what it needs, and no other worker adds to it. */
static bool is_there(const struct emitter *e, const struct move *v)
{
    return is_alone(e, v->n_givers, v->giver) && region_equal(v->has, v->needs, v->rank);
}

/* ---- sending and receiving ---- */

static void set_begin(int rank, const struct region *share, const struct region *in, int64_t *begin)
{
    for (int i = 0; i < rank; i++)
        begin[i] = share->axis[i].begin - in->axis[i].begin;
}

static void set_extent(int rank, const struct region *share, int64_t *extent)
{
    for (int i = 0; i < rank; i++)
        extent[i] = share->axis[i].end - share->axis[i].begin;
}

static enum status transfer_layout(struct emitter *e, const struct move *v,
                                   const struct region *share, const layout **out)
{
    struct shape shape = region_shape(share, v->rank);
    return emit_natural_layout(e, v->from, &shape, out);
}

static int64_t tag_of(const struct emitter *e, const struct move *v, const struct share *s)
{
    return emit_tag(TAG_MESSAGE, e->next_message + s->message[v->direction]);
}

static enum status send_share(struct emitter *e, const struct move *v, const struct share *taker,
                              int buffer)
{
    struct region share = share_of(e, v, e->me, taker->peer);
    const layout *travels, *lies = layout_here(e, v, v->from);
    TRY(transfer_layout(e, v, &share, &travels));
    if (travels != lies || !region_equal(&share, v->has, v->rank)) {
        struct program_copy pack = {.from = buffer,
                                    .region = {.from_layout = lies, .to_layout = travels}};
        TRY(emit_tensor(e, e->part->tensors[v->from].name, BUFFER_TRANSFER, travels, &pack.to));
        set_begin(v->rank, &share, v->has, pack.region.from_begin);
        set_extent(v->rank, &share, pack.region.extent);
        TRY(emit_copy(e, INSTR_COPY, &pack, v->like));
        buffer = pack.to;
    }
    TRY(emit_message(e, INSTR_SEND, taker->peer, tag_of(e, v, taker), buffer, v->like));
    return overlap_send(e, buffer, taker->peer);
}

/* A share that comes first and is the whole region is received into *direct, the buffer that is put
 * together. */
static enum status receive_share(struct emitter *e, const struct move *v, const struct share *giver,
                                 int *direct, int *buffer)
{
    struct region share = share_of(e, v, giver->peer, e->me);
    const layout *travels, *lies = layout_here(e, v, v->to);
    TRY(transfer_layout(e, v, &share, &travels));
    bool straight = region_equal(&share, v->needs, v->rank) && travels == lies && giver == v->giver;
    TRY(emit_tensor(e, e->part->tensors[v->to].name,
                    straight ? BUFFER_ACTIVATIONS : BUFFER_TRANSFER, travels, buffer));
    if (straight)
        *direct = *buffer;
    TRY(emit_message(e, INSTR_RECEIVE, giver->peer, tag_of(e, v, giver), *buffer, v->like));
    return overlap_receive(e, giver->peer);
}

/* This worker's messages of the move. `buffer` is sent; *received gets the buffers received, by
 * giver. Receives come first: they need no computation, and sends of other workers wait for them.
 */
static enum status post(struct emitter *e, const struct move *v, int buffer, int **received,
                        int *direct)
{
    *direct = NO_BUFFER;
    TRY(arena_alloc_array(e->scratch, (size_t)v->n_givers, sizeof **received, received));
    for (int i = 0; i < v->n_givers; i++)
        if (v->giver[i].peer != e->me)
            TRY(receive_share(e, v, &v->giver[i], direct, &(*received)[i]));
    for (int i = 0; i < v->n_takers; i++)
        if (v->taker[i].peer != e->me)
            TRY(send_share(e, v, &v->taker[i], buffer));
    e->next_message += v->n_messages;
    return STATUS_OK;
}

/* ---- putting together ---- */

enum assembly {
    COPY_ALL,     /* shares are equal or apart and cover everything: the first of each is copied */
    FIRST_COVERS, /* the first share is everything: it is copied, the others are added */
    CLEAR_FIRST   /* anything else: zeros, and all are added */
};

/* add[i]: share i is added to the buffer's contents. */
static enum assembly choose_assembly(const struct move *v, const struct region *shares, bool *add)
{
    struct shape all = region_shape(v->needs, v->rank);
    int64_t covered = 0;
    bool tidy = true; /* shares that meet are equal */
    bool first_covers = v->n_givers && region_equal(&shares[0], v->needs, v->rank);
    for (int i = 0; i < v->n_givers; i++) {
        struct shape s = region_shape(&shares[i], v->rank);
        struct region both;
        add[i] = first_covers && i > 0;
        for (int k = 0; !first_covers && k < i; k++)
            if (region_intersect(&shares[i], &shares[k], v->rank, &both)) {
                add[i] = true;
                tidy &= region_equal(&shares[i], &shares[k], v->rank);
            }
        covered += add[i] ? 0 : shape_elements(&s);
    }
    if (first_covers)
        return FIRST_COVERS;
    if (tidy && covered == shape_elements(&all))
        return COPY_ALL;
    for (int i = 0; i < v->n_givers; i++)
        add[i] = true;
    return CLEAR_FIRST;
}

/* One share from where it lies (this worker's own buffer, or a received one) to where it belongs.
 */
static enum status put_share(struct emitter *e, const struct move *v, int giver,
                             const struct region *share, int from, int to, bool add)
{
    struct program_copy copy = {
        .from = from, .to = to, .region = {.to_layout = layout_here(e, v, v->to), .add = add}};
    if (giver == e->me) {
        copy.region.from_layout = layout_here(e, v, v->from);
        set_begin(v->rank, share, v->has, copy.region.from_begin);
    } else {
        copy.region.from_layout = e->p->buffers[from].layout;
    }
    set_begin(v->rank, share, v->needs, copy.region.to_begin);
    set_extent(v->rank, share, copy.region.extent);
    return emit_copy(e, INSTR_COPY, &copy, v->like);
}

static enum status assemble(struct emitter *e, const struct move *v, int own, const int *received,
                            int direct, int *out)
{
    size_t n = (size_t)v->n_givers;
    struct region *shares;
    bool *add;
    int to = direct;
    TRY(arena_alloc_array(e->scratch, n, sizeof *shares, &shares));
    TRY(arena_alloc_array(e->scratch, n, sizeof *add, &add));
    for (int i = 0; i < v->n_givers; i++)
        shares[i] = share_of(e, v, v->giver[i].peer, e->me);
    enum assembly assembly = choose_assembly(v, shares, add);
    if (to == NO_BUFFER)
        TRY(emit_tensor(e, e->part->tensors[v->to].name, BUFFER_ACTIVATIONS,
                        layout_here(e, v, v->to), &to));
    if (assembly == CLEAR_FIRST)
        TRY(emit_copy(e, INSTR_CLEAR, &(struct program_copy){.from = NO_BUFFER, .to = to},
                      v->like));
    for (int i = 0; i < v->n_givers; i++) {
        int giver = v->giver[i].peer, from = giver == e->me ? own : received[i];
        if (from != direct)
            TRY(put_share(e, v, giver, &shares[i], from, to, add[i]));
    }
    *out = to;
    return STATUS_OK;
}

/* ---- forward ---- */

static enum status set_view_layout(struct emitter *e, const struct move *v)
{
    const layout **l = &e->layouts[v->to][v->size];
    struct shape shape = region_shape(v->needs, v->rank);
    if (*l || region_is_empty(v->needs, v->rank))
        return STATUS_OK;
    if (is_there(e, v)) {
        *l = layout_here(e, v, v->from);
        return STATUS_OK;
    }
    return emit_natural_layout(e, v->to, &shape, l);
}

enum status emit_post_views(struct emitter *e, int tensor, int micro)
{
    const struct part_tensor *tensors = e->part->tensors;
    for (int t = tensors[tensor].first_view; t != NO_TENSOR; t = tensors[t].next_view) {
        struct move v = move_between(e, tensor, t, micro);
        if (v.n_givers == 0 && v.n_takers == 0) {
            e->next_message += v.n_messages;
            continue;
        }
        struct instance *view = emit_instance(e, t, micro);
        TRY(set_view_layout(e, &v));
        TRY(post(e, &v, emit_instance(e, tensor, micro)->buffer, &view->received, &view->direct));
    }
    return STATUS_OK;
}

enum status emit_complete_view(struct emitter *e, int tensor, int micro)
{
    int source = e->part->tensors[tensor].source;
    struct instance *view = emit_instance(e, tensor, micro);
    if (source == NO_TENSOR || view->complete)
        return STATUS_OK;
    struct move v = move_between(e, source, tensor, micro);
    int own = emit_instance(e, source, micro)->buffer;
    view->complete = true;
    TRY(set_view_layout(e, &v)); /* of images, which are never posted */
    if (is_there(e, &v)) {
        view->buffer = own;
        return STATUS_OK;
    }
    return assemble(e, &v, own, view->received, view->direct, &view->buffer);
}

/* ---- backward ---- */

/* Several gradients of a view into the one that is sent. */
static enum status unite_gradients(struct emitter *e, const struct move *v, struct instance *view)
{
    view->sent_grad = view->n_grads ? view->grad[0] : NO_BUFFER;
    if (view->n_grads < 2)
        return STATUS_OK;
    struct program_fold fold = {.n_addends = view->n_grads, .output = NO_BUFFER};
    memcpy(fold.addend, view->grad, sizeof fold.addend);
    TRY(emit_tensor(e, e->part->tensors[v->from].name, BUFFER_ACTIVATIONS,
                    layout_here(e, v, v->from), &fold.to));
    TRY(emit_fold(e, &fold, v->like));
    for (int k = 0; k < view->n_grads; k++)
        e->in_lists[view->grad[k]]--;
    view->n_grads = 1;
    view->grad[0] = view->sent_grad = fold.to;
    e->in_lists[fold.to]++;
    return STATUS_OK;
}

enum status emit_return_views(struct emitter *e, int group_number, int micro)
{
    const struct part_group *g = &e->part->groups[group_number];
    for (int t = g->first_view; t < g->output; t++) {
        if (!e->part->tensors[t].needs_gradient)
            continue;
        struct move v = move_between(e, t, e->part->tensors[t].source, micro);
        if (v.n_givers == 0 && v.n_takers == 0) {
            e->next_message += v.n_messages;
            continue;
        }
        struct instance *view = emit_instance(e, t, micro);
        if (!is_alone(e, v.n_takers, v.taker) || !is_there(e, &v))
            TRY(unite_gradients(e, &v, view));
        TRY(post(e, &v, view->sent_grad, &view->returned, &view->direct));
    }
    return STATUS_OK;
}

enum status emit_take_returns(struct emitter *e, int tensor, int micro)
{
    const struct part_tensor *tensors = e->part->tensors;
    for (int t = tensors[tensor].first_view; t != NO_TENSOR; t = tensors[t].next_view) {
        struct move v = move_between(e, t, tensor, micro);
        if (!tensors[t].needs_gradient || region_is_empty(v.needs, v.rank))
            continue;
        struct instance *view = emit_instance(e, t, micro);
        if (is_there(e, &v)) { /* its gradients go on to the source as they are */
            for (int k = 0; k < view->n_grads; k++) {
                e->in_lists[view->grad[k]]--;
                TRY(emit_hand_gradient(e, tensor, micro, view->grad[k]));
            }
            continue;
        }
        int gradient;
        TRY(assemble(e, &v, view->sent_grad, view->returned, view->direct, &gradient));
        if (view->sent_grad != NO_BUFFER)
            e->in_lists[view->sent_grad]--;
        TRY(emit_hand_gradient(e, tensor, micro, gradient));
    }
    return STATUS_OK;
}
