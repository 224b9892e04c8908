/* Views: regions of a tensor put together from what other workers hold, and the way back.
 *
 * Forward and backward are the same operation with the two sides exchanged: every worker of the
 * receiving side needs, for its region, the sum of what the giving side has of it.
 *
 *     forward    from: the source's regions   to: the view's       (one giver each, or partial
 * sums) backward   from: the view's regions     to: the source's     (halos overlap: sums)
 *
 * A region travels in the layout that the backend would choose for a tensor of its shape, so that a
 * whole tensor can be sent from and received into its own buffer. Sums are added in the order of
 * worker numbers, the first is copied where that covers everything. */
#include "program/lowering.h"

#include <string.h>

struct move {
    int from, to; /* tensors */
    int micro, class;
    bool local; /* every worker has what it needs */
    struct instr like;
};

static struct move move_between(const struct emitter *e, int from, int to, int micro)
{
    return (struct move){.from = from,
                         .to = to,
                         .micro = micro,
                         .class = emit_class(e, micro),
                         .local = from == TENSOR_IMAGES,
                         .like = {.group = -1, .micro = micro, .param = -1}};
}

static int rank_of(const struct emitter *e, const struct move *v)
{
    return e->part->tensors[v->from].rank;
}

static const struct region *from_at(const struct emitter *e, const struct move *v, int worker)
{
    return emit_region(e, v->from, v->class, worker);
}

static const struct region *to_at(const struct emitter *e, const struct move *v, int worker)
{
    return emit_region(e, v->to, v->class, worker);
}

static const layout *layout_here(const struct emitter *e, const struct move *v, int tensor)
{
    return e->layouts[tensor * PARTITION_MAX_CLASSES + v->class];
}

/* What `giver` has of what `taker` needs. */
static bool find_share(const struct emitter *e, const struct move *v, int giver, int taker,
                       struct region *share)
{
    if (v->local && giver != taker)
        return false;
    return region_intersect(from_at(e, v, giver), to_at(e, v, taker), rank_of(e, v), share);
}

/* Whether this worker has exactly what it needs, and nobody adds to it. */
static bool is_there(const struct emitter *e, const struct move *v)
{
    if (!region_equal(from_at(e, v, e->me), to_at(e, v, e->me), rank_of(e, v)))
        return false;
    for (int w = 0; w < e->p->plan->n_workers; w++) {
        struct region share;
        if (w != e->me && find_share(e, v, w, e->me, &share))
            return false;
    }
    return true;
}

static bool gives_to_others(const struct emitter *e, const struct move *v)
{
    for (int w = 0; w < e->p->plan->n_workers; w++) {
        struct region share;
        if (w != e->me && find_share(e, v, e->me, w, &share))
            return true;
    }
    return false;
}

static bool needs(const struct emitter *e, const struct move *v, int worker)
{
    return !region_is_empty(to_at(e, v, worker), rank_of(e, v));
}

static int first_giver(const struct emitter *e, const struct move *v)
{
    struct region share;
    for (int w = 0; w < e->p->plan->n_workers; w++)
        if (find_share(e, v, w, e->me, &share))
            return w;
    return -1;
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
    struct shape shape = region_shape(share, rank_of(e, v));
    return emit_natural_layout(e, v->from, &shape, out);
}

static enum status send_share(struct emitter *e, const struct move *v, int taker, int64_t tag,
                              const struct region *share, int buffer)
{
    int rank = rank_of(e, v);
    const layout *travels, *lies = layout_here(e, v, v->from);
    TRY(transfer_layout(e, v, share, &travels));
    if (travels != lies || !region_equal(share, from_at(e, v, e->me), rank)) {
        struct program_copy pack = {.from = buffer,
                                    .region = {.from_layout = lies, .to_layout = travels}};
        TRY(emit_tensor(e, e->part->tensors[v->from].name, BUFFER_TRANSFER, travels, &pack.to));
        set_begin(rank, share, from_at(e, v, e->me), pack.region.from_begin);
        set_extent(rank, share, pack.region.extent);
        TRY(emit_copy(e, INSTR_COPY, &pack, v->like));
        buffer = pack.to;
    }
    return emit_message(e, INSTR_SEND, taker, tag, buffer, v->like);
}

