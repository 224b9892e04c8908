# Parameter counts are PyTorch's; the table fits a terminal; the JSON has the promised names.
source "$CLEAVE_SOURCE/tests/expect.sh"

counts() { # MODEL DATA PARAMETERS
    run 0 show "$1" --data "$2" --json
    holds "d['parameters'] == $3 == sum(l['parameters'] for l in d['layers'])"
}
counts alexnet imagenet 61100840
counts alexnet7 imagenet 74732328
counts vgg11 imagenet 132863336
counts vgg16 imagenet 138357544
counts resnet18 imagenet 11689512
counts resnet50 imagenet 25557032
counts resnet152 imagenet 60192808
counts mobilenetv2 imagenet 3504872
counts googlenet imagenet 6624904
counts inceptionv3 imagenet 23834568
counts resnet18 cifar10 11173962
counts resnet50 cifar10 23520842
counts resnet152 cifar10 58156618
counts mobilenetv2 cifar10 2296922
counts resnet18 imagenet22k $((11689512 + (21841 - 1000) * 513))

run 0 show resnet18 --json
holds 'd["name"] == "resnet18" and d["classes"] == 1000 and d["input"] == [1, 3, 224, 224]'
holds '3.6e9 < d["forward_flops"] < 3.7e9'
holds 'all(set(l) >= {"name", "op", "output", "parameters", "loops"} for l in d["layers"])'
holds 'd["layers"][0]["name"] == "conv1" and d["layers"][0]["output"] == [1, 64, 112, 112]'
holds '[(l["name"], l["extent"]) for l in d["layers"][0]["loops"]] == [("n", 1), ("g", 1),
       ("k", 64), ("p", 112), ("q", 112), ("c", 3), ("r", 7), ("s", 7)]'
holds '[l["cut"] for l in d["layers"][0]["loops"]][3:6] == ["halo", "halo", "partial"]'
holds '[l["role"] for l in d["layers"][0]["loops"]][4:6] == ["output", "summed"]'

# work grows with the batch, parameters do not
run 0 show resnet18 --json
one=$(python3 -c 'import json; print(json.load(open("stdout"))["forward_flops"])')
run 0 show resnet18 --json --batch 4
holds "d['forward_flops'] == 4 * $one and d['parameters'] == 11689512"

run 0 show lenet5 --data mnist --loops
says stdout "loops        n=1 g=1 k=16 p=10 q=10 | c=6 r=5 s=5"
says stdout "input        [n, 6 g + c, p + r, q + s]"
says stdout "[n, g + c, p + r - 2, q + s - 2]"

for model in resnet152 inceptionv3 googlenet mobilenetv2; do
    run 0 show $model --batch 256 --data highres
    [[ ! -s stderr ]] || fail "show: something on stderr"
    python3 -c 'import sys; sys.exit(any(len(l.rstrip("\n")) > 80 for l in open("stdout", encoding="utf-8")))' ||
        fail "show $model: wider than 80 columns"
done
