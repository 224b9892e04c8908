# Tests that need another time limit than 120 s, as name=seconds. Sanitized builds get three times
# as long. A test that needs more than a few seconds should have a reason beside it.
set(CLEAVE_TEST_TIMEOUTS
    test_transparency=400 # trains seven networks under many plans
    test_random_plans=300 test_programs=300 test_mutations=300
    test_fixtures=300 # trains twelve networks, ten of them in plain C, too: 75 s alone
    cli_accuracy=300 # predicts and trains 19 plans, of which 9 have more workers than some cores
    mpi_train=300  # 36 runs with up to four processes on as few cores as there are
    mpi_faults=600 # starts a job for each kill, and waits for a time-out
    test_levels=300 # searches whole machines of up to eight nodes
    cli_plan=240 # searches, and measures on this host
    cli_train=240 # waits for signals, and computes beside busy programs
    cli_predict=240 # about a hundred runs, some of which measure
    cli_browser=240 # a browser, and a page of 1024 workers: 33 s alone
    netns=300)     # sends 2.5 GB over links of 1 Gbit/s

# Tests that must run with no other beside them (they measure, or use all cores or memory).
set(CLEAVE_TESTS_ALONE
    test_rounds # tells steady hosts from unsteady ones
    test_trial) # sets the times of two trainings side by side

# The large matrices whole, for 'make test-all': program=seconds, or program=seconds:ROW for the rows of
# CLEAVE_TEST_ONLY, which run side by side.
set(CLEAVE_TESTS_WHOLE
    test_clock_plans=1800 test_fixtures=3600 test_predict=3600 test_random_plans=7200
    "test_transparency=7200:lenet5/*" "test_transparency=14400:alexnet/*"
    "test_transparency=14400:vgg11/*" "test_transparency=14400:resnet18/*"
    "test_transparency=14400:mobilenetv2/*" "test_transparency=14400:googlenet/*"
    "test_transparency=14400:inceptionv3/*" "test_transparency=14400:by-hand/*"
    test_transparency=1200:others)