/* Into *direct, the place where it is needed, if it comes first and is all of it. */
static enum status receive_share(struct emitter *e, const struct move *v, int giver, int64_t tag,
                                 const struct region *share, int *direct, int *buffer)
{
    const layout *travels, *lies = layout_here(e, v, v->to);
    TRY(transfer_layout(e, v, share, &travels));
    bool whole = region_equal(share, to_at(e, v, e->me), rank_of(e, v));
    bool straight = whole && travels == lies && giver == first_giver(e, v);
    TRY(emit_tensor(e, e->part->tensors[v->to].name,
                    straight ? BUFFER_ACTIVATIONS : BUFFER_TRANSFER, travels, buffer));
    if (straight)
        *direct = *buffer;
    return emit_message(e, INSTR_RECEIVE, giver, tag, *buffer, v->like);
}

/* All messages of the move. `buffer` is what this worker gives; *received gets, by worker, what it
 * is given. Every worker counts all messages, so that tags agree. */
static enum status post(struct emitter *e, const struct move *v, int buffer, int **received,
                        int *direct)
{
    int n = e->p->plan->n_workers;
    TRY(arena_alloc_array(e->p->memory, (size_t)n, sizeof **received, received));
    *direct = NO_BUFFER;
    for (int taker = 0; taker < n; taker++) {
        if (!needs(e, v, taker))
            continue;
        for (int giver = 0; giver < n; giver++) {
            struct region share;
            if (giver == taker || !find_share(e, v, giver, taker, &share))
                continue;
            int64_t tag = emit_tag(TAG_MESSAGE, e->next_message++);
            if (giver == e->me)
                TRY(send_share(e, v, taker, tag, &share, buffer));
            if (taker == e->me)
                TRY(receive_share(e, v, giver, tag, &share, direct, &(*received)[giver]));
        }
    }
    return STATUS_OK;
}

/* ---- putting together ---- */

enum assembly {
    COPY_ALL,     /* shares are equal or apart and cover everything: the first of each is copied */
    FIRST_COVERS, /* the first share is everything: it is copied, the others are added */
    CLEAR_FIRST   /* anything else: zeros, and all are added */
};

static enum assembly choose_assembly(const struct emitter *e, const struct move *v)
{
    int rank = rank_of(e, v), n = e->p->plan->n_workers;
    const struct region *whole = to_at(e, v, e->me);
    struct shape all = region_shape(whole, rank);
    int64_t covered = 0;
    bool tidy = true, seen = false;
    for (int w = 0; w < n; w++) {
        struct region share, other, both;
        if (!find_share(e, v, w, e->me, &share))
            continue;
        if (!seen && region_equal(&share, whole, rank))
            return FIRST_COVERS;
        seen = true;
        bool again = false;
        for (int u = 0; u < w; u++)
            if (find_share(e, v, u, e->me, &other) &&
                region_intersect(&share, &other, rank, &both)) {
                again = true;
                tidy &= region_equal(&share, &other, rank);
            }
        struct shape s = region_shape(&share, rank);
        covered += again ? 0 : shape_elements(&s);
    }
    return tidy && covered == shape_elements(&all) ? COPY_ALL : CLEAR_FIRST;
}

static bool meets_earlier(const struct emitter *e, const struct move *v, int giver,
                          const struct region *share)
{
    for (int w = 0; w < giver; w++) {
        struct region other, both;
        if (find_share(e, v, w, e->me, &other) &&
            region_intersect(share, &other, rank_of(e, v), &both))
            return true;
    }
    return false;
}

/* One share from where it lies (this worker's own buffer, or a received one) to where it belongs.
 */
static enum status put_share(struct emitter *e, const struct move *v, int giver,
                             const struct region *share, int from, int to, bool add)
{
    int rank = rank_of(e, v);
    struct program_copy copy = {
        .from = from, .to = to, .region = {.to_layout = layout_here(e, v, v->to), .add = add}};
    if (giver == e->me) {
        copy.region.from_layout = layout_here(e, v, v->from);
        set_begin(rank, share, from_at(e, v, e->me), copy.region.from_begin);
    } else {
        copy.region.from_layout = e->p->buffers[from].layout;
    }
    set_begin(rank, share, to_at(e, v, e->me), copy.region.to_begin);
    set_extent(rank, share, copy.region.extent);
    return emit_copy(e, INSTR_COPY, &copy, v->like);
}

