# Pages of cleave report opened in headless Chromium: report_browser.py says what must hold. One page
# has everything, one compares two runs, one is of 1024 workers. SHOTS=DIR keeps pictures.
source "$CLEAVE_SOURCE/tests/expect.sh"
export CLEAVE_PROFILE=$TEST_FOLDER/profile.db HOME=$TEST_FOLDER
# Debian's python3 has Debian's python3-selenium, whatever other Python stands before it.
python=/usr/bin/python3
command -v chromium >/dev/null && command -v chromedriver >/dev/null && $python -c 'import selenium' ||
    { echo "skipped: chromium, chromium-driver or python3-selenium is not installed"; exit 77; }

data=synthetic:1x28x28/10/1200
run 0 train lenet5 --data $data --batch 64 --epochs 3 --workers 2 --plan owt --run a
run 0 train lenet5 --data $data --batch 64 --epochs 3 --workers 2 --plan data --run b
run 0 plan lenet5 --data $data --batch 64 --workers 2 --machine 1x2:p100 --json
mv stdout search.json
run 0 bench limits vgg16 --data imagenet --machine 16x1:p100,inter=1GB/s --workers 1,2,4,8,16 \
    --batch 256 --json
mv stdout limits.json
run 0 report a search.json limits.json -o all.html
run 0 report a b -o two.html

# 1024 workers, 311 layers; nothing there depends on this host
large=(inceptionv3 --data imagenet --workers 1024 --batch 16384)
run 0 predict "${large[@]}" --machine 128x8:v100 --trace large.trace --json
mv stdout large.json
run 0 plan make data "${large[@]}" -o plan.json
run 0 report plan.json large.json large.trace --data imagenet --batch 16384 -o large.html
rm large.trace

$python "$CLEAVE_SOURCE/tests/report_browser.py" "$PWD" ${SHOTS:+"$SHOTS"} || fail "in the browser"
