#include "api_cases.h"

void check_api(enum cleave_status st, enum cleave_status expected, const char *part,
               const char *what, int line)
{
    const char *message = cleave_error_message();
    bool said = expected == CLEAVE_OK ? !*message : *message && strstr(message, part);
    if (st == expected && said && !strchr(message, '\n'))
        return;
    print_error("%s: expected '%s' and '%s', got '%s' and '%s'\n", what,
                cleave_status_name(expected), part, cleave_status_name(st), message);
    _fail(__FILE__, line);
}

const char small_data[] = "synthetic:1x28x28/10/100";

cleave_model *open_small(void)
{
    cleave_model *model;
    assert_api_ok(cleave_model_open("lenet5", small_data, 10, &model));
    return model;
}

cleave_plan *make_plan(const cleave_model *model, const char *strategy, int workers)
{
    cleave_plan *plan;
    assert_api_ok(cleave_plan_make(model, strategy, workers, NULL, &plan));
    return plan;
}
