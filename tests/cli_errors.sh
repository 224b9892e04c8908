# Mistakes get one line that names the mistake, the allowed values and the nearest match; exit 2 for the
# request, 1 for files.
source "$CLEAVE_SOURCE/tests/expect.sh"

# names
refused 2 "unknown command 'trian': did you mean 'train'?" trian
refused 2 "unknown command 'laers': did you mean 'layers'?" bench laers
refused 2 "allowed: show, machine, plan, train" frobnicate
refused 2 "unknown option '--versoin': did you mean '--version'?" --versoin
refused 2 "unknown model 'resnt18': did you mean 'resnet18'?" show resnt18
refused 2 "unknown model 'resnt18': did you mean 'resnet18'?" train resnt18
refused 2 "unknown model 'alexnt': did you mean 'alexnet'?" bench step alexnt
refused 2 "did you mean 'cifar10'?" show lenet5 --data cifar01
refused 2 "did you mean 'fashion-mnist'?" train lenet5 --data fashion-mnits
refused 2 "unknown option '--bacth': did you mean '--batch'?" train lenet5 --bacth 3
refused 2 "unknown option '--bacth': did you mean '--batch'?" show lenet5 --bacth=3
refused 2 "unknown option '-x'" show lenet5 -x
refused 2 "did you mean 'adamw'?" train lenet5 --optimizer adam
refused 2 "did you mean 'cosine'?" train lenet5 --schedule cosin
refused 2 "did you mean 'reference'?" train lenet5 --backend referense
refused 2 "did you mean 'double'?" train lenet5 --precision doubel

# values
refused 2 "--batch '0' must be a whole number from 1" train lenet5 --batch 0
refused 2 "--batch 'abc' must be a whole number" train lenet5 --batch abc
refused 2 "--batch '1.5' must be a whole number" show lenet5 --batch=1.5
refused 2 "--batch '99999999999999999999' must be" show lenet5 --batch 99999999999999999999
refused 2 "--batch '0' must be a whole number" bench layers lenet5 --batch 4,0
refused 2 "--batch '' must be a whole number" bench layers lenet5 --batch 4,,1
refused 2 "--batch takes at most" bench gemm --batch 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
refused 2 "--csv - and --json both go to standard output" bench gemm --csv - --json
refused 2 "--csv - and --json both go to standard output" bench layers lenet5 --csv - --json
refused 2 "--lr 'fast' must be a number" train lenet5 --lr fast
refused 2 "--lr 'nan' must be a number" train lenet5 --lr nan
refused 2 "--epochs '-1' must be" train lenet5 --epochs -1
refused 2 "--batch needs a value" train lenet5 --batch
refused 2 "--batch needs a value" train lenet5 --batch --json
refused 2 "--json takes no value" show lenet5 --json=yes
refused 2 "--data must not be empty" show lenet5 --data=
refused 2 "MODEL is missing" show
refused 2 "SPEC is missing" pack
refused 2 "unexpected argument 'lenet5'" show vgg11 lenet5
refused 2 "--out FILE is missing" pack imagefolder:x
refused 2 "did you mean 'data'?" train lenet5 --plan dato
refused 2 "at most 1 worker" train lenet5 --plan serial --workers 2
refused 2 "--workers" train lenet5 --workers 0
refused 2 "--replicas" train lenet5 --workers 4 --plan 1f1b --replicas 3,x
refused 2 "the strategy owt has no use for --servers without --sync server (these have: ps)" \
    plan check owt lenet5 --workers 4 --servers 1
refused 2 "unknown value of --sync" train lenet5 --workers 2 --sync rign
refused 1 "nowhere.json" train lenet5 --plan nowhere.json
refused 2 "did you mean 'check'?" plan chek
refused 2 "did you mean 'model'?" plan make modle lenet5 --workers 2
refused 2 "STRATEGY is missing: serial, data, " plan make
refused 2 "MODEL is missing" plan check data
refused 2 "the plan has workers 0 to 1" plan dump data lenet5 --workers 2 --worker 2
refused 2 "--resume needs --checkpoint" train lenet5 --resume
refused 2 "--nesterov needs" train lenet5 --nesterov --momentum 0

# shapes that do not fit
refused 2 "alexnet layer" show alexnet --data mnist
refused 2 "alexnet layer" train alexnet --data synthetic:mnist
refused 2 "synthetic:0x28x28/10" show lenet5 --data synthetic:0x28x28/10

# files
refused 1 "/nonexistent" train lenet5 --data mnist:/nonexistent
refused 1 "/nonexistent" train lenet5 --data cifar10:/nonexistent
refused 1 "/nonexistent" train lenet5 --data imagefolder:/nonexistent
refused 1 "/nonexistent" train lenet5 --data packed:/nonexistent
refused 1 "/nonexistent" pack imagefolder:/nonexistent --out out.pack
refused 1 "/nonexistent" train lenet5 --data synthetic:mnist --weights /nonexistent --steps 1
mkdir idx
for split in train t10k; do
    printf '\0\0\10\3\0\0\0\12\0\0\0\34\0\0\0\34short' >idx/$split-images-idx3-ubyte
    printf '\0\0\10\1\0\0\0\12\0\1\2\3\4\5\6\7\10\11' >idx/$split-labels-idx1-ubyte
done
refused 1 "idx/train-images-idx3-ubyte" train lenet5 --data mnist:idx
printf 'this is no IDX file' >idx/train-images-idx3-ubyte
refused 1 "idx/train-images-idx3-ubyte" train lenet5 --data mnist:idx
[[ ! -e out.pack ]] || fail "a failed pack left its file"

# the last of a repeated option wins; -- ends the options
run 0 show lenet5 --data mnist --batch 2 --batch 3 --json
holds 'd["input"] == [3, 1, 28, 28]'
run 0 show --data=mnist -- lenet5
refused 2 "unexpected argument '--json'" show lenet5 -- --json

# where an error came from, only if asked
run 2 show resnt18
[[ $(wc -l <stderr) -eq 1 ]] || fail "a trace that nobody asked for"
run 2 show resnt18 --debug
says stderr "subject_options.c:"
CLEAVE_DEBUG=1 run 2 show resnt18
says stderr "subject_options.c:"

# results that cannot be written are a failure
if [[ -e /dev/full ]]; then
    status=0
    "$CLEAVE" show lenet5 --data mnist >/dev/full 2>stderr || status=$?
    [[ $status -eq 1 ]] || fail "a full disk: exit $status"
    says stderr "cannot write the results"
fi
