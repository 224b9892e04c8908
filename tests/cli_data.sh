# Corrupt images: found beforehand, replaced while training alike under every plan, counted; and a
# packed file that is cut while it is read.
source "$CLEAVE_SOURCE/tests/expect.sh"

python3 - <<'PYTHON'
import os, struct, zlib

def png(path, shade):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes([(shade * 7 + y) % 256, y * 8, shade]) * 16 for y in range(16))
    header = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

for label, name in enumerate(("cat", "dog")):
    os.makedirs(f"photos/{name}")
    for i in range(30):
        png(f"photos/{name}/{i:02}.png", 100 * label + i)
PYTHON
data=imagefolder:photos@28

# ---- a sound dataset ----

run 0 data check $data --json
holds 'd["train_images"] == 54 and d["test_images"] == 6 and d["corrupt"] == [] and d["classes"] == 2'
holds '(d["channels"], d["height"], d["width"]) == (3, 28, 28) and all(0 < x < 1 for x in d["mean"] + d["deviation"])'
run 0 data check $data --threads 1
cp stdout one
says stdout "images of 3x28x28 in 2 classes"
run 0 data check $data --threads 3
diff <(sed 1d one) <(sed 1d stdout) || fail "figures depend on the threads"
[[ ! -s stderr ]] || fail "data check: something on stderr"
# white and black in equal parts: mean and deviation are a half
python3 - <<'PYTHON'
import struct
body = b"".join(bytes([255 * (j % 2) for j in range(784)]) for i in range(4))
for split in ("train", "t10k"):
    import os
    os.makedirs("idx", exist_ok=True)
    open(f"idx/{split}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, 4, 28, 28) + body)
    open(f"idx/{split}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, 4) + bytes(4))
PYTHON
run 0 data check mnist:idx --json
holds 'd["mean"] == [0.5] and d["deviation"] == [0.5] and d["train_images"] == d["test_images"] == 4'
run 0 data check synthetic:1x8x8/2/64 --json
holds 'd["train_images"] == 64 and len(d["mean"]) == 1'
refused 2 "names a shape" data check imagenet
refused 2 "SPEC is missing" data check
refused 2 "did you mean 'check'?" data chek
refused 1 "nowhere" data check imagefolder:nowhere

# ---- a corrupt one: three images for training, one for testing ----

run 0 pack $data --out sound.pack
for image in cat/03 dog/17 dog/18 dog/19; do
    truncate -s 60 photos/$image.png
done
run 1 data check $data
says stdout "  photos/cat/03.png: "
says stdout "  photos/dog/19.png: "
says stderr "4 of 60 images cannot be read"
[[ $(grep -c '^  photos/' stdout) -eq 4 ]] || fail "not all, or too many, are listed"
run 1 data check $data --json
holds '[(c["split"], c["index"]) for c in d["corrupt"]] == [("train", 3), ("train", 43), ("train", 44), ("test", 4)]'

small=(train lenet5 --data $data --batch 16 --epochs 2 --run none --json)
refused 1 "'cleave data check' lists all" train lenet5 --data $data --batch 16 --epochs 2 --run none --json --quiet
run 0 "${small[@]}" --skip-corrupt 4
cp stdout serial
holds 'd[-1]["skipped_images"] == 4'
says stderr "dog/17.png: corrupt PNG"
says stderr "in its place stands photos/dog/20.png"
grep -o 'photos/[^:]*: .*' stderr >lines
[[ $(wc -l <lines) -eq 4 ]] || fail "a line for each image, once"
for plan in "data --workers 2" "model --workers 3"; do
    run 0 "${small[@]}" --skip-corrupt 4 --plan $plan
    python3 - <<'PYTHON' || fail "other losses under --plan $plan"
import json
def losses(file):
    events = [json.loads(line) for line in open(file)]
    return [e.get("loss", e.get("train_loss")) for e in events if e["event"] != "done"]
a, b = losses("serial"), losses("stdout")
assert len(a) == len(b) and all(abs(x - y) < 1e-4 * abs(x) for x, y in zip(a, b)), (a, b)
PYTHON
    grep -o 'photos/[^:]*: .*' stderr | diff lines - || fail "other images under --plan $plan"
    run 1 "${small[@]}" --skip-corrupt 2 --plan $plan
    grep '^cleave: error: ' stderr >error
    run 1 "${small[@]}" --skip-corrupt 2
    grep '^cleave: error: ' stderr | diff error - || fail "another end under --plan $plan"
done
says stderr "2 such images were replaced before, and --skip-corrupt 2 allows no more"
# planning looks at times alone
run 0 train lenet5 --data $data --batch 16 --steps 3 --no-eval --run none --skip-corrupt 4 --plan auto --workers 1
says stderr "in its place stands"

# ---- a packed file that is cut while it is read ----

"$CLEAVE" train lenet5 --data packed:sound.pack --batch 16 --epochs 1000000 --no-eval --run none --json >steps 2>stderr &
training=$!
for ((i = 0; i < 300; i++)); do
    grep -q '"step":3,' steps && break
    sleep 0.1
done
truncate -s 3000 sound.pack
status=0
wait $training || status=$?
[[ $status -eq 1 ]] || fail "a packed file cut short: exit $status"
says stderr "sound.pack: became shorter while it was read"