static enum status assemble(struct emitter *e, const struct move *v, int own, const int *received,
                            int direct, int *out)
{
    enum assembly assembly = choose_assembly(e, v);
    int to = direct;
    if (to == NO_BUFFER)
        TRY(emit_tensor(e, e->part->tensors[v->to].name, BUFFER_ACTIVATIONS,
                        layout_here(e, v, v->to), &to));
    if (assembly == CLEAR_FIRST)
        TRY(emit_copy(e, INSTR_CLEAR, &(struct program_copy){.from = NO_BUFFER, .to = to},
                      v->like));
    bool first = true;
    for (int w = 0; w < e->p->plan->n_workers; w++) {
        struct region share;
        if (!find_share(e, v, w, e->me, &share))
            continue;
        bool add = assembly == CLEAR_FIRST || (assembly == FIRST_COVERS && !first) ||
                   (assembly == COPY_ALL && meets_earlier(e, v, w, &share));
        first = false;
        int from = w == e->me ? own : received[w];
        if (from != direct)
            TRY(put_share(e, v, w, &share, from, to, add));
    }
    *out = to;
    return STATUS_OK;
}

/* ---- forward ---- */

static enum status set_view_layout(struct emitter *e, const struct move *v)
{
    const layout **l = &e->layouts[v->to * PARTITION_MAX_CLASSES + v->class];
    struct shape shape = region_shape(to_at(e, v, e->me), rank_of(e, v));
    if (*l || !needs(e, v, e->me))
        return STATUS_OK;
    if (is_there(e, v)) {
        *l = layout_here(e, v, v->from);
        return STATUS_OK;
    }
    return emit_natural_layout(e, v->to, &shape, l);
}

enum status emit_post_views(struct emitter *e, int tensor, int micro)
{
    for (int t = tensor + 1; t < e->part->n_tensors; t++) {
        if (e->part->tensors[t].source != tensor)
            continue;
        struct move v = move_between(e, tensor, t, micro);
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
        e->holders[view->grad[k]]--;
    view->n_grads = 1;
    view->grad[0] = view->sent_grad = fold.to;
    e->holders[fold.to]++;
    return STATUS_OK;
}

static enum status return_view(struct emitter *e, int tensor, int micro)
{
    int source = e->part->tensors[tensor].source, direct;
    struct move v = move_between(e, tensor, source, micro);
    struct instance *view = emit_instance(e, tensor, micro);
    if (gives_to_others(e, &v) || !is_there(e, &v))
        TRY(unite_gradients(e, &v, view));
    TRY(post(e, &v, view->sent_grad, &view->returned, &direct));
    view->direct = direct;
    return STATUS_OK;
}

enum status emit_return_views(struct emitter *e, int group_number, int micro)
{
    for (int t = 0; t < e->part->n_tensors; t++) {
        const struct part_tensor *view = &e->part->tensors[t];
        if (view->source != NO_TENSOR && view->first_consumer == group_number &&
            view->needs_gradient)
            TRY(return_view(e, t, micro));
    }
    return STATUS_OK;
}

/* The gradients of a view that this worker holds alone go on to the source as they are. */
static enum status hand_over(struct emitter *e, struct instance *view, int source, int micro)
{
    for (int k = 0; k < view->n_grads; k++) {
        e->holders[view->grad[k]]--;
        TRY(emit_hand_gradient(e, source, micro, view->grad[k]));
    }
    return STATUS_OK;
}

enum status emit_take_returns(struct emitter *e, int tensor, int micro)
{
    for (int t = tensor + 1; t < e->part->n_tensors; t++) {
        const struct part_tensor *part = &e->part->tensors[t];
        if (part->source != tensor || !part->needs_gradient)
            continue;
        struct move v = move_between(e, t, tensor, micro);
        struct instance *view = emit_instance(e, t, micro);
        if (!needs(e, &v, e->me))
            continue;
        if (is_there(e, &v)) {
            TRY(hand_over(e, view, tensor, micro));
            continue;
        }
        int gradient;
        TRY(assemble(e, &v, view->sent_grad, view->returned, view->direct, &gradient));
        if (view->sent_grad != NO_BUFFER)
            e->holders[view->sent_grad]--;
        TRY(emit_hand_gradient(e, tensor, micro, gradient));
    }
    return STATUS_OK;
}
