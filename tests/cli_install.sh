# The installed library can be used from another folder: the examples build against it as C and as C++,
# with pkg-config (shared and static) and with find_package, and print what they should. It shows no
# other symbols, 'make uninstall' leaves nothing, and the Debian packages hold the same files and depend
# on the packages that they need.
source "$CLEAVE_SOURCE/tests/expect.sh"
build=$(dirname "$CLEAVE")
root=$PWD/root
unset MAKEFLAGS MFLAGS MAKELEVEL

cmake --install "$build" --prefix "$root" >log || fail "cannot install: $(tail -n 3 log)"
export PKG_CONFIG_PATH=$root/lib/pkgconfig LD_LIBRARY_PATH=$root/lib
export CLEAVE_PROFILE=$PWD/profile.db GOMP_SPINCOUNT=0
version=$(pkg-config --modversion cleave)
[[ $("$root/bin/cleave" --version) == *"$version"* ]] || fail "cleave and cleave.pc: other versions"

# ---- building ----
read -ra flags < <(pkg-config --cflags --libs cleave)
[[ ${flags[*]} == *-lcleave* && ${flags[*]} != *-ljansson* ]] || fail "flags: ${flags[*]}"
strict=(-Wall -Wextra -Wconversion -Werror)
examples=("$root"/share/doc/cleave/examples/0[1-6]-*.c)
[[ ${#examples[@]} -eq 6 ]] || fail "examples: ${examples[*]}"
for source in "${examples[@]}"; do
    name=$(basename "$source" .c)
    gcc -std=c17 -pedantic "${strict[@]}" "$source" "${flags[@]}" -o "c-$name" || fail "$name as C"
    g++ -std=c++17 "${strict[@]}" -x c++ "$source" -x none "${flags[@]}" -o "cpp-$name" ||
        fail "$name as C++"
done
echo '#include <cleave/cleave.h>' >header.c
for standard in c99 c11 c2x; do
    gcc -std=$standard -pedantic "${strict[@]}" "${flags[0]}" -fsyntax-only header.c || fail $standard
done
g++ -std=c++11 -pedantic "${strict[@]}" "${flags[0]}" -fsyntax-only -x c++ header.c || fail c++11

# The static library needs the libraries behind it, and its inner names clash with no other ones.
read -ra static < <(pkg-config --static --libs cleave)
cat >clash.c <<'C'
#include <cleave/cleave.h>
#include <stdio.h>
int log_warn(void), plan_check(void), status_fail(void);
int log_warn(void) { return 1; }
int plan_check(void) { return 2; }
int status_fail(void) { return 3; }
int main(void)
{
    cleave_model *model;
    if (cleave_model_open("lenet5", "mnist", 1, &model) == CLEAVE_OK)
        printf("%d\n", log_warn() + plan_check() + status_fail());
    cleave_model_destroy(model);
    return 0;
}
C
gcc clash.c "${flags[0]}" "${static[@]/#-lcleave/-l:libcleave.a}" -o clash || fail "static"
[[ $(./clash) == 6 ]] || fail "clash says $(./clash)"
for library in "$root/lib/libcleave.so" "$root/lib/libcleave.a"; do
    dynamic=()
    [[ $library == *.so ]] && dynamic=(-D)
    others=$(nm "${dynamic[@]}" -g --defined-only "$library" | awk 'NF == 3 && $3 !~ /^cleave_/')
    [[ -z $others ]] || fail "$library shows: $others"
done
declared=$(grep -o 'cleave_[a-z_]*(' "$root/include/cleave/cleave.h" | grep -v _defaults | sort -u |
    tr -d '(')
shown=$(nm -D --defined-only "$root/lib/libcleave.so" | awk '{ print $3 }' | sort -u)
[[ -z $(comm -13 <(echo "$declared") <(echo "$shown")) ]] || fail "shown but not declared"
missing=$(comm -23 <(echo "$declared") <(echo "$shown"))
[[ -z $missing ]] || fail "declared but not shown: $missing"

cmake -S "$root/share/doc/cleave/examples" -B by-cmake -DCMAKE_PREFIX_PATH="$root" >log 2>&1 &&
    cmake --build by-cmake >>log 2>&1 || fail "find_package: $(tail -n 5 log)"

# ---- running ----
says_all() { # NAME PATTERN...: what the example prints, as C, has every pattern
    local name=$1
    shift
    "./$name" >stdout 2>stderr </dev/null || fail "$name: exit $?"
    [[ ! -s stderr ]] || fail "$name: something on stderr"
    local pattern
    for pattern in "$@"; do
        grep -qE -e "$pattern" stdout || fail "$name: expected $pattern"
    done
}
says_all c-01-show-a-network '^lenet5: 13 layers, 61706 parameters, 109.1 million operations' \
    '^conv2 +conv2d +128x16x10x10 +n=128 g=1 k=16 p=10 q=10 \| c=6 r=5 s=5'
says_all c-02-predict-a-plan '^step +[0-9]+ ms \+- [0-9]+ ms' '^moved +16.60 GB' '^fits +yes' \
    'weights 553 MB, optimizer 553 MB, gradients 553 MB'
says_all c-03-find-the-best-plan '^\* ' '^  data ' '^Use .*: 1\.[0-9]+ times as fast as data' \
    'features.0 .. .*: n=4'
"$root/bin/cleave" plan check best.json alexnet --data imagenet --batch 128 >stdout ||
    fail "best.json"
says_all c-04-train-with-callbacks '^2 workers' '^step 10 of 80: loss' '^test: loss .*accuracy'
says_all c-05-checkpoint-and-resume '^serial on 1: steps 1 to 30, loss' \
    '^serial on 1: steps 1 to 15' '^model on 2: steps 16 to 30' 'without stopping: yes'
says_all c-06-how-many-workers '^ +1 serial .* 1.00 +100 %' '^ +64 '
# The others are the same program: one of each.
./cpp-01-show-a-network >cpp && ./by-cmake/01-show-a-network >cmake || fail "01 as C++ or by CMake"
./c-01-show-a-network | tee c | cmp - cpp && cmp c cmake || fail "01: other outputs"

# ---- removing ----
if [[ $build -ef $CLEAVE_SOURCE/build ]]; then
    touch "$root/lib/own" && mkdir -p "$root/share/doc/other"
    "$CLEAVE_SOURCE/tools/uninstall.sh" "$root" >log || fail "uninstall: $(tail -n 3 log)"
    left=$(cd "$root" && find . ! -type d)
    [[ $left == ./lib/own ]] || fail "uninstall left: $left"
    [[ -z $(find "$root" -name '*cleave*') ]] || fail "uninstall left folders"
fi

# ---- Debian packages ----
if ! command -v dpkg-shlibdeps >/dev/null || ! command -v file >/dev/null; then
    skip "dpkg-dev or file is missing, so the packages are not tested"
fi
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$PWD/deb" >log 2>&1 ||
    fail "cpack: $(tail -n 5 log)"
packages=(deb/cleave_*.deb deb/libcleave0*.deb deb/libcleave-dev_*.deb)
[[ $(ls deb/*.deb | wc -l) -eq 3 && -f ${packages[0]} && -f ${packages[1]} && -f ${packages[2]} ]] ||
    fail "packages: $(ls deb)"
for package in "${packages[@]:0:2}"; do
    depends=$(dpkg-deb -f "$package" Depends)
    [[ $depends == *libc6* && $depends == *libjansson4* && $depends == *libsqlite3-0* ]] ||
        fail "$package depends on: $depends"
done
[[ $(dpkg-deb -f "${packages[2]}" Depends) == libcleave0*"(= $version)"* ]] || fail "libcleave-dev"
if [[ $(id -u) -eq 0 ]]; then
    # In a root of its own: configured, used, and purged without a trace.
    mkdir -p system/var/lib/dpkg/{info,updates,triggers} system/usr
    touch system/var/lib/dpkg/status
    find system | sort >before
    dpkg_in() { dpkg --root="$PWD/system" --force-not-root --force-script-chrootless "$@"; }
    dpkg_in --force-depends -i "${packages[@]}" >log 2>&1 || fail "dpkg -i: $(tail -n 5 log)"
    LD_LIBRARY_PATH='' system/usr/bin/cleave show lenet5 --data mnist >stdout ||
        fail "the packaged program"
    PKG_CONFIG_PATH=$PWD/system/usr/lib/pkgconfig
    read -ra flags < <(pkg-config --define-prefix --cflags --libs cleave)
    gcc system/usr/share/doc/cleave/examples/01-*.c "${flags[@]}" -o packaged || fail "packaged"
    LD_LIBRARY_PATH=$PWD/system/usr/lib ./packaged | cmp - c || fail "packaged 01: other output"
    dpkg_in -P cleave libcleave-dev "$(dpkg-deb -f "${packages[1]}" Package)" >log 2>&1 ||
        fail "dpkg -P: $(tail -n 5 log)"
    find system -path system/var -prune -o -print | sort >after
    [[ -z $(find system -not -path 'system/var/*' | grep cleave) ]] || fail "purge left: $(cat after)"
fi
