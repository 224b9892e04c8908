# Tests that need another time limit than 120 s, as name=seconds. Sanitized builds get three times
# as long. A test that needs more than a few seconds should have a reason beside it.
set(CLEAVE_TEST_TIMEOUTS)

# Tests that must run with no other beside them (they measure, or use all cores or memory).
set(CLEAVE_TESTS_ALONE)
