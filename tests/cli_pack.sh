# A folder of small images made one file, and trained on.
source "$CLEAVE_SOURCE/tests/expect.sh"

python3 - <<'PYTHON'
import os, struct, zlib

def png(path, shade):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes([(shade + x) % 256, y * 8, shade]) * 16 for x in [1] for y in range(16))
    header = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

for split, count in (("train", 12), ("test", 4)):
    for label, name in enumerate(("cat", "dog")):
        os.makedirs(f"photos/{split}/{name}")
        for i in range(count):
            png(f"photos/{split}/{name}/{i:03}.png", 40 + 120 * label + i)
PYTHON

run 0 pack imagefolder:photos --size 32 --out train.pack --json
holds 'd["images"] == 24 and d["classes"] == 2 and d["bytes"] > 24 * 3 * 32 * 32'
run 0 pack imagefolder:photos@32 --split test --out test.pack
says stdout "test.pack: 8 images of 3x32x32 in 2 classes"
[[ ! -s stderr ]] || fail "pack: something on stderr"
run 0 pack imagefolder:photos@32 --encoding jpeg --out small.pack
says stdout "24 images"

# the packed file trains to the same losses as the folder
run 0 train mlp --data imagefolder:photos@32 --batch 8 --epochs 2 --json
cp stdout folder
run 0 train mlp --data packed:train.pack,test.pack --batch 8 --epochs 2 --json
holds '[e.get("loss") for e in d] == [e.get("loss") for e in map(json.loads, open("folder"))]'
holds '[e.get("test_accuracy") for e in d] == [e.get("test_accuracy") for e in map(json.loads, open("folder"))]'

# the examples of the help, as they stand there
run 0 pack --help
grep '^  cleave pack ' stdout >examples
while read -r -a words; do
    run 0 "${words[@]:1}"
done <examples
run 0 train mlp --data packed:photos.pack,photos-test.pack --batch 8 --steps 1 --run none

refused 2 "both give a size" pack imagefolder:photos@32 --size 16 --out x.pack
refused 2 "--size is for image folders" pack mnist:photos --size 16 --out x.pack
refused 2 "synthetic" pack synthetic:mnist --out x.pack
refused 1 "/nonexistent/x.pack" pack imagefolder:photos@32 --out /nonexistent/x.pack
[[ ! -e x.pack ]] || fail "a refused pack left its file"
head -c 1000 train.pack >cut.pack
refused 1 "cut.pack" train mlp --data packed:cut.pack --steps 1
