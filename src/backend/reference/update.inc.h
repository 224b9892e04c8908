/* Gradients summed and folded, optimizer updates, and conversion from and to float. */

static void fold(int64_t count, int n_addends, const void *const *addends,
                 enum activation activation, const void *output, void *to)
{
    const REAL *y = output;
    REAL *result = to;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int j = 0; j < n_addends; j++)
            sum += (double)((const REAL *)addends[j])[i];
        if (activation != ACTIVATION_NONE)
            sum *= activation_slope(activation, (double)y[i]);
        result[i] = (REAL)sum;
    }
}

static void add_elements(int64_t count, const void *from, void *to)
{
    const REAL *x = from;
    REAL *y = to;
    for (int64_t i = 0; i < count; i++)
        y[i] = (REAL)((double)y[i] + (double)x[i]);
}

/* Sutskever et al.'s momentum as PyTorch writes it: the learning rate stays outside the buffer. */
static void update_sgd(const struct update_rule *rule, int64_t count, REAL *weight,
                       const REAL *gradient, REAL *buffer)
{
    for (int64_t i = 0; i < count; i++) {
        double w = (double)weight[i];
        double direction = (double)gradient[i] + rule->weight_decay * w;
        if (rule->momentum != 0) {
            double b = rule->momentum * (double)buffer[i] + direction;
            buffer[i] = (REAL)b;
            direction = rule->nesterov ? direction + rule->momentum * b : b;
        }
        weight[i] = (REAL)(w - rule->learning_rate * direction);
    }
}

/* Loshchilov and Hutter, algorithm 2: the decay is apart from the gradient. */
static void update_adamw(const struct update_rule *rule, int64_t count, REAL *weight,
                         const REAL *gradient, REAL *first, REAL *second)
{
    const double correction1 = 1 - pow(rule->beta1, (double)rule->step);
    const double correction2 = 1 - pow(rule->beta2, (double)rule->step);
    for (int64_t i = 0; i < count; i++) {
        double g = (double)gradient[i];
        double m = rule->beta1 * (double)first[i] + (1 - rule->beta1) * g;
        double v = rule->beta2 * (double)second[i] + (1 - rule->beta2) * g * g;
        double w = (double)weight[i] * (1 - rule->learning_rate * rule->weight_decay);
        w -= rule->learning_rate * (m / correction1) / (sqrt(v / correction2) + rule->epsilon);
        first[i] = (REAL)m;
        second[i] = (REAL)v;
        weight[i] = (REAL)w;
    }
}

static void update(const struct update_rule *rule, int64_t count, void *weight,
                   const void *gradient, void *const state[2])
{
    if (rule->kind == UPDATE_SGD)
        update_sgd(rule, count, weight, gradient, rule->momentum != 0 ? state[0] : NULL);
    else
        update_adamw(rule, count, weight, gradient, state[0], state[1]);
}

static void from_float(int64_t count, const float *from, void *to)
{
    REAL *x = to;
    for (int64_t i = 0; i < count; i++)
        x[i] = (REAL)from[i];
}

static void to_float(int64_t count, const void *from, float *to)
{
    const REAL *x = from;
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)x[i];
}
